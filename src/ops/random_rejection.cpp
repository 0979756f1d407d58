// Distributions that are drawn by trying: every element proposes a number until one is accepted, in
// a loop that ends when all have. The poisson and binomial proposals are Hoermann's transformed
// rejection (1993) where the mean is at least 10, and waiting times below.
#include <cmath>
#include <limits>

#include "ops/expression.h"
#include "ops/random_bits.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kLeastTransformed = 10;  // the mean from which the transformed rejection is used

struct Attempt {
  Value accepted;  // bool
  Value value;
  Value state;  // what a waiting time has come to; kept for the next attempt
};

// Repeats `attempt(key, state, count)` for the elements not yet accepted, with a new key and the
// number of attempts so far each time. `state` is the first state. Elements that are not `drawn`
// are 0: parameters of which no attempt is ever accepted, as a NaN, would hold the loop for ever.
template <typename F>
Value try_until_accepted(Value drawn, Value key, Value state, const F& attempt) {
  hlo::Builder& b = key.builder();
  const hlo::Values start = {scalar(b, DType::kUInt64, 0), drawn, state, full_like(state, 0)};
  Dims all(static_cast<std::size_t>(state.rank()));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  const hlo::Values end = hlo::while_(
      start, [&](std::span<const Value> v) { return reduce_or(v[1], all); },
      [&](std::span<const Value> v) -> hlo::Values {
        const Attempt made = attempt(derived_key(key, v[0]), v[2], convert(v[0], state.dtype()));
        const Value result = hlo::select(v[1] & made.accepted, made.value, v[3]);
        return {v[0] + 1.0, v[1] & ~made.accepted, made.state, result};
      });
  return end[3];
}

// Two independent uniform numbers in (0, 1).
struct Pair {
  Value u;
  Value v;
};
Pair uniform_pair(Value key, Value like) {
  return {random_open_uniform(key, like.dtype(), like.dims()),
          random_open_uniform(derived_key(key, 1), like.dtype(), like.dims())};
}

Value floor_of(Value x) { return hlo::floor(x); }

Value poisson(Value self, Value key) {
  const DType dtype = self.dtype();
  const Value rate = convert(self, random_dtype(dtype));
  const Value is_large = greater_equal(rate, kLeastTransformed);
  const Value large = where(is_large, rate, kLeastTransformed);
  const Value least_product = hlo::exponential(-rate);
  const Value b = hlo::sqrt(large) * 2.53 + 0.931;
  const Value a = b * 0.02483 - 0.059;
  const Value log_alpha = hlo::log(1.1328 / (b - 3.4) + 1.1239);
  const Value quick = 0.9277 - 3.6224 / (b - 2.0);
  const Value log_rate = hlo::log(large);
  const auto attempt = [&](Value k, Value product, Value count) -> Attempt {
    const Pair p = uniform_pair(k, rate);
    // The waiting times of a Poisson process, as a product of uniform numbers.
    const Value next_product = product * p.u;
    const Value arrived = hlo::le(next_product, least_product);
    const Value centered = p.u - 0.5;
    const Value us = 0.5 - hlo::abs(centered);
    const Value proposal = floor_of((a * 2.0 / us + b) * centered + large + 0.43);
    const Value at_once = greater_equal(us, 0.07) & hlo::le(p.v, quick);
    const Value is_valid = greater_equal(proposal, 0.0) & ~(less(us, 0.013) & hlo::gt(p.v, us));
    const Value bound = proposal * log_rate - large - hlo::lgamma(proposal + 1.0);
    const Value fits = hlo::le(hlo::log(p.v) + log_alpha - hlo::log(a / (us * us) + b), bound);
    return {hlo::select(is_large, at_once | (is_valid & fits), arrived),
            hlo::select(is_large, proposal, broadcast_to(count, rate.dims())), next_product};
  };
  const Value is_drawn = greater_equal(rate, 0.0) & less(rate, kInfinity);
  const Value drawn = try_until_accepted(is_drawn, key, full_like(rate, 1), attempt);
  return convert(where(is_drawn, drawn, where(greater(rate, 0.0), rate, kNaN)), dtype);
}

Value binomial(Value count, Value prob, Value key) {
  const DType dtype = result_type({count, prob});
  const std::vector<Value> both = promote_to({count, prob}, random_dtype(dtype));
  const Value n = both[0];
  const Value is_flipped = greater(both[1], 0.5);
  const Value p = where(is_flipped, 1.0 - both[1], both[1]);
  const Value is_large = greater_equal(n * p, kLeastTransformed);
  // Where the waiting times are used, any numbers that make no NaN.
  const Value m_n = where(is_large, n, 4 * kLeastTransformed);
  const Value m_p = where(is_large, p, 0.5);
  const Value q = 1.0 - m_p;
  const Value deviation = hlo::sqrt(m_n * m_p * q);
  const Value b = deviation * 2.53 + 1.15;
  const Value a = b * 0.0248 - 0.0873 + m_p * 0.01;
  const Value quick = 0.92 - 4.2 / b;
  const Value alpha = (5.1 / b + 2.83) * deviation;
  const Value mode = floor_of((m_n + 1.0) * m_p);
  const Value log_odds = hlo::log(m_p / q);
  const Value at_mode = hlo::lgamma(mode + 1.0) + hlo::lgamma(m_n - mode + 1.0);
  const Value log_failure = hlo::log_plus_one(-p);
  const auto attempt = [&](Value k, Value waited, Value successes) -> Attempt {
    const Pair pair = uniform_pair(k, n);
    // The trials up to each success; more than n trials end it.
    const Value next_waited = waited + hlo::ceil(hlo::log(pair.u) / log_failure);
    const Value is_over = ~hlo::le(next_waited, n);
    const Value centered = pair.u - 0.5;
    const Value us = 0.5 - hlo::abs(centered);
    const Value proposal = floor_of((a * 2.0 / us + b) * centered + m_n * m_p + 0.5);
    const Value at_once = greater_equal(us, 0.07) & hlo::le(pair.v, quick);
    const Value is_valid = greater_equal(proposal, 0.0) & hlo::le(proposal, m_n);
    const Value bound = at_mode - hlo::lgamma(proposal + 1.0) - hlo::lgamma(m_n - proposal + 1.0) +
                        (proposal - mode) * log_odds;
    const Value fits = hlo::le(hlo::log(pair.v * alpha / (a / (us * us) + b)), bound);
    return {hlo::select(is_large, at_once | (is_valid & fits), is_over),
            hlo::select(is_large, proposal, broadcast_to(successes, n.dims())), next_waited};
  };
  const Value is_none = less_equal(n, 0.0) | less_equal(both[1], 0.0);
  const Value is_all = greater_equal(both[1], 1.0);
  const Value is_drawn = less(n, kInfinity) & less(both[1], 1.0) & ~is_none;
  const Value successes = try_until_accepted(is_drawn, key, full_like(n, 0), attempt);
  const Value drawn = hlo::select(is_flipped, n - successes, successes);
  const Value certain = where(is_none, 0.0, hlo::select(is_all, n, n * both[1]));
  return convert(hlo::select(is_drawn, drawn, certain), dtype);
}

// Marsaglia and Tsang (2000): a cubed normal number is nearly gamma distributed. A shape below 1 is
// drawn as one above, times a power of a uniform number.
Value standard_gamma(Value self, Value key) {
  const Value shape = convert(self, random_dtype(self.dtype()));
  const Value is_small = less(shape, 1.0);
  const Value d = where(is_small, shape + 1.0, shape) - 1.0 / 3.0;
  const Value c = hlo::rsqrt(d * 9.0);
  const auto attempt = [&](Value k, Value state, Value) -> Attempt {
    const Value x = random_normal(k, shape.dtype(), shape.dims());
    const Value u = random_open_uniform(derived_key(k, 1), shape.dtype(), shape.dims());
    const Value root = c * x + 1.0;
    const Value is_positive = greater(root, 0.0);
    const Value v = where(is_positive, root * root * root, 1.0);
    const Value fits = hlo::lt(hlo::log(u), x * x * 0.5 + d * (1.0 - v + hlo::log(v)));
    return {is_positive & fits, d * v, state};
  };
  const Value is_drawn = greater(shape, 0.0) & less(shape, kInfinity);
  const Value drawn = try_until_accepted(is_drawn, key, full_like(shape, 0), attempt);
  const Value boost = hlo::power(
      random_open_uniform(derived_key(key, ~std::uint64_t{0}), shape.dtype(), shape.dims()),
      1.0 / where(is_small, shape, 1.0));
  const Value least = full_like(shape, std::numeric_limits<float>::min());
  const Value value = hlo::maximum(where(is_small, drawn * boost, drawn), least);
  const Value certain = where(equal(shape, kInfinity), kInfinity, least);
  return convert(hlo::select(is_drawn, value, certain), self.dtype());
}

Value sample_dirichlet(Value self, Value key) {
  const DType wide = random_dtype(self.dtype());
  const Value parts = standard_gamma(convert(self, wide), key);
  const Dims last = {self.rank() - 1};
  return convert(parts / spread(reduce_sum(parts, last), parts.dims(), last), self.dtype());
}

}  // namespace

void register_random_rejection(Registry& m) {
  m.impl("poisson", poisson);
  m.impl("binomial", binomial);
  m.impl("_standard_gamma", standard_gamma);
  m.impl("_sample_dirichlet", sample_dirichlet);
}

}  // namespace torch_xla::ops

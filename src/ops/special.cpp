// Special functions: the gamma function's family, the normal distribution's, and the orthogonal
// polynomials. Bessel functions are in special_bessel.cpp.
#include "ops/special.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <span>

#include "ops/expression.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/special_tables.h"

namespace torch_xla::ops {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

template <Value (*F)(Value)>
Value floating(Value self) {
  return in_float32(F, convert(self, float_result_type({self})));
}

template <Value (*F)(Value, Value)>
Value floating_binary(Value self, Value other) {
  const std::vector<Value> v = promote_to({self, other}, float_result_type({self, other}));
  return in_float32(F, v[0], v[1]);
}

// ---- The gamma function's family ----------------------------------------------------------------

// Iterates `body` on `state` while any element of its last, a boolean, is true, but not for ever:
// what has not converged by then is beyond the dtype's resolution.
hlo::Values iterate(hlo::Values state, const hlo::Region& body, double most_steps = 1e4) {
  const Dims all = wrap_dims({}, state.back().rank());
  state.push_back(hlo::scalar(state[0].builder(), DType::kInt32, 0));
  return hlo::while_(
      state,
      [&](std::span<const Value> v) {
        return reduce_or(v[v.size() - 2], all) & less(v.back(), most_steps);
      },
      [&](std::span<const Value> v) {
        hlo::Values next = body(v);
        next.push_back(v.back() + 1);
        return next;
      });
}

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
// From here on float32 knows nothing between two integers.
constexpr double kMostIntegers = 1 << 24;
constexpr double kTwoTo63 = 0x1p63;

// What follows the terms summed one by one in the sum of (q + n)^-x, for q above x + 9, by Euler
// and Maclaurin's series, whose terms grow for a smaller one.
Value zeta_tail(Value x, Value q) {
  constexpr double kBernoulli[] = {
      1.0 / 6, -1.0 / 30,     1.0 / 42,      -1.0 / 30,       5.0 / 66,       -691.0 / 2730,
      7.0 / 6, -3617.0 / 510, 43867.0 / 798, -174611.0 / 330, 854513.0 / 138, -236364091.0 / 2730};
  const Value term = power(q, -x);
  Value sum = term * q / (x - 1.0) + term * 0.5;
  Value product = term * x / q;
  double factorial = 2;
  double k = 1;
  for (const double bernoulli : kBernoulli) {
    sum = sum + product * (bernoulli / factorial);
    product = product * (x + k) * (x + (k + 1)) / (q * q);
    factorial *= (k + 2) * (k + 3);
    k += 2;
  }
  return sum;
}

// The sum of (q + n)^-x over n >= 0.
Value hurwitz_zeta(Value x, Value q) {
  const double epsilon = x.dtype() == DType::kFloat64
                             ? kEpsilon
                             : static_cast<double>(std::numeric_limits<float>::epsilon());
  const Value is_defined =
      greater(x, 1) & (greater(q, 0) | (less_equal(q, 0) & equal(x, floor(x))));
  const Value is_pole = less_equal(q, 0) & equal(q, floor(q));
  const Value is_usual = is_defined & ~is_pole;
  const Value safe_q = where(is_usual, q, 10.0);
  const Value start = hlo::full_like(x, 0.0);
  const Value last = x + 9.0;
  const hlo::Values ends = iterate(
      {start, safe_q, less_equal(safe_q, last)},
      [&](std::span<const Value> v) {
        const Value term = power(v[1], -x);
        const Value sum = where(v[2], v[0] + term, v[0]);
        const Value next = where(v[2], v[1] + 1.0, v[1]);
        // A sum that has converged needs no tail, but the tail needs an argument that is positive.
        const Value is_negligible = less_equal(abs(term), abs(sum) * epsilon) & greater(next, 0);
        return hlo::Values{sum, next, v[2] & less_equal(next, last) & ~is_negligible};
      },
      kMostIntegers);
  const Value tail = where(greater(ends[1], last), zeta_tail(x, ends[1]), 0);
  const Value value = where(is_usual, ends[0] + tail, kNan);
  return where(equal(x, 1) | (is_pole & ~less(x, 1)), kInfinity, value);
}

// By the recurrence to x + 6 and the asymptotic series there; below 1/2 by reflection.
Value trigamma(Value x) {
  const Value is_reflected = less(x, 0.5);
  const Value sine_pi = sine(x * kPi);
  const Value reflection = -(kPi * kPi) / (sine_pi * sine_pi);
  Value y = where(is_reflected, 1.0 - x, x);
  Value sum = where(is_reflected, reflection, 0);
  for (int i = 0; i < 6; ++i) {
    sum = sum + 1.0 / (y * y);
    y = y + 1.0;
  }
  const Value square = 1.0 / (y * y);
  const Value series = square * (1.0 / 6 - square * (1.0 / 30 - square / 42.0)) + 0.5 / y + 1.0;
  sum = sum + series / y;
  return where(is_reflected, -sum, sum);
}

Value digamma_of(Value x) {
  // The pole at zero has a side.
  const Value pole = where(signbit(x), kInfinity, hlo::full_like(x, -kInfinity));
  return where(equal(x, 0), pole, hlo::digamma(x));
}

Value polygamma(std::int64_t n, Value x) {
  base::check(n >= 0, "polygamma(n, x) does not support negative n.");
  if (n == 0) return digamma_of(x);
  if (n == 1) return trigamma(x);
  const auto order = static_cast<double>(n);
  const double factor = (n % 2 == 0 ? -1 : 1) * std::tgamma(order + 1);
  return hurwitz_zeta(hlo::full_like(x, order + 1), x) * factor;
}

Value mvlgamma(Value self, std::int64_t p) {
  base::check(p >= 1, "p has to be greater than or equal to 1");
  return in_float32(
      [&](Value x) {
        // One term for each i below p, summed over a last dimension.
        Dims dims = x.dims();
        dims.push_back(p);
        const Value i = hlo::iota(x.builder(), {x.dtype(), dims}, x.rank());
        const Value terms =
            lgamma(hlo::broadcast_in_dim(x, dims, all_but(x.rank(), x.rank() + 1)) - i * 0.5);
        const auto dimension = static_cast<double>(p);
        return reduce_sum(terms, {x.rank()}) + dimension * (dimension - 1) / 4 * std::log(kPi);
      },
      convert(self, float_result_type({self})));
}

// x^a exp(-x) / gamma(a)
Value gamma_density(Value a, Value x) { return exponential(a * log(x) - x - lgamma(a)); }

// The lower function by its power series; for x up to a or 1.
Value igamma_series(Value a, Value x, Value is_active) {
  const Value one = hlo::full_like(x, 1.0);
  const hlo::Values ends = iterate({a, one, one, is_active}, [&](std::span<const Value> v) {
    const Value r = v[0] + 1.0;
    const Value term = v[1] * (x / r);
    const Value sum = v[2] + term;
    return hlo::Values{r, term, sum, v[3] & greater(term, sum * kEpsilon)};
  });
  return ends[2] * gamma_density(a, x) / a;
}

// The upper function by its continued fraction, in Lentz's form: x + 1 - a = b[0], and
// b[i] = b[i-1] + 2 with the partial numerators -i (i - a). For x above a and 1.
Value igammac_fraction(Value a, Value x, Value is_active) {
  const Value b = x + 1.0 - a;
  const Value zero = hlo::full_like(x, 0.0);
  const Value d = 1.0 / b;
  const Value c = hlo::full_like(x, 1e300);
  const hlo::Values ends = iterate({zero, b, c, d, d, is_active}, [&](std::span<const Value> v) {
    const Value i = v[0] + 1.0;
    const Value numerator = i * (a - i);
    const Value next_b = v[1] + 2.0;
    const Value next_d = 1.0 / (numerator * v[3] + next_b);
    const Value next_c = next_b + numerator / v[2];
    const Value factor = next_d * next_c;
    return hlo::Values{i,      next_b,        next_c,
                       next_d, v[4] * factor, v[5] & greater(abs(factor - 1.0), 4 * kEpsilon)};
  });
  return ends[4] * gamma_density(a, x);
}

struct IncompleteGamma {
  Value lower;
  Value upper;
};

// sum c[n] t^n
Value power_series(Value t, std::span<const double> coefficients) {
  Value sum = hlo::full_like(t, coefficients.back());
  for (std::size_t n = coefficients.size() - 1; n-- > 0;) sum = sum * t + coefficients[n];
  return sum;
}

// Where a is this large and x within 0.3 a of it, the series and the fraction take about sqrt(a)
// steps, and the density is lost in its logarithms' rounding: Temme's expansion (DLMF 8.12).
constexpr double kTemmeLeast = 1000;
IncompleteGamma temme(Value a, Value x) {
  // From log(1 + mu) = 2 atanh(s), and what of atanh(s) / s^3 follows 1 / s^2.
  constexpr double kAtanh[] = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11,
                               1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21};
  const Value mu = (x - a) / a;
  const Value s = mu / (mu + 2.0);
  const Value quotient = 1.0 / (1.0 - s) - s * power_series(s * s, kAtanh);
  const Value eta = s * 2.0 * sqrt(quotient);
  Value sum = power_series(eta, kTemme3);
  const std::span<const double> lower_terms[] = {kTemme2, kTemme1, kTemme0};
  for (const std::span<const double> c : lower_terms) {
    sum = sum / a + power_series(eta, c);
  }
  const Value rest = exponential(s * s * quotient * a * -2.0) / sqrt(a * (2 * kPi)) * sum;
  const Value scaled = eta * sqrt(a * 0.5);
  return {.lower = erfc(-scaled) * 0.5 - rest, .upper = erfc(scaled) * 0.5 + rest};
}

// In float64 throughout: the density is a small difference of large logarithms.
IncompleteGamma incomplete_gamma(Value a, Value x) {
  const Value is_usual = greater(a, 0) & greater(x, 0) & less(a, kInfinity) & less(x, kInfinity);
  const Value is_large = is_usual & greater(a, kTemmeLeast) & less(abs(x - a), a * 0.3);
  const Value by_fraction = is_usual & ~is_large & greater(x, 1.0) & greater(x, a);
  const Value by_series = is_usual & ~is_large & ~by_fraction;
  const Value safe_a = where(is_usual, a, 1.0);
  const Value safe_x = where(is_usual, x, 1.0);
  const Value series = igamma_series(safe_a, safe_x, by_series);
  // Where the series serves, a fraction that is harmless.
  const Value fraction = igammac_fraction(where(by_fraction, safe_a, 1.0),
                                          where(by_fraction, safe_x, 2.0), by_fraction);
  const IncompleteGamma large =
      temme(where(is_large, a, kTemmeLeast), where(is_large, x, kTemmeLeast));
  const Value lower = where(is_large, large.lower, where(by_series, series, 1.0 - fraction));
  const Value upper = where(is_large, large.upper, where(by_series, 1.0 - series, fraction));

  const Value a_is_infinite = equal(a, kInfinity);
  const Value x_is_infinite = equal(x, kInfinity);
  const Value is_undefined =
      less(a, 0) | less(x, 0) | (a_is_infinite & x_is_infinite) | (equal(a, 0) & ~greater(x, 0));
  const Value is_none = equal(x, 0) | a_is_infinite;
  const Value is_whole = equal(a, 0) | x_is_infinite;
  const auto finished = [&](Value usual, double none, double whole) {
    const Value limit = where(is_whole, whole, hlo::full_like(x, kNan));
    const Value value = where(is_usual, usual, where(is_none, none, limit));
    return where(is_undefined, kNan, value);
  };
  return {finished(lower, 0, 1), finished(upper, 1, 0)};
}

Value igamma(Value a, Value x) {
  const auto wide = [](Value v) { return convert(v, DType::kFloat64); };
  return convert(incomplete_gamma(wide(a), wide(x)).lower, a.dtype());
}

Value igammac(Value a, Value x) {
  const auto wide = [](Value v) { return convert(v, DType::kFloat64); };
  return convert(incomplete_gamma(wide(a), wide(x)).upper, a.dtype());
}

// ---- The normal distribution --------------------------------------------------------------------

Value entr(Value x) {
  const Value value = where(greater(x, 0), -x * log(x), -kInfinity);
  return where(is_nan(x), x, where(equal(x, 0), 0, value));
}

// erfcx of x >= 0.
Value erfcx_positive(Value x) {
  const Value finite = min(x, 1e30);
  return chebyshev_series((finite - 3.75) / (finite + 3.75), kErfcx) / (x * 2.0 + 1.0);
}

// The lower tail, p <= 1/2, by Newton's steps on the logarithm, where they converge at once.
Value ndtri_tail(Value p) {
  const Value log_p = log(p);
  const Value depth = sqrt(log_p * -2.0);
  Value x = (log(depth) + 0.5 * std::log(2 * kPi)) / depth - depth;
  const int steps = p.dtype() == DType::kFloat64 ? 4 : 3;
  for (int i = 0; i < steps; ++i) {
    // ndtr(x) / density(x)
    const Value ratio = erfcx_positive(x * -std::sqrt(0.5)) * std::sqrt(kPi / 2);
    const Value log_value = log(ratio) - x * x * 0.5 - 0.5 * std::log(2 * kPi);
    x = x - (log_value - log_p) * ratio;
  }
  return x;
}

Value erfcx(Value x) {
  const Value positive = erfcx_positive(abs(x));
  return where(less(x, 0), exponential(x * x) * 2.0 - positive, positive);
}

Value log_ndtr(Value x) {
  const Value scaled = x * std::sqrt(0.5);
  const Value tail = log(erfcx_positive(max(-scaled, 0)) * 0.5) - scaled * scaled;
  return where(less(x, -1), tail, log_plus_one(erfc(scaled) * -0.5));
}

Value ndtri(Value p) {
  const Value is_upper = greater(p, 0.5);
  const Value q = where(is_upper, 1.0 - p, p);
  const Value center = erf_inv(q * 2.0 - 1.0) * std::numbers::sqrt2;
  const Value lower = where(less(q, 0.1), ndtri_tail(min(q, 0.1)), center);
  const Value value = where(is_upper, -lower, lower);
  const Value limit = where(equal(p, 0), -kInfinity, where(equal(p, 1), kInfinity, value));
  return where(less(p, 0) | greater(p, 1), kNan, limit);
}

// ---- Orthogonal polynomials ---------------------------------------------------------------------

// What follows P(k-1) and P(k) in the sequence.
using Recurrence = Value (*)(Value x, Value k, Value previous, Value current);

// P(n) for P(0) = 1 and P(1) = `first`; 0 for negative n, NaN for one that no float32 counts up to.
// As many steps as the greatest n asks for.
Value polynomial(Value x, Value n, Value first, Recurrence next) {
  const Value degree = trunc(n);
  const Value one = hlo::full_like(x, 1.0);
  const Value is_countable = less(degree, kMostIntegers);
  const Value is_integer = less(degree, kTwoTo63);  // others are negative to the CPU
  const Value rest = where(is_integer & ~is_countable, kNan, hlo::full_like(x, 0));
  const Value result = where(equal(degree, 0), one, where(equal(degree, 1), first, rest));
  const hlo::Values ends = iterate(
      {one, one, first, result, greater(degree, 1) & is_countable},
      [&](std::span<const Value> v) {
        const Value following = next(x, v[0], v[1], v[2]);
        const Value k = v[0] + 1.0;
        return hlo::Values{k, v[2], following, where(equal(degree, k), following, v[3]),
                           v[4] & greater(degree, k)};
      },
      kMostIntegers);
  return ends[3];
}

Value chebyshev_next(Value x, Value, Value previous, Value current) {
  return x * 2.0 * current - previous;
}
Value hermite_h_next(Value x, Value k, Value previous, Value current) {
  return x * 2.0 * current - k * 2.0 * previous;
}
Value hermite_he_next(Value x, Value k, Value previous, Value current) {
  return x * current - k * previous;
}
Value laguerre_next(Value x, Value k, Value previous, Value current) {
  return ((k * 2.0 + 1.0 - x) * current - k * previous) / (k + 1.0);
}
Value legendre_next(Value x, Value k, Value previous, Value current) {
  return ((k * 2.0 + 1.0) * x * current - k * previous) / (k + 1.0);
}

// The first polynomial is `Slope` x + `Offset`, of x or, if `IsShifted`, of 2x - 1.
template <Recurrence Next, int Slope, int Offset, bool IsShifted = false>
Value orthogonal(Value x, Value n) {
  if (IsShifted) x = x * 2.0 - 1.0;
  return polynomial(x, n, x * static_cast<double>(Slope) + static_cast<double>(Offset), Next);
}

template <Value (*F)(Value, Value)>
void register_polynomial(Registry& m, const std::string& name) {
  for (const char* overload : {"", ".x_scalar", ".n_scalar"}) {
    m.impl(base::str("special_", name, overload), floating_binary<F>);
  }
}

void register_polynomials(Registry& m) {
  register_polynomial<orthogonal<chebyshev_next, 1, 0>>(m, "chebyshev_polynomial_t");
  register_polynomial<orthogonal<chebyshev_next, 2, 0>>(m, "chebyshev_polynomial_u");
  register_polynomial<orthogonal<chebyshev_next, 2, -1>>(m, "chebyshev_polynomial_v");
  register_polynomial<orthogonal<chebyshev_next, 2, 1>>(m, "chebyshev_polynomial_w");
  register_polynomial<orthogonal<chebyshev_next, 1, 0, true>>(m, "shifted_chebyshev_polynomial_t");
  register_polynomial<orthogonal<chebyshev_next, 2, 0, true>>(m, "shifted_chebyshev_polynomial_u");
  register_polynomial<orthogonal<chebyshev_next, 2, -1, true>>(m, "shifted_chebyshev_polynomial_v");
  register_polynomial<orthogonal<chebyshev_next, 2, 1, true>>(m, "shifted_chebyshev_polynomial_w");
  register_polynomial<orthogonal<hermite_h_next, 2, 0>>(m, "hermite_polynomial_h");
  register_polynomial<orthogonal<hermite_he_next, 1, 0>>(m, "hermite_polynomial_he");
  register_polynomial<orthogonal<laguerre_next, -1, 1>>(m, "laguerre_polynomial_l");
  register_polynomial<orthogonal<legendre_next, 1, 0>>(m, "legendre_polynomial_p");
}

}  // namespace

void register_special(Registry& m) {
  m.impl("digamma", floating<digamma_of>);
  const auto polygamma_of = [](std::int64_t n, Value self) {
    return in_float32([&](Value x) { return polygamma(n, x); },
                      convert(self, float_result_type({self})));
  };
  m.impl("polygamma", polygamma_of);
  m.impl("polygamma_", [=](Value self, std::int64_t n) { return polygamma_of(n, self); });
  m.impl("mvlgamma", mvlgamma);
  m.impl({"special_zeta", "special_zeta.self_scalar", "special_zeta.other_scalar"},
         floating_binary<hurwitz_zeta>);
  m.impl("igamma", floating_binary<igamma>);
  m.impl("igammac", floating_binary<igammac>);
  m.impl("special_entr", floating<entr>);
  m.impl("special_erfcx", floating<erfcx>);
  m.impl("special_log_ndtr", floating<log_ndtr>);
  m.impl("special_ndtri", floating<ndtri>);
  register_polynomials(m);
}

}  // namespace torch_xla::ops

// Bessel functions of the orders 0 and 1, each by a Chebyshev series near zero and one far from it
// (see tools/special_tables.py).
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/expression.h"
#include "ops/reduce.h"
#include "ops/special.h"
#include "ops/special_tables.h"

namespace torch_xla::ops {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Where the ordinary and the modified functions change their series.
constexpr double kFar = 8;
constexpr double kModifiedFar = 2;

// From u in [0, limit] to t in [-1, 1].
Value interval(Value u, double limit) { return u * (2 / limit) - 1.0; }

// ---- Modified functions of the first kind -------------------------------------------------------

// By the series for exp(-x) I(x) near zero and for sqrt(x) exp(-x) I(x) far from it, x >= 0.
Value i_scaled(Value x, std::span<const double> near, std::span<const double> far, bool is_odd) {
  const Value close = chebyshev_series(interval(min(x, kFar), kFar), near);
  const Value clipped = max(x, kFar);
  const Value distant = chebyshev_series(interval(kFar / clipped, 1), far) * rsqrt(clipped);
  return where(less(x, kFar), is_odd ? close * x : close, distant);
}

Value i0e(Value x) { return i_scaled(abs(x), kI0Near, kI0Far, false); }

Value i1e(Value x) {
  const Value value = i_scaled(abs(x), kI1Near, kI1Far, true);
  return where(less(x, 0), -value, value);
}

}  // namespace

Value bessel_i0(Value x) { return exponential(abs(x)) * i0e(x); }

namespace {

Value i1(Value x) { return exponential(abs(x)) * i1e(x); }

// ---- Modified functions of the second kind ------------------------------------------------------

// exp(x) K(x): infinite at 0, undefined below.
Value k_scaled(Value x, int order) {
  const Value near_x = min(x, kModifiedFar);
  const Value t = interval(near_x * near_x, kModifiedFar * kModifiedFar);
  const Value log_half = log(near_x * 0.5);
  const Value near = order == 0 ? chebyshev_series(t, kK0Near) - log_half * bessel_i0(near_x)
                                : chebyshev_series(t, kK1Near) / near_x + log_half * i1(near_x);
  const Value far_x = max(x, kModifiedFar);
  const Value far_t = interval(kModifiedFar / far_x, 1);
  const Value far = order == 0 ? chebyshev_series(far_t, kK0Far) : chebyshev_series(far_t, kK1Far);
  const Value value =
      where(less_equal(x, kModifiedFar), near * exponential(near_x), far * rsqrt(far_x));
  return where(equal(x, 0), kInfinity, where(less(x, 0), std::nan(""), value));
}

template <int Order>
Value scaled_bessel_k(Value x) {
  return k_scaled(x, Order);
}
template <int Order>
Value bessel_k(Value x) {
  return k_scaled(x, Order) * exponential(-x);
}

// ---- Functions of the first and second kind -----------------------------------------------------

// Amplitudes and phase of the far series: sqrt(2 / (pi x)) (p cos(phase) -/+ q sin(phase)).
struct Far {
  Value p;
  Value q;
  Value phase;
  Value scale;
};

Far far_series(Value x, int order) {
  const Value ratio = kFar / x;
  const Value t = interval(ratio * ratio, 1);
  return {.p = order == 0 ? chebyshev_series(t, kP0) : chebyshev_series(t, kP1),
          .q = ratio * (order == 0 ? chebyshev_series(t, kQ0) : chebyshev_series(t, kQ1)),
          .phase = x - (kPi / 4 + order * kPi / 2),
          .scale = sqrt((2 / kPi) / x)};
}

// J of x in [0, 8].
Value j_near(Value x, int order) {
  const Value t = interval(x * x, kFar * kFar);
  return order == 0 ? chebyshev_series(t, kJ0Near) : x * chebyshev_series(t, kJ1Near);
}

template <int Order>
Value bessel_j(Value x) {
  const Value magnitude = abs(x);
  const Value near = j_near(min(magnitude, kFar), Order);
  const Far far = far_series(max(magnitude, kFar), Order);
  const Value distant = far.scale * (far.p * cosine(far.phase) - far.q * sine(far.phase));
  const Value value = where(less_equal(magnitude, kFar), near, distant);
  return Order == 0 ? value : where(less(x, 0), -value, value);
}

// Minus infinity at 0, undefined below.
template <int Order>
Value bessel_y(Value x) {
  const Value near_x = min(x, kFar);
  const Value t = interval(near_x * near_x, kFar * kFar);
  const Value log_part = log(near_x) * j_near(near_x, Order);
  const Value near =
      Order == 0 ? chebyshev_series(t, kY0Near) + log_part * (2 / kPi)
                 : near_x * chebyshev_series(t, kY1Near) + (log_part - 1.0 / near_x) * (2 / kPi);
  const Far far = far_series(max(x, kFar), Order);
  const Value distant = far.scale * (far.p * sine(far.phase) + far.q * cosine(far.phase));
  const Value value = where(less_equal(x, kFar), near, distant);
  return where(equal(x, 0), -kInfinity, where(less(x, 0), std::nan(""), value));
}

Value spherical_bessel_j0(Value x) {
  const Value square = x * x;
  // sin(x) / x by its power series, where the quotient would lose digits.
  const Value end = 1.0 - square / 72.0 * (1.0 - square / 110.0 * (1.0 - square / 156.0));
  const Value series = 1.0 - square / 6.0 * (1.0 - square / 20.0 * (1.0 - square / 42.0 * end));
  const Value value = where(less(abs(x), 0.5), series, sine(x) / x);
  return where(equal(abs(x), kInfinity), 0, value);
}

// Ai by its series on [-4, 1.5], by its decay above and by its oscillation below.
Value airy_ai(Value x) {
  constexpr double kLow = -4;
  constexpr double kHigh = 1.5;
  const Value near_x = min(max(x, kLow), kHigh);
  const Value near = chebyshev_series((near_x - kLow) * (2 / (kHigh - kLow)) - 1.0, kAiryNear);

  const Value far_x = max(x, kHigh);
  const Value far_root = sqrt(far_x);
  const Value far_power = far_x * far_root;
  const double high_power = kHigh * std::sqrt(kHigh);
  const Value decay = exponential(far_power * (-2.0 / 3)) * rsqrt(far_root) / (2 * std::sqrt(kPi));
  const Value far = decay * chebyshev_series(interval(high_power / far_power, 1), kAiryFar);

  const Value z = max(-x, -kLow);
  const Value z_root = sqrt(z);
  const Value z_power = z * z_root;
  const Value ratio = -kLow * std::sqrt(-kLow) / z_power;
  const Value t = interval(ratio * ratio, 1);
  const Value theta = z_power * (2.0 / 3) + kPi / 4;
  const Value oscillation = sine(theta) * chebyshev_series(t, kAirySine) -
                            cosine(theta) * ratio * chebyshev_series(t, kAiryCosine);
  const Value below = oscillation * rsqrt(z_root) / std::sqrt(kPi);

  const Value value = where(less(x, kLow), below, where(greater(x, kHigh), far, near));
  return where(equal(abs(x), kInfinity), std::nan(""), value);
}

template <Value (*F)(Value)>
Value floating(Value self) {
  return in_float32(F, convert(self, float_result_type({self})));
}

}  // namespace

Value chebyshev_series(Value t, std::span<const double> coefficients) {
  // Clenshaw's recurrence. What is below float32's resolution is left out there.
  const double cutoff = t.dtype() == DType::kFloat64 ? 0 : 3e-9;
  double largest = 0;
  for (const double c : coefficients) largest = std::max(largest, std::abs(c));
  std::size_t n = coefficients.size();
  while (n > 2 && std::abs(coefficients[n - 1]) < cutoff * largest) --n;
  const Value twice = t * 2.0;
  Value next = hlo::full_like(t, coefficients[n - 1]);
  Value current = twice * coefficients[n - 1] + coefficients[n - 2];
  for (std::size_t k = n - 2; k-- > 0;) {
    const Value factor = k == 0 ? t : twice;
    const Value previous = factor * current - next + coefficients[k];
    next = current;
    current = previous;
  }
  return current;
}

void register_special_bessel(Registry& m) {
  m.impl({"i0", "special_modified_bessel_i0"}, floating<bessel_i0>);
  m.impl("special_i0e", floating<i0e>);
  m.impl({"special_i1", "special_modified_bessel_i1"}, floating<i1>);
  m.impl("special_i1e", floating<i1e>);
  m.impl("special_modified_bessel_k0", floating<bessel_k<0>>);
  m.impl("special_modified_bessel_k1", floating<bessel_k<1>>);
  m.impl("special_scaled_modified_bessel_k0", floating<scaled_bessel_k<0>>);
  m.impl("special_scaled_modified_bessel_k1", floating<scaled_bessel_k<1>>);
  m.impl("special_bessel_j0", floating<bessel_j<0>>);
  m.impl("special_bessel_j1", floating<bessel_j<1>>);
  m.impl("special_bessel_y0", floating<bessel_y<0>>);
  m.impl("special_bessel_y1", floating<bessel_y<1>>);
  m.impl("special_airy_ai", floating<airy_ai>);
  m.impl("special_spherical_bessel_j0", floating<spherical_bessel_j0>);
}

}  // namespace torch_xla::ops

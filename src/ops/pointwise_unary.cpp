// Elementwise operators of one tensor: rounding, predicates, powers, exponentials, trigonometry,
// and conversions. Activations are in activation.cpp, functions of mathematical physics in
// special.cpp.
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/expression.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

constexpr double kPi = std::numbers::pi;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

using UnaryFunction = Value (*)(Value);

// `F` of a floating or complex value; integers become float32.
template <UnaryFunction F>
Value floating(Value self) {
  return F(convert(self, float_result_type({self})));
}

// The same where `F` is a formula of several roundings.
template <UnaryFunction F>
Value floating_formula(Value self) {
  return in_float32(F, convert(self, float_result_type({self})));
}

// `F` of floats; integers are what it would give already.
template <UnaryFunction F>
Value rounding(Value self) {
  return base::is_integral(self.dtype()) ? self : F(self);
}

// `F`, whose value at the conjugate of a complex number is the conjugate. XLA's formulas lose the
// sign of an imaginary part of zero, by which PyTorch's choose the side of a branch cut.
template <UnaryFunction F>
Value mirrored(Value x) {
  if (!base::is_complex(x.dtype())) return F(x);
  const Value above = F(complex(real(x), abs(imag(x))));
  const Value part = imag(above);
  return complex(real(above), where(signbit(imag(x)), -part, part));
}

// The sine's inverse, turned by a right angle as its branch cuts are.
Value asinh(Value x) {
  if (!base::is_complex(x.dtype())) return hlo::asinh(x);
  const Value turned = mirrored<hlo::asin>(complex(-imag(x), real(x)));
  return complex(imag(turned), -real(turned));
}

// `F` of each part: XLA's quotient of complex numbers makes NaN of infinity and zero.
template <UnaryFunction F>
Value by_parts(Value x) {
  return base::is_complex(x.dtype()) ? complex(F(real(x)), F(imag(x))) : F(x);
}

Value everywhere(Value like, bool value) {
  return hlo::full(like.builder(), {DType::kBool, like.dims()}, value);
}

// ---- Signs and predicates -----------------------------------------------------------------------

Value abs_of(Value self) {
  check_implemented(self.dtype() != DType::kBool, "abs_cpu", self.dtype());
  if (base::is_complex(self.dtype())) return hypotenuse(real(self), imag(self));
  const bool is_unsigned =
      base::is_integral(self.dtype()) && !base::is_signed_integral(self.dtype());
  return is_unsigned ? self : abs(self);
}

// By its bits: a comparison would take a subnormal number for zero, and in some fusions a NaN for a
// number.
Value sign_of_float(Value self) {
  const Value bits = float_bits(self);
  const Value magnitude = bits & ~hlo::lowest(self.builder(), bits.type());
  const Value infinity = float_bits(hlo::full_like(self, kInfinity));
  const Value has_none = equal(magnitude, 0) | greater(magnitude, infinity);
  const Value ones = hlo::full_like(self, 1);
  return where(has_none, 0, where(less(bits, 0), -1, ones));
}

Value sign_of(Value self) {
  if (self.dtype() == DType::kBool) return self;
  if (base::kind_of(self.dtype()) == base::DTypeKind::kUnsigned) {
    return convert(not_equal(self, 0), self.dtype());
  }
  const bool has_infinity = base::is_floating(self.dtype()) && base::size_bytes(self.dtype()) > 1;
  return has_infinity ? sign_of_float(self) : sign(self);
}

Value logical_not(Value self) { return ~convert(self, DType::kBool); }

Value is_infinite(Value self) {
  if (base::is_integral(self.dtype())) return everywhere(self, false);
  if (base::is_complex(self.dtype())) {
    return equal(abs(real(self)), kInfinity) | equal(abs(imag(self)), kInfinity);
  }
  return equal(abs(self), kInfinity);
}

template <int Sign>
Value is_infinity(Value self) {
  if (base::is_integral(self.dtype())) return everywhere(self, false);
  return equal(self, Sign * kInfinity);
}

Value angle(Value self) {
  if (base::is_complex(self.dtype())) return atan2(imag(self), real(self));
  const Value x = convert(self, float_result_type({self}));
  return where(is_nan(x), x, where(less(x, 0), kPi, hlo::full_like(x, 0)));
}

Value conj_of(Value self) { return base::is_complex(self.dtype()) ? conj(self) : self; }

// ---- Rounding -----------------------------------------------------------------------------------

Value frac(Value self) { return self - trunc(self); }

Value round_decimals(Value self, std::int64_t decimals) {
  if (decimals == 0) return rounding<hlo::round_nearest_even>(self);
  check_implemented(base::is_floating(self.dtype()), "round_cpu", self.dtype());
  const double scale = std::pow(10.0, std::abs(static_cast<double>(decimals)));
  return in_float32(
      [&](Value x) {
        return decimals > 0 ? round_nearest_even(x * scale) / scale
                            : round_nearest_even(x / scale) * scale;
      },
      self);
}

// The mantissa in [0.5, 1) and the exponent; zeros, infinities and NaNs are their own mantissa. All
// of it with integers: in arithmetic a subnormal number is zero.
std::tuple<Value, Value> frexp(Value self) {
  const DType dtype = self.dtype();
  check_implemented(base::is_floating(dtype), "frexp", dtype);
  const Value x = convert(self, accumulate_dtype(dtype));
  const bool is_double = x.dtype() == DType::kFloat64;
  const int mantissa_bits = is_double ? 52 : 23;
  const std::int64_t greatest_exponent = is_double ? 0x7FF : 0xFF;
  const double half = static_cast<double>(greatest_exponent / 2 - 1);  // the exponent of 0.5

  const Value bits = float_bits(x);
  const auto number = [&](std::int64_t value) { return hlo::full_like(bits, value); };
  const Value exponent_bits =
      shift_right_logical(bits, number(mantissa_bits)) & number(greatest_exponent);
  const Value mantissa_mask = number((std::int64_t{1} << mantissa_bits) - 1);
  const Value fraction = bits & mantissa_mask;
  const Value is_subnormal = equal(exponent_bits, 0);
  // How far the first one of a subnormal number is from where a normal one has its own, unwritten.
  const double unused = 8 * base::size_bytes(x.dtype()) - mantissa_bits - 1;
  const Value shift = hlo::count_leading_zeros(fraction) - unused;
  const Value lifted = hlo::shift_left(fraction, shift) & mantissa_mask;

  const Value exponent = where(is_subnormal, 1.0 - shift, exponent_bits) - half;
  const Value sign = bits & hlo::lowest(x.builder(), bits.type());
  const Value half_bits = number(static_cast<std::int64_t>(half) << mantissa_bits);
  const Value mantissa =
      bitcast_convert(sign | half_bits | where(is_subnormal, lifted, fraction), x.dtype());
  const Value is_zero = is_subnormal & equal(fraction, 0);
  const Value is_plain =
      ~is_zero & not_equal(exponent_bits, static_cast<double>(greatest_exponent));
  return {convert(where(is_plain, mantissa, x), dtype),
          convert(where(is_plain, exponent, 0), DType::kInt32)};
}

// ---- Powers, exponentials and logarithms --------------------------------------------------------

Value reciprocal(Value x) { return 1.0 / x; }
// XLA's series loses float32's digits to cancellation near 1 and 2, where the result is 0.
Value log_gamma(Value x) { return convert(hlo::lgamma(convert(x, DType::kFloat64)), x.dtype()); }
Value exp2(Value x) {
  if (base::is_complex(x.dtype())) return exponential(x * std::numbers::ln2);
  return power(hlo::full_like(x, 2.0), x);
}
Value over_ln2(Value x) { return x / std::numbers::ln2; }
Value over_ln10(Value x) { return x / std::numbers::ln10; }
Value log2(Value x) { return by_parts<over_ln2>(log(x)); }
Value log10(Value x) { return by_parts<over_ln10>(log(x)); }
Value deg2rad(Value x) { return x * (kPi / 180); }
Value rad2deg(Value x) { return x * (180 / kPi); }

// XLA's function squares what is left of a complex number near -1.
Value log1p(Value z) {
  const Value next = mirrored<hlo::log_plus_one>(z);
  if (!base::is_complex(z.dtype())) return next;
  const Value rest = complex(real(z) + 1.0, imag(z));
  const Value is_near = less(abs(real(rest)), 0.5) & less(abs(imag(rest)), 0.5);
  return where(is_near, log(rest), next);
}

// Where the first is 0, the second may be infinite.
Value product_with_zero(Value x, Value factor) {
  return x * where(equal(x, 0) & is_infinite(factor), hlo::sign(factor), factor);
}

// Half of exp(x), where that is finite. XLA's hyperbolic functions take it for exp(x - log(2)), of
// which a difference of one rounding is x roundings.
Value half_exponential(Value x) {
  const Value root = exponential(x * 0.5);
  return root * 0.5 * root;
}
Value real_cosh(Value x) {
  const Value half = half_exponential(abs(x));
  return half + 0.25 / half;
}
Value real_sinh(Value x) {
  const Value half = half_exponential(abs(x));
  const Value large = half - 0.25 / half;
  return where(less(abs(x), 1), hlo::sinh(x), where(signbit(x), -large, large));
}

// Of complex numbers by parts, as C's functions have them: XLA takes a hyperbolic sine for the
// difference of two exponentials, which leaves little but rounding of a small one.
Value sin(Value z) {
  if (!base::is_complex(z.dtype())) return hlo::sine(z);
  const Value x = real(z);
  const Value y = imag(z);
  return complex(product_with_zero(sine(x), real_cosh(y)), cosine(x) * real_sinh(y));
}
Value cos(Value z) {
  if (!base::is_complex(z.dtype())) return hlo::cosine(z);
  const Value x = real(z);
  const Value y = imag(z);
  return complex(cosine(x) * real_cosh(y), -product_with_zero(sine(x), real_sinh(y)));
}
// The same functions, turned by a right angle.
Value sinh(Value z) {
  if (!base::is_complex(z.dtype())) return real_sinh(z);
  const Value turned = sin(complex(-imag(z), real(z)));
  return complex(imag(turned), -real(turned));
}
Value cosh(Value z) {
  if (!base::is_complex(z.dtype())) return real_cosh(z);
  return cos(complex(-imag(z), real(z)));
}

Value truncated(Value x) { return in_float32(trunc, x); }

Value sinc(Value x) {
  const Value angle = x * kPi;
  return where(equal(x, 0), 1, sin(angle) / angle);
}

// log(x / (1 - x)), with x kept `eps` away from 0 and 1 where that is given.
Value logit(Value self, std::optional<double> eps) {
  check_implemented(!base::is_complex(self.dtype()), "logit_cpu", self.dtype());
  return in_float32(
      [&](Value x) {
        // In this order: the least may be above the greatest.
        if (eps.has_value() && *eps >= 0) {
          x = where(less(x, *eps), *eps, where(greater(x, 1 - *eps), 1 - *eps, x));
        }
        return log(x / (1.0 - x));
      },
      convert(self, float_result_type({self})));
}

Value nan_to_num_real(Value x, std::optional<double> nan, std::optional<double> posinf,
                      std::optional<double> neginf) {
  const double greatest = greatest_finite(x.dtype());
  const Value lower = where(equal(x, -kInfinity), neginf.value_or(-greatest), x);
  const Value finite = where(equal(x, kInfinity), posinf.value_or(greatest), lower);
  return where(is_nan(x), nan.value_or(0), finite);
}

Value nan_to_num(Value self, std::optional<double> nan, std::optional<double> posinf,
                 std::optional<double> neginf) {
  if (base::is_integral(self.dtype())) return self;
  if (!base::is_complex(self.dtype())) return nan_to_num_real(self, nan, posinf, neginf);
  return complex(nan_to_num_real(real(self), nan, posinf, neginf),
                 nan_to_num_real(imag(self), nan, posinf, neginf));
}

// ---- Copies -------------------------------------------------------------------------------------

Value same(Value self) { return self; }
Value zero(Value self) { return hlo::full_like(self, 0); }

Value fill(Value self, Value value) {
  base::check(value.rank() == 0,
              "fill_ only supports 0-dimension value tensor but got tensor with ", value.rank(),
              " dimensions.");
  return copy(self, value);
}

constexpr UnaryOperator kUnaryOperators[] = {
    {"abs", abs_of},
    {"acos", floating_formula<mirrored<hlo::acos>>},
    {"acosh", floating_formula<mirrored<hlo::acosh>>},
    {"angle", angle},
    {"asin", floating_formula<mirrored<hlo::asin>>},
    {"asinh", floating_formula<asinh>},
    {"atan", floating_formula<hlo::atan>},
    {"atanh", floating_formula<mirrored<hlo::atanh>>},
    {"bitwise_not", hlo::not_},
    {"ceil", rounding<hlo::ceil>},
    {"_conj_physical", conj_of},
    {"conj_physical_", conj_of, Repeats::kAllowed},
    {"cos", floating<cos>},
    {"cosh", floating_formula<cosh>},
    {"deg2rad", floating_formula<deg2rad>},
    {"erf", floating_formula<error_function>},
    {"erfc", floating_formula<hlo::erfc>},
    {"erfinv", floating_formula<hlo::erf_inv>},
    {"exp", floating<hlo::exponential>},
    {"exp2", floating_formula<exp2>},
    {"expm1", floating_formula<hlo::exponential_minus_one>},
    {"floor", rounding<hlo::floor>},
    {"frac", frac},
    {"isinf", is_infinite},
    {"isnan", is_nan},
    {"isneginf", is_infinity<-1>},
    {"isposinf", is_infinity<1>},
    {"lift", same},
    {"lift_fresh_copy", same},
    {"lgamma", floating_formula<log_gamma>},
    {"log", floating<hlo::log>},
    {"log10", floating_formula<log10>},
    {"log1p", floating_formula<log1p>},
    {"log2", floating_formula<log2>},
    {"logical_not", logical_not},
    {"neg", hlo::negate},
    {"rad2deg", floating_formula<rad2deg>},
    {"reciprocal", floating<reciprocal>},
    {"round", rounding<hlo::round_nearest_even>},
    {"rsqrt", floating_formula<reciprocal_root>},
    {"sgn", sign_of},
    {"sigmoid", floating_formula<hlo::logistic>},
    {"sign", sign_of},
    {"signbit", signbit},
    {"sin", floating<sin>},
    {"sinc", floating_formula<sinc>},
    {"sinh", floating_formula<sinh>},
    {"sqrt", floating_formula<square_root>},
    {"tan", floating<hlo::tan>},
    {"tanh", floating<hlo::tanh>},
    {"trunc", rounding<truncated>},
    {"zero", zero, Repeats::kAllowed},
};

// A conversion that the user asked for. Where StableHLO brings a float to the nearest integer that
// there is, PyTorch's kernels do as the processor: what int32 (or int64) can't hold becomes its
// least value, and narrower types take the low bits. float8_e4m3fn, which has no infinity, takes
// its greatest number for what it can't hold.
Value cast(Value x, DType dtype) {
  constexpr DType kNarrow = DType::kFloat8E4M3FN;
  if (dtype == x.dtype()) return x;
  if (dtype == kNarrow && !base::is_complex(x.dtype())) {
    const double limit = greatest_finite(kNarrow);
    const Value wide = convert(x, DType::kFloat32);
    return convert(hlo::clamp(scalar(x.builder(), DType::kFloat32, -limit), wide,
                              scalar(x.builder(), DType::kFloat32, limit)),
                   dtype);
  }
  if (x.dtype() == kNarrow) x = convert(x, DType::kFloat32);
  if (!base::is_floating(x.dtype()) || !base::is_integral(dtype) || dtype == DType::kBool) {
    return convert(x, dtype);
  }
  const int size = base::size_bytes(dtype);
  const DType wide = size == 8 || dtype == DType::kUInt32 ? DType::kInt64 : DType::kInt32;
  const Value held = convert(x, wide);
  const Value least = hlo::broadcast_in_dim(lowest(x.builder(), wide), x.dims(), {});
  const Value low_bits =
      convert(where(less(x, wide == DType::kInt64 ? 0x1p63 : 0x1p31), held, least), dtype);
  if (dtype != DType::kUInt64) return low_bits;
  return where(less(x, 0), low_bits, convert(x, dtype));
}

}  // namespace

std::span<const UnaryOperator> unary_operators() { return kUnaryOperators; }

double greatest_finite(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return 65504;
    case DType::kBFloat16: return std::ldexp(255.0, 120);
    case DType::kFloat8E5M2: return 57344;
    case DType::kFloat8E4M3FN: return 448;
    case DType::kFloat64: return std::numeric_limits<double>::max();
    default: return static_cast<double>(std::numeric_limits<float>::max());
  }
}

Value square_root(Value x) { return mirrored<hlo::sqrt>(x); }
Value reciprocal_root(Value x) { return mirrored<hlo::rsqrt>(x); }

Value signbit(Value value) {
  const DType dtype = value.dtype();
  if (base::is_integral(dtype)) {
    return base::is_signed_integral(dtype) ? less(value, 0) : everywhere(value, false);
  }
  if (base::is_complex(dtype)) return less(value, 0);  // which refuses them
  return less(float_bits(value), 0);
}

Value float_bits(Value value) {
  if (base::is_complex(value.dtype())) return bitcast_convert(value, DType::kInt64);  // refuses
  constexpr std::array kIntegers = {DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64};
  const auto log2_size = static_cast<std::size_t>(
      std::countr_zero(static_cast<unsigned>(base::size_bytes(value.dtype()))));
  return bitcast_convert(value, kIntegers[log2_size]);
}

Value error_function(Value x) {
  if (x.dtype() != DType::kFloat32) return hlo::erf(x);
  const Value limit = where(less(x, 0), -1, hlo::full_like(x, 1));
  return where(greater(hlo::abs(x), 3.92), limit, hlo::erf(x));
}

Value trunc(Value value) { return where(less(value, 0), ceil(value), floor(value)); }

Value copy(Value self, Value source) {
  return broadcast_to(cast(source, self.dtype()), self.dims());
}

void register_pointwise_unary(Registry& m) {
  for (const UnaryOperator& op : kUnaryOperators) {
    const bool is_zero = op.name == "zero";
    m.impl(std::string(op.name), op.emit,
           {.repeats = op.repeats,
            .constant = is_zero ? graph::Constant::kZero : graph::Constant::kNone,
            .overwrites = is_zero});
  }
  m.impl("logit", logit);
  m.impl("nan_to_num", nan_to_num, {.repeats = Repeats::kAllowed});  // of integers: see its check
  m.impl("round.decimals", round_decimals);
  m.impl("frexp.Tensor", frexp);
  m.impl(
      {"fill.Scalar", "fill.Tensor"}, fill,
      {.repeats = Repeats::kAllowed, .constant = graph::Constant::kArgument, .overwrites = true});
  m.impl("copy", copy, {.overwrites = true});
  m.impl("_to_copy", [](Value self, std::optional<DType> dtype) {
    return cast(self, dtype.value_or(self.dtype()));
  });
}

}  // namespace torch_xla::ops

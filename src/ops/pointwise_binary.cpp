// Elementwise operators of two tensors, or of a tensor and a number: arithmetic, powers,
// comparisons, logic and bits. A number is data (`Value`), so one function serves both overloads.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/expression.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using BinaryFunction = Value (*)(Value, Value);

// `F` of both operands in their common dtype.
template <BinaryFunction F>
Value promoted(Value self, Value other) {
  const std::vector<Value> v = promote({self, other});
  return F(v[0], v[1]);
}

// The same where integers become float32.
template <BinaryFunction F>
Value floating(Value self, Value other) {
  const std::vector<Value> v = promote_to({self, other}, float_result_type({self, other}));
  return F(v[0], v[1]);
}

// The same where `F` is a formula of several roundings.
template <BinaryFunction F>
Value floating_formula(Value self, Value other) {
  const std::vector<Value> v = promote_to({self, other}, float_result_type({self, other}));
  return in_float32(F, v[0], v[1]);
}

// Of whether each is 0 in the dtype that they have in common.
template <BinaryFunction F>
Value of_booleans(Value self, Value other) {
  const std::vector<Value> v = promote({self, other});
  return F(convert(v[0], DType::kBool), convert(v[1], DType::kBool));
}

// A formula in `dtype`. A half-precision tensor and a number are computed in float32, where the
// number keeps its digits.
template <typename Formula>
Value arithmetic(Formula formula, Value self, Value other, DType dtype) {
  const auto is_wider_number = [&](Value v) { return v.rank() == 0 && v.dtype() != dtype; };
  const bool is_mixed = is_wider_number(self) || is_wider_number(other);
  const std::vector<Value> v =
      promote_to({self, other}, is_mixed ? accumulate_dtype(dtype) : dtype);
  return convert(formula(v[0], v[1]), dtype);
}

// ---- Division -----------------------------------------------------------------------------------

Value differs_in_sign(Value a, Value b) { return not_equal(less(a, 0), less(b, 0)); }

Value floor_div_integers(Value a, Value b) {
  const Value quotient = a / b;
  if (!base::is_signed_integral(a.dtype())) return quotient;
  const Value is_inexact = not_equal(remainder(a, b), 0);
  return quotient - convert(is_inexact & differs_in_sign(a, b), a.dtype());
}

// Python's floor division: exact where the quotient of the rounded operands would not be.
Value floor_div_floats(Value a, Value b) {
  const Value modulo = remainder(a, b);
  const Value exact = (a - modulo) / b;
  const Value adjust = not_equal(modulo, 0) & differs_in_sign(modulo, b);
  const Value quotient = exact - convert(adjust, a.dtype());
  const Value floored = floor(quotient);
  const Value nearest = floored + convert(greater(quotient - floored, 0.5), a.dtype());
  const Value ratio = a / b;
  const Value zero = hlo::full_like(a, 0);
  const Value signed_zero = where(signbit(ratio), -zero, zero);
  return where(equal(b, 0), ratio, where(equal(quotient, 0), signed_zero, nearest));
}

Value floor_divide(Value self, Value other) {
  const std::vector<Value> v = promote({self, other});
  if (base::is_integral(v[0].dtype())) return floor_div_integers(v[0], v[1]);
  return in_float32(floor_div_floats, v[0], v[1]);
}

Value trunc_divide(Value self, Value other) {
  const std::vector<Value> v = promote({self, other});
  if (base::is_integral(v[0].dtype())) return v[0] / v[1];
  return trunc(v[0] / v[1]);
}

Value div_mode(Value self, Value other, const std::optional<std::string>& rounding_mode) {
  if (!rounding_mode.has_value()) return div(self, other);
  if (*rounding_mode == "trunc") return trunc_divide(self, other);
  base::check(*rounding_mode == "floor",
              "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '",
              *rounding_mode, "'");
  return floor_divide(self, other);
}

Value fmod(Value a, Value b) {
  check_implemented(!base::is_complex(a.dtype()), "fmod_cpu", a.dtype());
  return remainder(a, b);
}

// With the divisor's sign, as in Python.
Value python_remainder(Value a, Value b) {
  check_implemented(!base::is_complex(a.dtype()), "remainder_cpu", a.dtype());
  const Value modulo = remainder(a, b);
  if (!base::is_floating(a.dtype()) && !base::is_signed_integral(a.dtype())) return modulo;
  const Value adjust = not_equal(modulo, 0) & differs_in_sign(modulo, b);
  return where(adjust, modulo + b, modulo);
}

// ---- Powers, distances and logarithms -----------------------------------------------------------

// The dtype of `self` with a Python number of dtype `number`.
DType with_number(const Value& self, DType number) {
  const DType dtype = self.dtype();
  const DType of_number = number_dtype(number);
  if (base::is_complex(number)) {
    if (base::is_floating(dtype)) return base::complex_dtype(dtype);
    return base::is_complex(dtype) ? dtype : of_number;
  }
  if (base::is_floating(number)) return base::is_integral(dtype) ? of_number : dtype;
  return dtype == DType::kBool ? number : dtype;
}

// x to the exponent's bits, six at a time: XLA's power of integers looks at no more of them.
Value natural_power_of(Value x, Value exponent) {
  constexpr int kBits = 6;
  const int bits = 8 * base::size_bytes(x.dtype());
  const Value low = hlo::full_like(x, (1 << kBits) - 1);
  Value result = power(x, exponent & low);
  for (int done = kBits; done < bits; done += kBits) {
    const Value root = power(x, hlo::full_like(x, 1 << (kBits - 1)));
    x = root * root;
    exponent = hlo::shift_right_logical(exponent, hlo::full_like(exponent, kBits));
    result = result * power(x, exponent & low);
  }
  return result;
}

// Of integers to negative powers only those of 1 and -1 are not 0.
Value integral_power_of(Value x, Value exponent) {
  const Value is_negative = less(exponent, 0);
  const Value parity = exponent & hlo::full_like(exponent, 1);
  const Value value = natural_power_of(x, where(is_negative, parity, exponent));
  return where(is_negative & not_equal(abs(x), 1), 0, value);
}

// With 0 to a complex power as its limit, which the logarithm does not give.
Value power_of(Value x, Value exponent) {
  if (base::is_signed_integral(x.dtype())) return integral_power_of(x, exponent);
  if (base::kind_of(x.dtype()) == base::DTypeKind::kUnsigned) return natural_power_of(x, exponent);
  const Value value = power(x, exponent);
  if (!base::is_complex(x.dtype())) return value;
  const Value is_zero = equal(x, 0) & greater(real(exponent), 0);
  return where(is_zero, 0, value);
}

// Of those that `is_easy_exponent` names.
Value easy_power(Value x, double exponent) {
  if (exponent == 0) return hlo::full_like(x, 1);
  if (exponent == 0.5) return square_root(x);
  if (exponent == -0.5) return reciprocal_root(x);
  if (exponent < 0) return 1.0 / easy_power(x, -exponent);
  if (exponent == 1) return x;
  return exponent == 2 ? x * x : x * x * x;
}

// max + log(1 + exp(min - max)), by base 2 where `is_base_2`.
Value log_add_exp(Value a, Value b, bool is_base_2) {
  const Value greatest = max(a, b);
  const Value difference = -abs(a - b);
  const double unit = is_base_2 ? std::numbers::ln2 : 1.0;
  const Value sum = greatest + log_plus_one(exponential(difference * unit)) / unit;
  // Equal infinities have no difference.
  return where(equal(a, b) & equal(abs(a), kInfinity), a, sum);
}

Value log_add_exp_complex(Value a, Value b) {
  const Value is_greater = greater_equal(real(a), real(b));
  const Value greatest = where(is_greater, a, b);
  const Value least = where(is_greater, b, a);
  const Value sum = greatest + log_plus_one(exponential(least - greatest));
  const Value are_equal = equal(real(a), real(b)) & ~is_finite(real(a));
  const Value limit = where(less(real(a), 0), least, log(exponential(a) + exponential(b)));
  return where(are_equal, limit, sum);
}

Value logaddexp(Value a, Value b) {
  return base::is_complex(a.dtype()) ? log_add_exp_complex(a, b) : log_add_exp(a, b, false);
}
Value logaddexp2(Value a, Value b) {
  if (!base::is_complex(a.dtype())) return log_add_exp(a, b, true);
  return log_add_exp_complex(a * std::numbers::ln2, b * std::numbers::ln2) / std::numbers::ln2;
}

// x * log(y), 0 where x is 0 whatever y but NaN.
Value x_times_log(Value x, Value y, Value (*logarithm)(Value)) {
  const Value zero = hlo::full_like(x, 0);
  const Value product = where(equal(x, 0), zero, x * logarithm(y));
  return base::is_complex(x.dtype()) ? product : where(is_nan(y), y, product);
}
Value xlogy(Value x, Value y) { return x_times_log(x, y, hlo::log); }
Value xlog1py(Value x, Value y) { return x_times_log(x, y, hlo::log_plus_one); }

// By the bits, which arithmetic does not keep of NaNs and subnormal numbers. The sign is compared:
// with its bit as a mask, LLVM makes an instruction of the whole, and takes the wrong bit of a
// number that it has just converted to bfloat16.
Value copysign(Value magnitude, Value sign) {
  const Value bits = float_bits(magnitude);
  const Value sign_bit = hlo::lowest(bits.builder(), bits.type());
  const Value result = where(less(float_bits(sign), 0.0), bits | sign_bit, bits & ~sign_bit);
  return bitcast_convert(result, magnitude.dtype());
}

// self * 2^exponent in the dtype of a floating `self`. In three steps, since there may be room for
// the result where there is none for the power, of exponents that leave nothing of any number, and
// a third of which is a power of that dtype: 0 stays 0.
Value scale_by_power(Value self, Value exponent) {
  const DType dtype = float_result_type({self});
  const std::vector<Value> v = promote_to({self, exponent}, accumulate_dtype(dtype));
  const int bound = v[0].dtype() == DType::kFloat64 ? 2400 : 300;
  const Value bounded = min(max(v[1], -bound), bound);
  const Value third = trunc(bounded / 3.0);
  const auto power_of_2 = [](Value n) { return power(hlo::full_like(n, 2.0), n); };
  const Value step = power_of_2(third);
  return convert(v[0] * step * step * power_of_2(bounded - third - third), dtype);
}

Value ldexp(Value self, Value other) {
  check_implemented(other.dtype() != DType::kBool || !base::is_floating(self.dtype()),
                    "ldexp_cpu_exp", other.dtype());
  if (base::is_integral(other.dtype())) {
    if (base::is_floating(self.dtype())) return scale_by_power(self, other);
    other = convert(other, base::real_dtype(float_result_type({self})));
  }
  return mul(self, power(hlo::full_like(other, 2.0), other));
}

Value heaviside(Value x, Value values) {
  const Value step = convert(greater(x, 0), x.dtype());
  return where(equal(x, 0), values, step);
}

// ---- Greatest and least -------------------------------------------------------------------------

Value fmax(Value a, Value b) { return where(is_nan(a), b, where(is_nan(b), a, max(a, b))); }
Value fmin(Value a, Value b) { return where(is_nan(a), b, where(is_nan(b), a, min(a, b))); }

// Euclid's algorithm on all elements until the last one is through.
Value gcd(Value a, Value b) {
  check_implemented(base::is_integral(a.dtype()) && a.dtype() != DType::kBool, "gcd_cpu",
                    a.dtype());
  if (a.num_elements() == 0) return a;
  Dims all;
  for (std::int64_t i = 0; i < a.rank(); ++i) all.push_back(i);
  const hlo::Values ends = hlo::while_(
      {a, b}, [&](std::span<const Value> v) { return reduce_or(not_equal(v[1], 0), all); },
      [&](std::span<const Value> v) -> hlo::Values {
        const Value is_done = equal(v[1], 0);
        // A division by one, harmless, where there is nothing left to divide by.
        const Value rest = remainder(v[0], where(is_done, 1, v[1]));
        return {where(is_done, v[0], v[1]), where(is_done, 0, rest)};
      });
  return base::is_signed_integral(a.dtype()) ? abs(ends[0]) : ends[0];
}

Value lcm(Value a, Value b) {
  check_implemented(base::is_integral(a.dtype()) && a.dtype() != DType::kBool, "lcm_cpu",
                    a.dtype());
  const DType dtype = a.dtype();
  const Value divisor = gcd(a, b);
  Value part = a / where(equal(divisor, 0), 1, divisor);
  if (!base::is_signed_integral(dtype)) return part * b;
  // As C has it: the product of short integers is an int, and one that is too large is cut last.
  if (base::size_bytes(dtype) < 4) {
    part = convert(part, DType::kInt32);
    b = convert(b, DType::kInt32);
  }
  return convert(abs(part * b), dtype);
}

// ---- Bits ---------------------------------------------------------------------------------------

Value shift_right(Value a, Value b) {
  return base::is_signed_integral(a.dtype()) ? shift_right_arithmetic(a, b)
                                             : shift_right_logical(a, b);
}

Value polar(Value magnitude, Value angle) {
  const std::vector<Value> v = promote({magnitude, angle});
  return complex(v[0] * cosine(v[1]), v[0] * sine(v[1]));
}

Value complex_of(Value real, Value imag) {
  const auto is_fit = [](Value v) {
    return v.dtype() == DType::kFloat16 || v.dtype() == DType::kFloat32 ||
           v.dtype() == DType::kFloat64;
  };
  base::check(is_fit(real) && is_fit(imag),
              "Expected both inputs to be Half, Float or Double tensors but got ",
              scalar_type_name(real.dtype()), " and ", scalar_type_name(imag.dtype()));
  base::check(real.dtype() == imag.dtype(), "Expected object of scalar type ",
              scalar_type_name(real.dtype()), " but got scalar type ",
              scalar_type_name(imag.dtype()), " for second argument");
  return promoted<hlo::complex>(real, imag);
}

void register_arithmetic(Registry& m) {
  m.impl({"add.Tensor", "add.Scalar"},
         [](Value self, Value other, Factor alpha) { return add(self, other, alpha); });
  m.impl({"sub.Tensor", "sub.Scalar"},
         [](Value self, Value other, Factor alpha) { return sub(self, other, alpha); });
  m.impl({"rsub.Tensor", "rsub.Scalar"}, [](Value self, Value other, Factor alpha) {
    check_no_masks(self, other);
    return sub(other, self, alpha);
  });
  m.impl({"_add_relu.Tensor", "_add_relu.Scalar"},
         [](Value self, Value other, Factor alpha) { return max(add(self, other, alpha), 0); });
  m.impl({"mul.Tensor", "mul.Scalar"}, mul);
  m.impl({"div.Tensor", "div.Scalar"}, div);
  m.impl({"div.Tensor_mode", "div.Scalar_mode"}, div_mode);
  m.impl({"floor_divide", "floor_divide.Scalar", "floor_divide_.Tensor"}, floor_divide);
  m.impl({"fmod.Tensor", "fmod.Scalar"}, promoted<fmod>);
  m.impl({"remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor"},
         promoted<python_remainder>);
  m.impl({"pow.Tensor_Tensor", "pow.Scalar", "pow_.Tensor"},
         [](Value self, Value exponent) { return pow(self, exponent); });
  m.impl({"pow.Tensor_Scalar", "pow_.Scalar"},
         [](Value self, Promotable exponent) { return pow(self, exponent); });
  m.impl("maximum", maximum);
  m.impl("minimum", minimum);
  m.impl("fmax", promoted<fmax>);
  m.impl("fmin", promoted<fmin>);
  m.impl("gcd", promoted<gcd>);
  m.impl("lcm", promoted<lcm>);
}

void register_floating(Registry& m) {
  m.impl("atan2", floating_formula<hlo::atan2>);
  m.impl("hypot", floating_formula<hypotenuse>);
  m.impl({"copysign.Tensor", "copysign.Scalar"}, floating<copysign>);
  m.impl("nextafter", promoted<hlo::next_after>);
  m.impl({"ldexp.Tensor", "ldexp_"}, ldexp);
  m.impl("logaddexp", floating_formula<logaddexp>);
  m.impl("logaddexp2", floating_formula<logaddexp2>);
  m.impl({"xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other"}, floating_formula<xlogy>);
  m.impl({"special_xlog1py", "special_xlog1py.self_scalar", "special_xlog1py.other_scalar"},
         floating_formula<xlog1py>);
  m.impl("heaviside", promoted<heaviside>);
  m.impl("complex", complex_of);
  m.impl("polar", polar);
}

void register_comparisons(Registry& m) {
  m.impl({"eq.Tensor", "eq.Scalar"}, promoted<hlo::eq>);
  m.impl({"ne.Tensor", "ne.Scalar"}, promoted<hlo::ne>);
  m.impl({"lt.Tensor", "lt.Scalar"}, promoted<hlo::lt>);
  m.impl({"le.Tensor", "le.Scalar"}, promoted<hlo::le>);
  m.impl({"gt.Tensor", "gt.Scalar"}, promoted<hlo::gt>);
  m.impl({"ge.Tensor", "ge.Scalar"}, promoted<hlo::ge>);
  m.impl("logical_and", of_booleans<hlo::and_>);
  m.impl("logical_or", of_booleans<hlo::or_>);
  m.impl("logical_xor", of_booleans<hlo::xor_>);
}

void register_bits(Registry& m) {
  m.impl({"bitwise_and.Tensor", "bitwise_and.Scalar", "bitwise_and.Scalar_Tensor"},
         promoted<hlo::and_>);
  m.impl({"bitwise_or.Tensor", "bitwise_or.Scalar", "bitwise_or.Scalar_Tensor"},
         promoted<hlo::or_>);
  m.impl({"bitwise_xor.Tensor", "bitwise_xor.Scalar", "bitwise_xor.Scalar_Tensor"},
         promoted<hlo::xor_>);
  m.impl({"bitwise_left_shift.Tensor", "bitwise_left_shift.Tensor_Scalar",
          "bitwise_left_shift.Scalar_Tensor", "__lshift__.Tensor", "__lshift__.Scalar",
          "__ilshift__.Tensor", "__ilshift__.Scalar"},
         promoted<hlo::shift_left>);
  m.impl({"bitwise_right_shift.Tensor", "bitwise_right_shift.Tensor_Scalar",
          "bitwise_right_shift.Scalar_Tensor", "__rshift__.Tensor", "__rshift__.Scalar",
          "__irshift__.Tensor", "__irshift__.Scalar"},
         promoted<shift_right>);
}

// A quotient that XLA can't see as one. It would make a / (b * c) of a / b / c and a * c / b of
// a / (b / c), whose products may be beyond the dtype's range.
Value hide_quotient(Value v) {
  if (v.note != kQuotient) return v;
  return where(not_equal(v, v), std::numeric_limits<double>::quiet_NaN(), v);
}

}  // namespace

std::vector<Value> promote_for_formula(std::initializer_list<Value> values, DType dtype) {
  std::vector<Value> out;
  const Dims dims = broadcast_dims(values);
  for (const Value& v : values) {
    const Value held = base::is_integral(v.dtype()) ? convert(v, dtype) : v;
    out.push_back(broadcast_to(convert(held, accumulate_dtype(dtype)), dims));
  }
  return out;
}

// Numbers and alpha too are rounded to half precision first, unlike those of products.
Value add(Value self, Value other, const Factor& alpha) {
  const DType dtype = result_type({self, other});
  const std::vector<Value> v = promote_to({self, other}, dtype);
  if (alpha.is_one) return v[0] + v[1];
  const auto formula = [](Value a, Value b, Value factor) { return a + b * factor; };
  return in_float32(formula, v[0], v[1], convert(alpha.value, dtype));
}

void check_no_masks(Value self, Value other) {
  const bool is_mask = self.dtype() == DType::kBool;
  const bool is_other_mask = other.dtype() == DType::kBool;
  if (is_mask && is_other_mask) {
    base::fail(base::ErrorKind::kRefusedBool,
               "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` "
               "or `logical_xor()` operator instead.");
  }
  if (is_mask || is_other_mask) {
    base::fail(base::ErrorKind::kRefusedBool,
               "Subtraction, the `-` operator, with a bool tensor is not supported. If you are "
               "trying to invert a mask, use the `~` or `logical_not()` operator instead.");
  }
}

Value sub(Value self, Value other, const Factor& alpha) {
  const DType dtype = result_type({self, other});
  const std::vector<Value> v = promote_to({self, other}, dtype);
  if (alpha.is_one) return v[0] - v[1];
  const auto formula = [](Value a, Value b, Value factor) { return a - b * factor; };
  return in_float32(formula, v[0], v[1], convert(alpha.value, dtype));
}

Value mul(Value self, Value other) {
  return arithmetic(hlo::multiply, self, other, result_type({self, other}));
}

Value div(Value self, Value other) {
  const DType dtype = float_result_type({self, other});
  // A reciprocal is not hidden: its divisor's product with this one has room in float32.
  const auto divide = [](Value a, Value b) { return in_float32(hlo::divide, a, b); };
  Value quotient = arithmetic(divide, hide_quotient(self), hide_quotient(other), dtype);
  quotient.note = kQuotient;
  return quotient;
}

Value pow(Value self, Value exponent) { return promoted<power_of>(self, exponent); }

std::optional<double> constant_of(const Promotable& number) {
  if (!number.is_constant() || number.constant().is_complex()) return std::nullopt;
  return number.constant().to<double>();
}

bool is_easy_exponent(double exponent, DType dtype) {
  static constexpr std::array kProducts = {0.0, 1.0, 2.0, 3.0, -1.0, -2.0};
  // Of float16, PyTorch takes the power for roots too, which has one of -infinity.
  const bool is_root = std::abs(exponent) == 0.5 && dtype != DType::kFloat16;
  return is_root || std::ranges::find(kProducts, exponent) != kProducts.end();
}

Value pow(Value self, const Promotable& exponent) {
  const DType dtype = with_number(self, exponent.dtype());
  return in_float32(
      [&](Value x) {
        const std::optional<double> p = constant_of(exponent);
        if (p.has_value() && is_easy_exponent(*p, dtype)) return easy_power(x, *p);
        return power_of(x, broadcast_to(exponent.value(x.builder(), x.dtype()), x.dims()));
      },
      convert(self, dtype));
}

Value hypotenuse(Value a, Value b) {
  a = abs(a);
  b = abs(b);
  const Value longer = max(a, b);
  const Value ratio = min(a, b) / longer;
  const Value length = longer * sqrt(ratio * ratio + 1.0);
  const Value is_infinite = equal(a, kInfinity) | equal(b, kInfinity);
  return where(is_infinite, kInfinity, where(equal(longer, 0), 0, length));
}

Value maximum(Value self, Value other) { return promoted<hlo::maximum>(self, other); }
Value minimum(Value self, Value other) { return promoted<hlo::minimum>(self, other); }

void register_pointwise_binary(Registry& m) {
  register_arithmetic(m);
  register_floating(m);
  register_comparisons(m);
  register_bits(m);
}

}  // namespace torch_xla::ops

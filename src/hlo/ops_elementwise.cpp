// Elementwise operations. What each takes is the specification's table of constraints, without what
// no compiler has: it orders complex numbers, and gives them remainders, of which XLA dies. The
// results have the operands' type unless said otherwise.
#include <array>

#include "hlo/checks.h"
#include "hlo/known_nan.h"
#include "hlo/text.h"
#include "hlo/undone.h"

namespace torch_xla::hlo {
namespace {

Value unary(std::string_view name, const Value& operand, unsigned kinds) {
  require_kind(name, operand, kinds);
  return operand.builder().op(name, {&operand, 1}, operand.type());
}

Value unary(std::string_view name, const Value& operand, unsigned kinds, DType result) {
  require_kind(name, operand, kinds);
  return operand.builder().op(name, {&operand, 1}, Type{result, operand.dims()});
}

Value binary(std::string_view name, const Value& lhs, const Value& rhs, unsigned kinds) {
  require_same_type(name, lhs, rhs);
  require_kind(name, lhs, kinds);
  const std::array operands{lhs, rhs};
  return lhs.builder().op(name, operands, lhs.type());
}

// A quotient or remainder of integers, and `by_zero` where the divisor is 0, which the
// specification leaves open: compilers answer differently, and one that folds 0 / 0 ends the
// process. A divisor that is 0 is therefore never shown to them.
Value divide_integers(std::string_view name, const Value& lhs, const Value& rhs,
                      const Value& by_zero) {
  const Value is_zero = eq(rhs, full_like(rhs, 0));
  const Value divisor = select(is_zero, full_like(rhs, 1), rhs);
  return select(is_zero, by_zero, binary(name, lhs, divisor, kIntegers));
}

// What a logarithm may take. Of a complex number its imaginary part is an angle.
Value of_logarithm(const Value& operand) {
  return operand && base::is_complex(operand.dtype()) ? angled(operand) : operand;
}

bool is_division_of_integers(const Value& lhs, const Value& rhs) {
  return lhs && rhs && base::is_integral(lhs.dtype()) && lhs.dtype() != DType::kBool &&
         !rhs.is_nonzero;
}

std::string_view direction_text(ComparisonDirection direction) {
  static constexpr std::array<std::string_view, 6> kNames = {"EQ", "NE", "GE", "GT", "LE", "LT"};
  return kNames[static_cast<std::size_t>(direction)];
}

std::string_view comparison_type(DType dtype, bool total_order) {
  switch (base::kind_of(dtype)) {
    case base::DTypeKind::kBool:
    case base::DTypeKind::kUnsigned: return "UNSIGNED";
    case base::DTypeKind::kSigned: return "SIGNED";
    case base::DTypeKind::kFloating: return total_order ? "TOTALORDER" : "FLOAT";
    case base::DTypeKind::kComplex: return "FLOAT";
  }
  return "FLOAT";
}

}  // namespace

Value abs(Value operand) {
  return unary("stablehlo.abs", operand, kSignedIntegers | kFloatsOrComplexes,
               operand ? base::real_dtype(operand.dtype()) : DType::kFloat32);
}
Value cbrt(Value operand) { return unary("stablehlo.cbrt", operand, kFloats); }
Value ceil(Value operand) { return unary("stablehlo.ceil", operand, kFloats); }
Value cosine(Value operand) { return unary("stablehlo.cosine", operand, kFloatsOrComplexes); }
Value count_leading_zeros(Value operand) {
  return unary("stablehlo.count_leading_zeros", operand, kIntegers);
}
Value exponential(Value operand) {
  return past_nan(unary("stablehlo.exponential", operand, kFloatsOrComplexes), operand);
}
Value exponential_minus_one(Value operand) {
  return past_nan(unary("stablehlo.exponential_minus_one", operand, kFloatsOrComplexes), operand);
}
Value floor(Value operand) { return unary("stablehlo.floor", operand, kFloats); }
Value imag(Value operand) {
  return unary("stablehlo.imag", operand, kFloatsOrComplexes,
               operand ? base::real_dtype(operand.dtype()) : DType::kFloat32);
}
Value is_finite(Value operand) {
  return unary("stablehlo.is_finite", operand, kFloats, DType::kBool);
}
Value log(Value operand) {
  static constexpr std::string_view kName = "stablehlo.log";
  return unary(kName, hidden_from(kName, of_logarithm(operand)), kFloatsOrComplexes);
}
Value log_plus_one(Value operand) {
  return unary("stablehlo.log_plus_one", of_logarithm(operand), kFloatsOrComplexes);
}
Value logistic(Value operand) {
  return past_nan(unary("stablehlo.logistic", operand, kFloatsOrComplexes), operand);
}
Value negate(Value operand) { return unary("stablehlo.negate", operand, kNumbers); }
Value not_(Value operand) { return unary("stablehlo.not", operand, kBooleans | kIntegers); }
Value popcnt(Value operand) { return unary("stablehlo.popcnt", operand, kIntegers); }
Value real(Value operand) {
  return unary("stablehlo.real", operand, kFloatsOrComplexes,
               operand ? base::real_dtype(operand.dtype()) : DType::kFloat32);
}
Value round_nearest_afz(Value operand) {
  return unary("stablehlo.round_nearest_afz", operand, kFloats);
}
Value round_nearest_even(Value operand) {
  return unary("stablehlo.round_nearest_even", operand, kFloats);
}
Value rsqrt(Value operand) {
  static constexpr std::string_view kName = "stablehlo.rsqrt";
  return unary(kName, hidden_from(kName, operand), kFloatsOrComplexes);
}
Value sign(Value operand) {
  return unary("stablehlo.sign", operand, kSignedIntegers | kFloatsOrComplexes);
}
Value sine(Value operand) { return unary("stablehlo.sine", operand, kFloatsOrComplexes); }
Value sqrt(Value operand) {
  static constexpr std::string_view kName = "stablehlo.sqrt";
  return unary(kName, hidden_from(kName, operand), kFloatsOrComplexes);
}
Value tan(Value operand) { return unary("stablehlo.tan", operand, kFloatsOrComplexes); }
Value tanh(Value operand) { return unary("stablehlo.tanh", operand, kFloatsOrComplexes); }

// XLA folds the sum of two constant booleans modulo 2; the specification's sum is their or.
Value add(Value lhs, Value rhs) {
  const bool is_bool = lhs.dtype() == DType::kBool && rhs.dtype() == DType::kBool;
  return binary(is_bool ? "stablehlo.or" : "stablehlo.add", lhs, rhs, kAnything);
}
Value and_(Value lhs, Value rhs) {
  return binary("stablehlo.and", lhs, rhs, kBooleans | kIntegers);
}
Value atan2(Value lhs, Value rhs) {
  return binary("stablehlo.atan2", angled(lhs, {rhs}), rhs, kFloatsOrComplexes);
}
Value divide(Value lhs, Value rhs) {
  static constexpr std::string_view kName = "stablehlo.divide";
  require_same_type(kName, lhs, rhs);
  if (is_division_of_integers(lhs, rhs))
    return divide_integers(kName, lhs, rhs, full_like(lhs, -1));
  return binary(kName, lhs, hidden_from(kName, lhs, rhs), kNumbers);
}
Value maximum(Value lhs, Value rhs) {
  return binary("stablehlo.maximum", unfolded(lhs, {rhs}), rhs, kOrdered);
}
Value minimum(Value lhs, Value rhs) {
  return binary("stablehlo.minimum", unfolded(lhs, {rhs}), rhs, kOrdered);
}
Value multiply(Value lhs, Value rhs) {
  static constexpr std::string_view kName = "stablehlo.multiply";
  return binary(kName, lhs, hidden_from(kName, lhs, rhs), kAnything);
}
Value or_(Value lhs, Value rhs) { return binary("stablehlo.or", lhs, rhs, kBooleans | kIntegers); }
Value power(Value lhs, Value rhs) {
  static constexpr std::string_view kName = "stablehlo.power";
  return binary(kName, hidden_from(kName, lhs), rhs, kNumbers);
}
Value remainder(Value lhs, Value rhs) {
  static constexpr std::string_view kName = "stablehlo.remainder";
  require_same_type(kName, lhs, rhs);
  if (is_division_of_integers(lhs, rhs)) return divide_integers(kName, lhs, rhs, lhs);
  return binary(kName, lhs, rhs, kIntegers | kFloats);
}
Value shift_left(Value lhs, Value rhs) {
  return binary("stablehlo.shift_left", lhs, rhs, kIntegers);
}
Value shift_right_arithmetic(Value lhs, Value rhs) {
  return binary("stablehlo.shift_right_arithmetic", lhs, rhs, kIntegers);
}
Value shift_right_logical(Value lhs, Value rhs) {
  return binary("stablehlo.shift_right_logical", lhs, rhs, kIntegers);
}
Value subtract(Value lhs, Value rhs) { return binary("stablehlo.subtract", lhs, rhs, kNumbers); }
Value xor_(Value lhs, Value rhs) {
  return binary("stablehlo.xor", lhs, rhs, kBooleans | kIntegers);
}

Value complex(Value lhs, Value rhs) {
  static constexpr std::string_view kName = "stablehlo.complex";
  require_same_type(kName, lhs, rhs);
  require(lhs.dtype() == DType::kFloat32 || lhs.dtype() == DType::kFloat64, kName,
          "the operands must be f32 or f64, got ", Show(lhs));
  const std::array operands{lhs, rhs};
  return lhs.builder().op(kName, operands, Type{base::complex_dtype(lhs.dtype()), lhs.dims()});
}

Value compare(Value lhs, Value rhs, ComparisonDirection direction, bool total_order) {
  static constexpr std::string_view kName = "stablehlo.compare";
  require_same_type(kName, lhs, rhs);
  const DType dtype = lhs.dtype();
  const bool is_equality =
      direction == ComparisonDirection::kEq || direction == ComparisonDirection::kNe;
  if (!is_equality) require_kind(kName, lhs, kOrdered);
  require(!total_order || base::is_floating(dtype), kName,
          "a total order needs floating-point operands, got ", Show(lhs));
  std::string properties = "comparison_direction = #stablehlo<comparison_direction ";
  properties += direction_text(direction);
  properties += ">, compare_type = #stablehlo<comparison_type ";
  properties += comparison_type(dtype, total_order);
  properties += '>';
  const std::array operands{lhs, rhs};
  return lhs.builder().op(kName, operands, Type{DType::kBool, lhs.dims()}, properties);
}

Value eq(Value lhs, Value rhs) { return compare(lhs, rhs, ComparisonDirection::kEq); }
Value ne(Value lhs, Value rhs) { return compare(lhs, rhs, ComparisonDirection::kNe); }
Value ge(Value lhs, Value rhs) { return compare(lhs, rhs, ComparisonDirection::kGe); }
Value gt(Value lhs, Value rhs) { return compare(lhs, rhs, ComparisonDirection::kGt); }
Value le(Value lhs, Value rhs) { return compare(lhs, rhs, ComparisonDirection::kLe); }
Value lt(Value lhs, Value rhs) { return compare(lhs, rhs, ComparisonDirection::kLt); }

Value select(Value pred, Value on_true, Value on_false) {
  static constexpr std::string_view kName = "stablehlo.select";
  require_kind(kName, pred, kBooleans);
  require_same_type(kName, on_true, on_false);
  require(pred.rank() == 0 || pred.dims() == on_true.dims(), kName,
          "pred must be 0-d or have the operands' sizes ", Show(on_true), ", got ", Show(pred));
  const std::array operands{pred, on_true, on_false};
  return on_true.builder().op(kName, operands, on_true.type());
}

Value clamp(Value min, Value operand, Value max) {
  static constexpr std::string_view kName = "stablehlo.clamp";
  for (const Value* bound : {&min, &max}) {
    require_value(kName, *bound);
    require_value(kName, operand);
    require(bound->dtype() == operand.dtype() &&
                (bound->rank() == 0 || bound->dims() == operand.dims()),
            kName, "min and max must be 0-d or have the operand's type ", Show(operand), ", got ",
            Show(*bound));
  }
  require_kind(kName, operand, kOrdered);
  const std::array operands{min, unfolded(operand, {min, max}), max};
  return operand.builder().op(kName, operands, operand.type());
}

Value convert(Value operand, DType dtype) {
  static constexpr std::string_view kName = "stablehlo.convert";
  require_value(kName, operand);
  if (operand.dtype() == dtype) return unchanged(operand);
  if (base::is_complex(operand.dtype()) && !base::is_complex(dtype)) {
    if (dtype == DType::kBool) return ne(operand, full_like(operand, 0));
    return convert(real(operand), dtype);
  }
  // XLA rounds float64 to half precision by way of float32, as PyTorch does, but by a call for each
  // number.
  const bool is_half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  if (operand.dtype() == DType::kFloat64 && is_half) {
    return convert(convert(operand, DType::kFloat32), dtype);
  }
  // XLA makes a select of the product with a converted boolean, which hides infinities, NaN and
  // the sign of zero. It leaves the product with a select alone.
  if (operand.dtype() == DType::kBool && !base::is_integral(dtype)) {
    const Type type{dtype, operand.dims()};
    return select(operand, full(operand.builder(), type, 1.0), full(operand.builder(), type, 0.0));
  }
  // XLA's CPU compiler makes integers of float32 several at a time, of bfloat16 one by one.
  const bool is_integer = base::is_integral(dtype) && dtype != DType::kBool;
  if (operand.dtype() == DType::kBFloat16 && is_integer) {
    return convert(convert(operand, DType::kFloat32), dtype);
  }
  return operand.builder().op(kName, {&operand, 1}, Type{dtype, operand.dims()});
}

Value bitcast_convert(Value operand, DType dtype) {
  static constexpr std::string_view kName = "stablehlo.bitcast_convert";
  require_kind(kName, operand, kNumbers);
  require(dtype != DType::kBool && base::is_complex(dtype) == base::is_complex(operand.dtype()),
          kName, "bool, and complex with real types, cannot be reinterpreted, got ", Show(operand),
          " to ", base::dtype_info(dtype).hlo_name);
  if (operand.dtype() == dtype) return unchanged(operand);
  Type result{dtype, operand.dims()};
  require(!base::is_complex(dtype), kName,
          "complex types of another width are not reinterpreted, got ", Show(operand), " to ",
          base::dtype_info(dtype).hlo_name);
  const int from = base::size_bytes(operand.dtype());
  const int to = base::size_bytes(dtype);
  if (from > to) {
    result.dims.push_back(from / to);
  } else if (from < to) {
    require(!result.dims.empty() && result.dims.back() == to / from, kName,
            "the last dimension must be ", to / from, " to make ", base::dtype_info(dtype).hlo_name,
            ", got ", Show(operand));
    result.dims.pop_back();
  }
  return operand.builder().op(kName, {&operand, 1}, result);
}

Value reduce_precision(Value operand, int exponent_bits, int mantissa_bits) {
  static constexpr std::string_view kName = "stablehlo.reduce_precision";
  require_kind(kName, operand, kFloats);
  require(exponent_bits >= 1 && mantissa_bits >= 0, kName,
          "needs exponent_bits of 1 or more and mantissa_bits of 0 or more, got ", exponent_bits,
          " and ", mantissa_bits);
  return operand.builder().op(kName, {&operand, 1}, operand.type(),
                              "exponent_bits = " + integer_attribute(exponent_bits, "i32") +
                                  ", mantissa_bits = " + integer_attribute(mantissa_bits, "i32"));
}

}  // namespace torch_xla::hlo

// Operations of the CHLO dialect: mathematical functions that the plugin expands by its own series,
// and top_k.
#include <array>

#include "hlo/checks.h"
#include "hlo/known_nan.h"
#include "hlo/text.h"

namespace torch_xla::hlo {
namespace {

Value unary(std::string_view name, const Value& operand, unsigned kinds) {
  require_kind(name, operand, kinds);
  const Value taken = base::is_complex(operand.dtype()) ? angled(operand) : unfolded(operand);
  return operand.builder().op(name, {&taken, 1}, operand.type());
}

// The plugin has no expansion for floats of 8 bits.
Value wide_unary(std::string_view name, const Value& operand) {
  require_kind(name, operand, kFloats);
  require(base::size_bytes(operand.dtype()) > 1, name,
          "the operand must be wider than a byte, got ", Show(operand));
  return unary(name, operand, kFloats);
}

Value binary(std::string_view name, const Value& lhs, const Value& rhs) {
  require_same_type(name, lhs, rhs);
  require_kind(name, lhs, kFloats);
  const std::array operands{unfolded(lhs, {rhs}), rhs};
  return lhs.builder().op(name, operands, lhs.type());
}

}  // namespace

Value acos(Value operand) { return unary("chlo.acos", operand, kFloatsOrComplexes); }
Value acosh(Value operand) { return unary("chlo.acosh", operand, kFloatsOrComplexes); }
Value asin(Value operand) { return unary("chlo.asin", operand, kFloatsOrComplexes); }
Value asinh(Value operand) { return unary("chlo.asinh", operand, kFloatsOrComplexes); }
Value atan(Value operand) { return unary("chlo.atan", operand, kFloatsOrComplexes); }
Value atanh(Value operand) { return unary("chlo.atanh", operand, kFloatsOrComplexes); }
Value bessel_i1e(Value operand) { return wide_unary("chlo.bessel_i1e", operand); }
Value conj(Value operand) {
  require_value("chlo.conj", operand);
  if (!base::is_complex(operand.dtype())) return unchanged(operand);
  return unary("chlo.conj", operand, kComplexes);
}
Value cosh(Value operand) {
  return past_nan(unary("chlo.cosh", operand, kFloatsOrComplexes), operand);
}
Value digamma(Value operand) { return unary("chlo.digamma", operand, kFloats); }
Value erf(Value operand) { return unary("chlo.erf", operand, kFloats); }
Value erf_inv(Value operand) { return unary("chlo.erf_inv", operand, kFloats); }
Value erfc(Value operand) { return past_nan(wide_unary("chlo.erfc", operand), operand); }
Value lgamma(Value operand) { return unary("chlo.lgamma", operand, kFloats); }
Value sinh(Value operand) {
  return past_nan(unary("chlo.sinh", operand, kFloatsOrComplexes), operand);
}
Value square(Value operand) { return unary("chlo.square", operand, kFloatsOrComplexes); }

Value next_after(Value x, Value y) { return binary("chlo.next_after", x, y); }
Value polygamma(Value n, Value x) { return binary("chlo.polygamma", n, x); }
Value zeta(Value x, Value q) { return binary("chlo.zeta", x, q); }

std::pair<Value, Value> top_k(Value operand, std::int64_t k) {
  static constexpr std::string_view kName = "chlo.top_k";
  require_kind(kName, operand, kIntegers | kFloats);
  require(operand.rank() >= 1, kName, "the operand must have a dimension, got ", Show(operand));
  require(k >= 0 && k <= operand.dims().back(), kName, "k must be in [0, ", operand.dims().back(),
          "], got ", k);
  Type values = operand.type();
  values.dims.back() = k;
  const std::array<Type, 2> results{values, Type{DType::kInt32, values.dims}};
  const Values top =
      operand.builder().op(kName, {&operand, 1}, results, "k = " + integer_attribute(k));
  return {top[0], top[1]};
}

}  // namespace torch_xla::hlo

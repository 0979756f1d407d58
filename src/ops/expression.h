// Formulas over values, written as on paper: `x * logistic(x * 1.702) + 0.5`. Both sides of an
// operator have one dtype; a 0-dim side takes the other's sizes, a number its type as well. The
// functions of hlo/ops.h (`tanh`, `select`, ...) are found by their argument.
#pragma once

#include <utility>

#include "ops/promotion.h"

namespace torch_xla::ops {

namespace detail {

using BinaryFunction = Value (*)(Value, Value);

inline Value apply(BinaryFunction f, Value a, Value b) {
  if (a.rank() == 0 && b.rank() != 0) return f(broadcast_to(a, b.dims()), b);
  if (b.rank() == 0 && a.rank() != 0) return f(a, broadcast_to(b, a.dims()));
  return f(a, b);
}
inline Value apply(BinaryFunction f, Value a, double b) { return f(a, hlo::full_like(a, b)); }
inline Value apply(BinaryFunction f, double a, Value b) { return f(hlo::full_like(b, a), b); }

// A value or a number, where at least one other argument is a value.
template <typename A, typename B>
concept Operands = (std::is_same_v<A, Value> && std::is_convertible_v<B, double>) ||
                   (std::is_convertible_v<A, double> && std::is_same_v<B, Value>) ||
                   (std::is_same_v<A, Value> && std::is_same_v<B, Value>);

}  // namespace detail

template <typename A, typename B>
  requires detail::Operands<A, B>
Value operator+(A a, B b) {
  return detail::apply(hlo::add, a, b);
}
template <typename A, typename B>
  requires detail::Operands<A, B>
Value operator-(A a, B b) {
  return detail::apply(hlo::subtract, a, b);
}
template <typename A, typename B>
  requires detail::Operands<A, B>
Value operator*(A a, B b) {
  return detail::apply(hlo::multiply, a, b);
}
template <typename A, typename B>
  requires detail::Operands<A, B>
Value operator/(A a, B b) {
  return detail::apply(hlo::divide, a, b);
}
inline Value operator-(Value a) { return hlo::negate(a); }
inline Value operator&(Value a, Value b) { return detail::apply(hlo::and_, a, b); }
inline Value operator|(Value a, Value b) { return detail::apply(hlo::or_, a, b); }
inline Value operator~(Value a) { return hlo::not_(a); }

// Comparisons. (`==` and `<` of values compare handles.)
template <typename B>
Value equal(Value a, B b) {
  return detail::apply(hlo::eq, a, b);
}
template <typename B>
Value not_equal(Value a, B b) {
  return detail::apply(hlo::ne, a, b);
}
template <typename B>
Value less(Value a, B b) {
  return detail::apply(hlo::lt, a, b);
}
template <typename B>
Value less_equal(Value a, B b) {
  return detail::apply(hlo::le, a, b);
}
template <typename B>
Value greater(Value a, B b) {
  return detail::apply(hlo::gt, a, b);
}
template <typename B>
Value greater_equal(Value a, B b) {
  return detail::apply(hlo::ge, a, b);
}

// The greater and the lesser of two; NaN if either is.
template <typename A, typename B>
  requires detail::Operands<A, B>
Value max(A a, B b) {
  return detail::apply(hlo::maximum, a, b);
}
template <typename A, typename B>
  requires detail::Operands<A, B>
Value min(A a, B b) {
  return detail::apply(hlo::minimum, a, b);
}

// `a` where the condition holds, else `b`; a 0-dim condition decides for all elements.
inline Value where(Value condition, Value a, Value b) {
  if (a.rank() < b.rank()) a = broadcast_to(a, b.dims());
  if (b.rank() < a.rank()) b = broadcast_to(b, a.dims());
  if (a.rank() < condition.rank()) {
    a = broadcast_to(a, condition.dims());
    b = broadcast_to(b, condition.dims());
  }
  return hlo::select(condition, a, b);
}
inline Value where(Value condition, double a, Value b) {
  return where(condition, hlo::full_like(b, a), b);
}
inline Value where(Value condition, Value a, double b) {
  return where(condition, a, hlo::full_like(a, b));
}

// The value of `formula` computed in float32 where the operands are float16 or bfloat16, and
// rounded once, as PyTorch's kernels do. All operands have one dtype.
template <typename Formula, typename... Values>
Value in_float32(Formula formula, Value first, Values... rest) {
  const DType dtype = first.dtype();
  const DType wide = accumulate_dtype(dtype);
  return convert(formula(convert(first, wide), convert(rest, wide)...), dtype);
}

}  // namespace torch_xla::ops

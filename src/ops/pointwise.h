// The elementwise operators that other families are made of too: the foreach operators and the
// optimizers apply these to each tensor of a list. Operands are promoted and broadcast as ATen's
// operator of that name does.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "ops/registry.h"

namespace torch_xla::ops {

// An operator of one tensor and nothing else.
struct UnaryOperator {
  std::string_view name;
  Value (*emit)(Value self);
  Repeats repeats = Repeats::kRefused;
};
std::span<const UnaryOperator> unary_operators();

// The operands of a formula that is rounded once to `dtype`: in the dtype that it accumulates in.
// What `dtype` makes of integers comes before.
std::vector<Value> promote_for_formula(std::initializer_list<Value> values, DType dtype);

// self + alpha * other
Value add(Value self, Value other, const Factor& alpha);
// Throws as PyTorch's Meta kernel of `sub` does: masks are not subtracted.
void check_no_masks(Value self, Value other);
Value sub(Value self, Value other, const Factor& alpha);
Value mul(Value self, Value other);
Value div(Value self, Value other);
// A real number, unless it is data.
std::optional<double> constant_of(const Promotable& number);
// Whether a power of numbers of `dtype` is a few multiplications, divisions and roots.
bool is_easy_exponent(double exponent, DType dtype);
Value pow(Value self, const Promotable& exponent);
Value pow(Value self, Value exponent);
// sqrt(a^2 + b^2) of floats of one type, without overflow. (XLA's magnitude of complex numbers,
// which is the same, can lose a NaN.)
Value hypotenuse(Value a, Value b);
// NaN wins.
Value maximum(Value self, Value other);
Value minimum(Value self, Value other);

Value clamp_min(Value self, Value min);
Value clamp_max(Value self, Value max);
Value lerp(Value self, Value end, Value weight);
// self + value * tensor1 * tensor2
Value addcmul(Value self, Value tensor1, Value tensor2, const Factor& value);
// self + value * tensor1 / tensor2
Value addcdiv(Value self, Value tensor1, Value tensor2, const Factor& value);
// erf, of floats, which is 1 or -1 where float32 has nothing nearer. (XLA's never is.)
Value error_function(Value x);
// `source` as the new value of `self`.
Value copy(Value self, Value source);

// Of a floating type.
double greatest_finite(DType dtype);

// Of complex numbers on the branch cut too, whose side the sign of an imaginary zero tells.
Value square_root(Value x);
Value reciprocal_root(Value x);
// True where the sign bit is set, of zeros and NaNs too.
Value signbit(Value value);
// The bits of a float as a signed integer of its size.
Value float_bits(Value value);
// Towards zero.
Value trunc(Value value);

}  // namespace torch_xla::ops

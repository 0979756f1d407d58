// Reductions as emission: what the families reductions, softmax, normalisation and losses are made
// of. `dims` are always wrapped and without repeats (see `wrap_dims`); reducing over no dimension
// gives the operand back. Nothing here changes dtype: convert to `accumulate_dtype` before.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "ops/registry.h"

namespace torch_xla::ops {

// The number of elements that one element of the result is made of.
std::int64_t reduced_size(const Dims& operand_dims, const Dims& dims);
// The sizes after a reduction.
Dims reduced_dims(const Dims& operand_dims, const Dims& dims, bool keepdim);
// A result without the reduced dimensions, given them back as ones.
Value keep_dims(Value reduced, const Dims& operand_dims, const Dims& dims);
// A result without the reduced dimensions, repeated along them.
Value spread(Value reduced, const Dims& operand_dims, const Dims& dims);

Value reduce_sum(Value operand, const Dims& dims);
Value reduce_prod(Value operand, const Dims& dims);
// Greatest and least; a NaN wins.
Value reduce_max(Value operand, const Dims& dims);
Value reduce_min(Value operand, const Dims& dims);
// Of booleans.
Value reduce_or(Value operand, const Dims& dims);
Value reduce_and(Value operand, const Dims& dims);
// NaN where nothing is reduced.
Value reduce_mean(Value operand, const Dims& dims);

// The mean, and the mean of the squared distances from it with `size - correction` in place of the
// size. The variance of complex numbers is real.
struct Moments {
  Value mean;
  Value variance;
};
Moments moments(Value operand, const Dims& dims, double correction);

// (sum of |x|^ord)^(1/ord), with the limits for ord = 0 (count), inf (max) and -inf (min).
Value vector_norm(Value operand, double ord, const Dims& dims);

// The greatest (or least) along `dim` and its int64 index: the first of equal ones, a NaN before
// any number.
std::pair<Value, Value> reduce_with_index(Value operand, std::int64_t dim, bool greatest);

// 0-dim stands for one dimension of size 1, for operators that work along a dimension.
Value at_least_1d(Value value);

// Bool of floats: where they are NaN. Other dtypes have none.
Value is_nan(Value value);

// PyTorch's C++ name of a dtype, as its error messages have it: "Long".
std::string_view scalar_type_name(DType dtype);
// Throws NotImplementedError as PyTorch's dtype dispatch does, unless `is_supported`.
void check_implemented(bool is_supported, std::string_view kernel, DType dtype);

}  // namespace torch_xla::ops

// Type promotion, broadcasting and conversion of values, as PyTorch's TensorIterator does them;
// shared by all families.
#pragma once

#include <initializer_list>
#include <span>

#include "ops/registry.h"

namespace torch_xla::ops {

// The floating type of what has none of its own, Python's numbers and quotients of integers, while
// a call is lowered in this thread: PyTorch's default dtype when it was recorded.
class DefaultFloat {
 public:
  explicit DefaultFloat(DType dtype);
  ~DefaultFloat();
  DefaultFloat(const DefaultFloat&) = delete;
  DefaultFloat& operator=(const DefaultFloat&) = delete;

  static DType now();

 private:
  DType outer_;
};

// PyTorch's result_type: dimensioned tensors before 0-dim tensors before wrapped numbers, by
// category (bool < integral < floating < complex). A wrapped number of a higher category gives the
// default dtype of that category.
DType result_type(std::initializer_list<Value> values);
DType result_type(std::span<const Value> values);
// The same with integral results replaced by the default floating type, as `sin` and `div` do.
DType float_result_type(std::initializer_list<Value> values);

// The dtype of a tensor made of a Python number: PyTorch's default dtype for float64, the complex
// type of that width for complex128.
DType number_dtype(DType number);

// The broadcast of the sizes; throws as PyTorch words it: "The size of tensor a (2) must match the
// size of tensor b (3) at non-singleton dimension 0".
Dims broadcast_dims(const Dims& a, const Dims& b);
Dims broadcast_dims(std::initializer_list<Value> values);

// hlo::convert converts as `Tensor.to` does (to bool: != 0; complex to real: the real part).
using hlo::convert;
// `value` broadcast to `dims` by PyTorch's rules (aligned at the last dimension).
Value broadcast_to(Value value, const Dims& dims);
// Converted to the common dtype and broadcast against each other.
std::vector<Value> promote(std::initializer_list<Value> values);
std::vector<Value> promote_to(std::initializer_list<Value> values, DType dtype);

// A constant of `like`'s type and shape.
Value full_like(Value like, const Scalar& number);
// A 0-dim constant.
Value scalar(hlo::Builder& builder, DType dtype, const Scalar& number);
Value full(hlo::Builder& builder, const Shape& shape, const Scalar& number);

// The greatest, or least, finite or infinite value of a dtype, as a 0-dim constant: what a max, or
// min, reduction starts from.
Value lowest(hlo::Builder& builder, DType dtype);
Value highest(hlo::Builder& builder, DType dtype);

// The dtype in which sums of `dtype` are accumulated: float32 for float16 and bfloat16.
DType accumulate_dtype(DType dtype);

// Checks -rank <= dim < rank and makes it non-negative; a 0-dim tensor counts as 1-dim. Throws
// IndexError: "Dimension out of range (expected to be in range of [-2, 1], but got 2)".
std::int64_t wrap_dim(std::int64_t dim, std::int64_t rank);
// As above for a list without repeats; an empty or absent list means all dimensions.
Dims wrap_dims(const Dims& dims, std::int64_t rank);
// All dimensions other than `dim`, in order.
Dims all_but(std::int64_t dim, std::int64_t rank);
// The sizes before the last `count`, and those. An error where there are fewer.
Dims leading_dims(const Dims& dims, std::size_t count);
Dims trailing_dims(const Dims& dims, std::size_t count);

}  // namespace torch_xla::ops

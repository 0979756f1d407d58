// Products of matrices and vectors (mm, addmm, bmm, dot, ...). All are one dot_general whose
// dimension numbers say what is contracted, so nothing is transposed first. float16 and bfloat16
// accumulate in float32, the added term included, and are rounded once.
#include "ops/linear_algebra.h"

#include <numeric>

#include "hlo/partitioned.h"
#include "ops/expression.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

// The names in which PyTorch's matrix products complain about a dtype: "float".
std::string_view plain_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return "c10::Half";
    case DType::kBFloat16: return "c10::BFloat16";
    case DType::kFloat32: return "float";
    case DType::kFloat64: return "double";
    case DType::kInt32: return "int";
    case DType::kInt64: return "long long";
    default: return scalar_type_name(dtype);
  }
}

void check_added_dtype(Value self, Value m2) {
  base::check(self.dtype() == m2.dtype(), "self and mat2 must have the same dtype, but got ",
              scalar_type_name(self.dtype()), " and ", scalar_type_name(m2.dtype()));
}

bool is_product_dtype(DType dtype) {
  const bool is_wide_unsigned =
      dtype == DType::kUInt16 || dtype == DType::kUInt32 || dtype == DType::kUInt64;
  return dtype != DType::kBool && !is_wide_unsigned;
}

// A factor of zero gives zero, also of NaNs and infinities: `is_zero` says that of numbers which
// are zero for certain, and data may be.
Value times(Value value, const Factor& factor) {
  if (factor.is_one) return value;
  if (factor.is_zero) return full_like(value, 0);
  const Value number = convert(factor.value, value.dtype());
  return where(equal(number, 0), 0, value * number);
}

// beta * self + alpha * product, rounded to `dtype` once. `product` has the result's sizes. A beta
// of zero leaves self out, NaNs and infinities included.
Value accumulated(Value self, Value product, const Factor& beta, const Factor& alpha, DType dtype) {
  product = times(product, alpha);
  if (!beta.is_zero) {
    const Value term = times(convert(self, product.dtype()), beta);
    product = broadcast_to(term, product.dims()) + product;
  }
  return convert(product, dtype);
}

// [n, k] x [k, m], accumulated.
Value mm_product(Value m1, Value m2) {
  check_product_dtypes(m1, m2);
  check_implemented(is_product_dtype(m1.dtype()), "addmm_impl_cpu_", m1.dtype());
  return contract(m1, m2, {{}, {}, {1}, {0}});
}

// The dimensions that were merged into the first of a batch of matrices; empty where none were.
Dims merged_dims(Value batch) {
  const hlo::Builder& builder = batch.builder();
  const auto* const view = builder.transposition(batch);
  if (view != nullptr) return view->permutation[0] == 0 ? merged_dims(view->operand) : Dims();
  const Value* const before = builder.reshaped(batch);
  if (before == nullptr || before->rank() <= 3) return {};
  const bool has_matrices = before->dim(before->rank() - 2) == batch.dim(1) &&
                            before->dim(before->rank() - 1) == batch.dim(2);
  return has_matrices ? leading_dims(before->dims(), 2) : Dims();
}

// A batch of matrices with its first dimension as these.
Value unmerged(Value batch, const Dims& dims) {
  const auto* const view = batch.builder().transposition(batch);
  if (view != nullptr && view->permutation == Dims{0, 2, 1}) {
    return matrix_transpose(unmerged(view->operand, dims));
  }
  Dims whole = dims;
  whole.insert(whole.end(), {batch.dim(1), batch.dim(2)});
  return hlo::reshape(batch, whole);
}

// The product of two batches of matrices. In a program that is partitioned, dimensions that PyTorch
// merged into the batch are kept apart: attention's heads may be split, and those behind a batch
// that is whole can't be once they are merged with it.
Value batched_product(Value batch1, Value batch2) {
  Dims dims;
  if (hlo::is_partitioned()) dims = merged_dims(batch1);
  if (hlo::is_partitioned() && dims.empty()) dims = merged_dims(batch2);
  if (dims.empty()) return contract(batch1, batch2, {{0}, {0}, {2}, {1}});
  Dims batch(dims.size());
  std::iota(batch.begin(), batch.end(), 0);
  const auto rank = static_cast<std::int64_t>(dims.size());
  const Value product =
      contract(unmerged(batch1, dims), unmerged(batch2, dims), {batch, batch, {rank + 1}, {rank}});
  return hlo::reshape(product, {batch1.dim(0), batch1.dim(1), batch2.dim(2)});
}

Value bmm_product(Value batch1, Value batch2) {
  base::check(batch1.dtype() == batch2.dtype(), "expected scalar type ",
              scalar_type_name(batch1.dtype()), " but found ", scalar_type_name(batch2.dtype()));
  check_implemented(is_product_dtype(batch1.dtype()), "bmm", batch1.dtype());
  return batched_product(batch1, batch2);
}

Value addmm(Value self, Value mat1, Value mat2, const Factor& beta, const Factor& alpha) {
  check_added_dtype(self, mat2);
  return accumulated(self, mm_product(mat1, mat2), beta, alpha, self.dtype());
}

Value baddbmm(Value self, Value batch1, Value batch2, const Factor& beta, const Factor& alpha) {
  base::check(self.dtype() == batch1.dtype() && self.dtype() == batch2.dtype(),
              "Input dtypes must be the same, got: input ", plain_name(self.dtype()),
              ", batch1: ", plain_name(batch1.dtype()), ", batch2: ", plain_name(batch2.dtype()));
  return accumulated(self, bmm_product(batch1, batch2), beta, alpha, self.dtype());
}

// A size as PyTorch reads it, of tensors of fewer dimensions too.
std::int64_t size_of(Value value, std::int64_t dim) {
  if (value.rank() == 0) {
    base::fail(base::ErrorKind::kIndex, "Dimension specified as ", dim,
               " but tensor has no dimensions");
  }
  return value.dim(wrap_dim(dim, value.rank()));
}

void check_expands(Value self, const Dims& sizes) {
  const auto rank = static_cast<std::int64_t>(sizes.size());
  base::check(self.rank() <= rank, "expand(torch.", scalar_type_name(self.dtype()), "Tensor{",
              base::to_string(self.dims()), "}, size=", base::to_string(sizes),
              "): the number of sizes provided (", rank,
              ") must be greater or equal to the number of dimensions in the tensor (", self.rank(),
              ")");
  for (std::int64_t i = 1; i <= self.rank(); ++i) {
    const std::int64_t size = self.dim(self.rank() - i);
    const std::int64_t wanted = sizes[static_cast<std::size_t>(rank - i)];
    base::check(size == 1 || size == wanted, "The expanded size of the tensor (", wanted,
                ") must match the existing size (", size, ") at non-singleton dimension ", rank - i,
                ".  Target sizes: ", base::to_string(sizes),
                ".  Tensor sizes: ", base::to_string(self.dims()));
  }
}

// The sum over the batch of its matrix products: batch and columns are contracted at once.
Value addbmm(Value self, Value batch1, Value batch2, const Factor& beta, const Factor& alpha) {
  check_expands(self, {size_of(batch1, 1), size_of(batch2, 2)});
  base::check(batch1.rank() == 3, "batch1 must be a 3D tensor");
  base::check(batch2.rank() == 3, "batch2 must be a 3D tensor");
  base::check(batch1.dim(0) == batch2.dim(0),
              "batch1 and batch2 must have same number of batches, got ", batch1.dim(0), " and ",
              batch2.dim(0));
  base::check(batch1.dim(2) == batch2.dim(1), "Incompatible matrix sizes for bmm (", batch1.dim(1),
              "x", batch1.dim(2), " and ", batch2.dim(1), "x", batch2.dim(2), ")");
  check_product_dtypes(batch1, batch2);
  check_added_dtype(self, batch2);
  check_implemented(is_product_dtype(batch1.dtype()), "addmm_impl_cpu_", batch1.dtype());
  const Value product = contract(batch1, batch2, {{}, {}, {0, 2}, {0, 1}});
  return accumulated(self, product, beta, alpha, self.dtype());
}

Value addmv(Value self, Value mat, Value vec, const Factor& beta, const Factor& alpha) {
  base::check(mat.dtype() == vec.dtype() && self.dtype() == mat.dtype(),
              "addmv input tensors must have the same dtype, but got ",
              scalar_type_name(self.dtype()), ", ", scalar_type_name(mat.dtype()), ", and ",
              scalar_type_name(vec.dtype()));
  return accumulated(self, contract(mat, vec, {{}, {}, {1}, {0}}), beta, alpha, self.dtype());
}

Value mv(Value self, Value vec) {
  base::check(self.rank() == 2 && vec.rank() == 1, "vector + matrix @ vector expected, got 1, ",
              self.rank(), ", ", vec.rank());
  base::check(self.dim(1) == vec.dim(0), "size mismatch, got input (", self.dim(0), "), mat (",
              self.dim(0), "x", self.dim(1), "), vec (", vec.dim(0), ")");
  base::check(self.dtype() == vec.dtype(), "addmv input tensors must have the same dtype, but got ",
              scalar_type_name(vec.dtype()), ", ", scalar_type_name(self.dtype()), ", and ",
              scalar_type_name(vec.dtype()));
  return convert(contract(self, vec, {{}, {}, {1}, {0}}), self.dtype());
}

Value dot(Value self, Value other) {
  base::check(self.rank() == 1 && other.rank() == 1, "1D tensors expected, but got ", self.rank(),
              "D and ", other.rank(), "D tensors");
  base::check(self.dtype() == other.dtype(),
              "dot : expected both vectors to have same dtype, but found ",
              scalar_type_name(self.dtype()), " and ", scalar_type_name(other.dtype()));
  base::check(self.dim(0) == other.dim(0), "inconsistent tensor size, expected tensor [",
              self.dim(0), "] and src [", other.dim(0),
              "] to have the same number of elements, but got ", self.dim(0), " and ", other.dim(0),
              " elements respectively");
  check_implemented(is_product_dtype(self.dtype()), "dot", self.dtype());
  return convert(contract(self, other, {{}, {}, {0}, {0}}), self.dtype());
}

// beta * self + alpha * outer(vec1, vec2); of booleans with `and` and `or`.
Value addr(Value self, Value vec1, Value vec2, const Factor& beta, const Factor& alpha) {
  base::check(vec1.rank() == 1, "addr: Expected 1-D argument vec1, but got ", vec1.rank(), "-D");
  base::check(vec2.rank() == 1, "addr: Expected 1-D argument vec2, but got ", vec2.rank(), "-D");
  const Dims dims = {vec1.dim(0), vec2.dim(0)};
  base::check(self.rank() <= 2 && broadcast_dims(self.dims(), dims) == dims,
              "The expanded size of the tensor must match the existing size.  Target sizes: ",
              base::to_string(dims), ".  Tensor sizes: ", base::to_string(self.dims()));
  const DType dtype = result_type({self, vec1, vec2});
  const DType wide = accumulate_dtype(dtype);
  const Value outer = hlo::broadcast_in_dim(convert(vec1, wide), dims, {0}) *
                      hlo::broadcast_in_dim(convert(vec2, wide), dims, {1});
  return accumulated(self, outer, beta, alpha, dtype);
}

// `value` with its three elements along `dim` moved `shift` places towards the front.
Value rotated(Value value, std::int64_t dim, std::int64_t shift) {
  const Dims ones(static_cast<std::size_t>(value.rank()), 1);
  const auto d = static_cast<std::size_t>(dim);
  Dims start(ones.size(), 0);
  Dims middle = value.dims();
  middle[d] = shift;
  Dims middle_start = start;
  middle_start[d] = shift;
  return hlo::concatenate(
      {hlo::slice(value, middle_start, value.dims(), ones), hlo::slice(value, start, middle, ones)},
      dim);
}

Value linalg_cross(Value self, Value other, std::int64_t dim) {
  const std::vector<Value> both = promote({self, other});
  const Value a = both[0];
  const Value b = both[1];
  const std::int64_t d = wrap_dim(dim, a.rank());
  return rotated(a, d, 1) * rotated(b, d, 2) - rotated(a, d, 2) * rotated(b, d, 1);
}

Value gelu(Value x) { return x * 0.5 * (error_function(x * 0.70710678118654752440) + 1.0); }

// The sum over `sumdim` of the product of three tensors, each given dimensions of size 1 at its
// `expand` first.
Value trilinear(Value i1, Value i2, Value i3, const Dims& expand1, const Dims& expand2,
                const Dims& expand3, const Dims& sumdim, std::int64_t) {
  const auto with_ones = [](Value value, const Dims& expand) {
    Dims dims = value.dims();
    for (const std::int64_t d : expand) dims.insert(dims.begin() + d, 1);
    return convert(hlo::reshape(value, dims), accumulate_dtype(value.dtype()));
  };
  const std::vector<Value> factors =
      promote({with_ones(i1, expand1), with_ones(i2, expand2), with_ones(i3, expand3)});
  const Value product = factors[0] * factors[1] * factors[2];
  const Dims summed = sumdim.empty() ? Dims{} : wrap_dims(sumdim, product.rank());
  return convert(reduce_sum(product, summed), i1.dtype());
}

// Matrices of float8 with a scale for each, or one for each of its rows (a) and columns (b). The
// product is scaled in float32, where XLA finds the hardware's own product of float8 by this form.
Value scaled_mm(Value self, Value mat2, Value scale_a, Value scale_b, std::optional<Value> bias,
                std::optional<Value> scale_result, std::optional<DType> out_dtype, bool) {
  base::check(self.rank() == 2 && mat2.rank() == 2,
              "Inputs must be 2D but got self.dim()=", self.rank(),
              " and mat2.dim()=", mat2.rank());
  if (!base::is_float8(self.dtype()) || !base::is_float8(mat2.dtype())) {
    base::fail(base::ErrorKind::kValue, "_scaled_mm: expected matrices of float8, got ",
               plain_name(self.dtype()), " and ", plain_name(mat2.dtype()));
  }
  base::check(self.dim(1) == mat2.dim(0), "mat1 and mat2 shapes cannot be multiplied (",
              self.dim(0), "x", self.dim(1), " and ", mat2.dim(0), "x", mat2.dim(1), ")");
  const DType dtype = out_dtype.value_or(self.dtype());
  Value product = matrix_product(convert(self, DType::kFloat32), convert(mat2, DType::kFloat32));
  const Dims dims = product.dims();
  const auto scale = [&](Value factor) {
    const Value number = convert(factor, DType::kFloat32);
    const bool is_one = number.num_elements() == 1;
    product = product * broadcast_to(is_one ? hlo::reshape(number, {}) : number, dims);
  };
  scale(scale_a);
  scale(scale_b);
  if (bias.has_value()) product = product + broadcast_to(convert(*bias, DType::kFloat32), dims);
  // Wider results hold what the product is.
  if (scale_result.has_value() && base::size_bytes(dtype) == 1) scale(*scale_result);
  return convert(product, dtype);
}

void register_products(Registry& m) {
  m.impl("_scaled_mm", scaled_mm);
  m.impl("_trilinear", trilinear);
  m.impl("mm",
         [](Value self, Value mat2) { return convert(mm_product(self, mat2), self.dtype()); });
  m.impl("mm.dtype", [](Value self, Value mat2, DType out_dtype) {
    return convert(mm_product(self, mat2), out_dtype);
  });
  m.impl("bmm",
         [](Value self, Value mat2) { return convert(bmm_product(self, mat2), self.dtype()); });
  m.impl("bmm.dtype", [](Value self, Value mat2, DType out_dtype) {
    return convert(bmm_product(self, mat2), out_dtype);
  });
  m.impl("_int_mm", [](Value self, Value mat2) {
    base::check(self.dtype() == DType::kInt8 && mat2.dtype() == DType::kInt8,
                "_int_mm: expected int8 matrices, got ", scalar_type_name(self.dtype()), " and ",
                scalar_type_name(mat2.dtype()));
    return hlo::dot_general(self, mat2, {{}, {}, {1}, {0}}, DType::kInt32);
  });
  m.impl("mv", mv);
  m.impl("dot", dot);
  m.impl("vdot", [](Value self, Value other) {
    return dot(base::is_complex(self.dtype()) ? hlo::conj(self) : self, other);
  });
  m.impl("linalg_cross", linalg_cross);
}

void register_added_products(Registry& m) {
  m.impl("addmm", addmm);
  m.impl("addmm.dtype",
         [](Value self, Value mat1, Value mat2, DType out_dtype, Factor beta, Factor alpha) {
           return accumulated(self, mm_product(mat1, mat2), beta, alpha, out_dtype);
         });
  m.impl("baddbmm", baddbmm, {.repeats = Repeats::kAllowed});
  m.impl("baddbmm.dtype",
         [](Value self, Value batch1, Value batch2, DType out_dtype, Factor beta, Factor alpha) {
           return accumulated(self, bmm_product(batch1, batch2), beta, alpha, out_dtype);
         });
  m.impl("addbmm", addbmm);
  m.impl("addmv", addmv, {.repeats = Repeats::kAllowed});
  m.impl("addr", addr);
  m.impl("_addmm_activation",
         [](Value self, Value mat1, Value mat2, Factor beta, Factor alpha, bool use_gelu) {
           const Value sum = addmm(self, mat1, mat2, beta, alpha);
           return use_gelu ? in_float32(gelu, sum) : max(sum, 0.0);
         });
}

}  // namespace

void check_product_dtypes(Value m1, Value m2) {
  base::check(m1.dtype() == m2.dtype(),
              "expected m1 and m2 to have the same dtype, but got: ", plain_name(m1.dtype()),
              " != ", plain_name(m2.dtype()));
}

Value contract(Value lhs, Value rhs, const hlo::DotDimensionNumbers& dimension_numbers) {
  return hlo::dot_general(lhs, rhs, dimension_numbers, accumulate_dtype(lhs.dtype()));
}

Value matrix_product(Value lhs, Value rhs) {
  const std::int64_t batch_rank = lhs.rank() - 2;
  Dims batch(static_cast<std::size_t>(batch_rank));
  std::iota(batch.begin(), batch.end(), 0);
  return convert(contract(lhs, rhs, {batch, batch, {batch_rank + 1}, {batch_rank}}), lhs.dtype());
}

Value matrix_transpose(Value value) {
  Dims permutation(static_cast<std::size_t>(value.rank()));
  std::iota(permutation.begin(), permutation.end(), 0);
  std::swap(permutation[permutation.size() - 2], permutation[permutation.size() - 1]);
  return hlo::transpose(value, permutation);
}

Value adjoint(Value value) {
  const Value transposed = matrix_transpose(value);
  return base::is_complex(value.dtype()) ? hlo::conj(transposed) : transposed;
}

Value row_compared_to_column(hlo::Builder& builder, std::int64_t rows, std::int64_t columns,
                             hlo::ComparisonDirection direction) {
  const Shape shape{DType::kInt32, {rows, columns}};
  return hlo::compare(hlo::iota(builder, shape, 0), hlo::iota(builder, shape, 1), direction);
}

namespace {

Value masked(Value matrices, hlo::ComparisonDirection direction) {
  const Value mask = row_compared_to_column(matrices.builder(), matrices.dim(matrices.rank() - 2),
                                            matrices.dim(matrices.rank() - 1), direction);
  return hlo::select(broadcast_to(mask, matrices.dims()), matrices, full_like(matrices, 0));
}

}  // namespace

Value lower_triangle(Value matrices) { return masked(matrices, hlo::ComparisonDirection::kGe); }
Value upper_triangle(Value matrices) { return masked(matrices, hlo::ComparisonDirection::kLe); }

Value identity(hlo::Builder& builder, const Shape& shape) {
  const Value mask = row_compared_to_column(builder, shape.dims[shape.dims.size() - 2],
                                            shape.dims.back(), hlo::ComparisonDirection::kEq);
  return broadcast_to(convert(mask, shape.dtype), shape.dims);
}

void register_linear_algebra(Registry& m) {
  register_products(m);
  register_added_products(m);
  register_matrix_factors(m);
  register_grouped_products(m);
  register_fft(m);
}

}  // namespace torch_xla::ops

// Batches of matrices, and loops over their columns.
#include "ops/matrix_batch.h"

#include "base/error.h"
#include "ops/expression.h"

namespace torch_xla::ops {

void check_matrices(const Value& value, const char* op, const char* name) {
  base::check(value.rank() >= 2, op, ": The input tensor ", name,
              " must have at least 2 dimensions.");
}

void check_square(const Value& value, const char* op, const char* name) {
  check_matrices(value, op, name);
  base::check(value.dim(value.rank() - 1) == value.dim(value.rank() - 2), op, ": ", name,
              " must be batches of square matrices, but they are ", value.dim(value.rank() - 2),
              " by ", value.dim(value.rank() - 1), " matrices");
}

Dims batch_dims(const Value& matrices) { return leading_dims(matrices.dims(), 2); }

Dims with_batch(const Dims& batch, const Dims& rest) {
  Dims out = batch;
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

Value broadcast_batch(Value matrices, const Dims& batch) {
  return broadcast_to(matrices, with_batch(batch, trailing_dims(matrices.dims(), 2)));
}

Value flat_batch(Value value, std::size_t rank) {
  const std::int64_t batch = base::num_elements(leading_dims(value.dims(), rank));
  return hlo::reshape(value, with_batch({batch}, trailing_dims(value.dims(), rank)));
}

Value split_batch(Value value, const Dims& batch) {
  return hlo::reshape(value, with_batch(batch, Dims(value.dims().begin() + 1, value.dims().end())));
}

Value position(hlo::Builder& builder, const Dims& dims, std::int64_t dim) {
  return hlo::iota(builder, {DType::kInt32, dims}, dim);
}

hlo::Values for_each_column(hlo::Builder& builder, std::int64_t count, const hlo::Values& state,
                            const ColumnStep& body) {
  hlo::Values start = {scalar(builder, DType::kInt32, 0)};
  start.insert(start.end(), state.begin(), state.end());
  hlo::Values end = hlo::while_(
      start, [&](std::span<const Value> v) { return less(v[0], static_cast<double>(count)); },
      [&](std::span<const Value> v) {
        hlo::Values next = {v[0] + 1.0};
        for (const Value& value : body(v[0], v.subspan(1))) next.push_back(value);
        return next;
      });
  end.erase(end.begin());
  return end;
}

Value column(Value matrices, Value k) {
  const Value zero = scalar(matrices.builder(), DType::kInt32, 0);
  const Dims sizes = {matrices.dim(0), matrices.dim(1), 1};
  return hlo::reshape(hlo::dynamic_slice(matrices, {zero, zero, k}, sizes),
                      {matrices.dim(0), matrices.dim(1)});
}

Value row(Value matrices, Value k) {
  const Value zero = scalar(matrices.builder(), DType::kInt32, 0);
  const Dims sizes = {matrices.dim(0), 1, matrices.dim(2)};
  return hlo::reshape(hlo::dynamic_slice(matrices, {zero, k, zero}, sizes),
                      {matrices.dim(0), matrices.dim(2)});
}

}  // namespace torch_xla::ops

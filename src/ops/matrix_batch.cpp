// Batches of matrices, and loops over their columns.
#include "ops/matrix_batch.h"

#include "ops/expression.h"

namespace torch_xla::ops {

Dims batch_dims(const Value& matrices) {
  return Dims(matrices.dims().begin(), matrices.dims().end() - 2);
}

Dims with_batch(const Dims& batch, const Dims& rest) {
  Dims out = batch;
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

Value broadcast_batch(Value matrices, const Dims& batch) {
  const Dims matrix(matrices.dims().end() - 2, matrices.dims().end());
  return broadcast_to(matrices, with_batch(batch, matrix));
}

Value flat_batch(Value value, std::int64_t rank) {
  const auto middle = value.dims().end() - rank;
  const Dims batch(value.dims().begin(), middle);
  return hlo::reshape(value,
                      with_batch({base::num_elements(batch)}, Dims(middle, value.dims().end())));
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

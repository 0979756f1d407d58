// Batches of matrices [..., m, n] as three dimensions, and loops over their columns: what the
// factorisations that StableHLO does not have are written with.
#pragma once

#include <functional>

#include "ops/registry.h"

namespace torch_xla::ops {

// PyTorch's complaints about matrices, before the program meets them: "linalg.inv: A must be ...".
void check_matrices(const Value& value, const char* op, const char* name);
void check_square(const Value& value, const char* op, const char* name);
// The dimensions before the matrices.
Dims batch_dims(const Value& matrices);
// `batch`, then `rest`.
Dims with_batch(const Dims& batch, const Dims& rest);
// Leading dimensions broadcast to `batch`.
Value broadcast_batch(Value matrices, const Dims& batch);
// [..., m, n] to [b, m, n], or [..., n] to [b, n] where `rank` is 1.
Value flat_batch(Value value, std::size_t rank = 2);
// [b, ...] with b split into `batch`.
Value split_batch(Value value, const Dims& batch);

// Int32 of these sizes: each element's position along `dim`.
Value position(hlo::Builder& builder, const Dims& dims, std::int64_t dim);

// Runs `body(k, state)` for k = 0, 1, ..., count - 1 (k is 0-dim int32), each on the last's result.
using ColumnStep = std::function<hlo::Values(Value k, std::span<const Value> state)>;
hlo::Values for_each_column(hlo::Builder& builder, std::int64_t count, const hlo::Values& state,
                            const ColumnStep& body);
// Column k, and row k, of matrices [b, m, n]: [b, m] and [b, n].
Value column(Value matrices, Value k);
Value row(Value matrices, Value k);

void register_lu_factors(Registry& m);
void register_qr_factors(Registry& m);

}  // namespace torch_xla::ops

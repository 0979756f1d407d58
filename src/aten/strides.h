// Strides of results where no Meta kernel says them: PyTorch's rules for elementwise operators and
// for memory formats.
#pragma once

#include <ATen/core/ivalue.h>

#include "graph/entry.h"

namespace torch_xla::aten {

// Row-major, where dimensions of size 1 may have any stride.
bool is_row_major(at::IntArrayRef sizes, at::IntArrayRef strides);

// `type` with the strides that TensorIterator gives to a result of these arguments; as it is, if
// its shape is not their broadcast. Of a list argument, element `i` takes part. A condition, if
// there is one, comes first, and is none of what it is computed from.
const graph::TensorType* with_pointwise_strides(const graph::TensorType* type,
                                                at::ArrayRef<c10::IValue> arguments, std::size_t i,
                                                bool has_condition);

// `type` with the strides of `empty_like(self, memory_format)`; `self` may be no tensor (`empty`).
const graph::TensorType* with_memory_format(const graph::TensorType* type, const c10::IValue& self,
                                            const c10::IValue& memory_format);

// `type` with matrices that lie column by column, each column `column_size` elements from the next,
// or as near as they fit.
const graph::TensorType* with_columns(const graph::TensorType* type, std::int64_t column_size = 0);

// `type` as a transform along `dims` leaves it: the other dimensions outermost, then `dims`, each
// group from the longest of the operand's strides to the shortest, but of a transform of or into
// reals the last of `dims` last.
const graph::TensorType* with_transform_strides(const graph::TensorType* type,
                                                at::IntArrayRef operand_strides,
                                                at::IntArrayRef dims, bool is_of_reals);

// `type`, if any, with the first of the memory formats that the tensors suggest, where it is not
// row-major.
const graph::TensorType* with_channels_like(const graph::TensorType* type,
                                            at::ArrayRef<c10::IValue> tensors);

}  // namespace torch_xla::aten

// Strides of results where no Meta kernel says them: PyTorch's rules for elementwise operators and
// for memory formats.
#pragma once

#include <ATen/core/ivalue.h>

#include <string_view>

#include "graph/entry.h"

namespace torch_xla::aten {

// Row-major, where dimensions of size 1 may have any stride.
bool is_row_major(at::IntArrayRef sizes, at::IntArrayRef strides);

// `type` with the strides that TensorIterator gives to a result of these arguments; as it is, if
// its shape is not their broadcast. Of a list argument, element `i` takes part.
const graph::TensorType* with_pointwise_strides(const graph::TensorType* type,
                                                at::ArrayRef<c10::IValue> arguments, std::size_t i);

// `type` with the strides of `empty_like(self, memory_format)`; `self` may be no tensor (`empty`).
const graph::TensorType* with_memory_format(const graph::TensorType* type, const c10::IValue& self,
                                            const c10::IValue& memory_format);

// How the results of an operator without a compiled Meta kernel are laid out, whatever the
// operands' strides are.
enum class Layout : std::uint8_t {
  kLikeOperands,   // row-major for row-major operands
  kMetaKernel,     // as torch's Meta kernel in Python says
  kTransform,      // the dimensions in the order in which a Fourier transform takes them
  kRealTransform,  // as two transforms leave them: to reals along the last dimension, after the
                   // rest
  kChannels,       // channels-last where one of the first two operands is, else row-major
  kFirstChannels,  // channels-last where the first operand is, else row-major
  kRows,           // row-major for any operands
  kColumns,        // matrices column by column, as LAPACK leaves them
};
Layout layout_of(std::string_view op);

// `type` with matrices that lie column by column, each column `column_size` elements from the next,
// or as near as they fit.
const graph::TensorType* with_columns(const graph::TensorType* type, std::int64_t column_size = 0);

// `type` as a transform along `dims` leaves it: the other dimensions outermost, then `dims`, each
// group from the longest of the operand's strides to the shortest, but of a transform of or into
// reals the last of `dims` last.
const graph::TensorType* with_transform_strides(const graph::TensorType* type,
                                                at::IntArrayRef operand_strides,
                                                at::IntArrayRef dims, bool is_of_reals);

// `type` with the first of the memory formats that the tensors suggest, where it is not row-major.
const graph::TensorType* with_channels_like(const graph::TensorType* type,
                                            at::ArrayRef<c10::IValue> tensors);

}  // namespace torch_xla::aten

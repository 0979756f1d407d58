// What the view operators compute, and how a write through each of them changes the tensor that it
// is a view of. Shared by the views proper (views.cpp), by their copies and scatters (shape.cpp),
// and by whoever needs a slice of one dimension.
#pragma once

#include <cstdint>

#include "ops/promotion.h"
#include "ops/registry.h"

namespace torch_xla::ops {

// Dimensions are non-negative throughout this header; starts and indices are in range.

// self[start : limit : step] of one dimension.
Value slice_dim(Value self, std::int64_t dim, std::int64_t start, std::int64_t limit,
                std::int64_t step = 1);
// With a dimension of size 1 put in before `dim`, and with dimension `dim` (of size 1) taken out.
Value insert_dim(Value self, std::int64_t dim);
Value remove_dim(Value self, std::int64_t dim);
// The sizes with dimension `dim` taken out, or given another size.
Dims without_dim(const Dims& dims, std::int64_t dim);
Dims with_dim(const Dims& dims, std::int64_t dim, std::int64_t size);
// Transposed; the identity gives `self` back.
Value permute(Value self, const Dims& permutation);
// Dimension `from` moved to place `to`, and the permutation that does it.
Value move_dim(Value self, std::int64_t from, std::int64_t to);
Dims move_permutation(std::int64_t rank, std::int64_t from, std::int64_t to);
Dims inverse_permutation(const Dims& permutation);

Value slice_view(Value self, std::int64_t dim, const Promotable& start, std::int64_t length,
                 std::int64_t step);
Value select_view(Value self, std::int64_t dim, const Promotable& index);
Value diagonal_view(Value self, std::int64_t offset, std::int64_t dim1, std::int64_t dim2);
Value unfold_view(Value self, std::int64_t dim, std::int64_t size, std::int64_t step);
// `self` is a dense tensor whose elements lie in storage by `root_strides`.
Value as_strided_view(Value self, const Dims& root_strides, const Dims& sizes, const Dims& strides,
                      const Promotable& storage_offset);
// The same bytes as another dtype; the last dimension takes up a difference in width.
Value bitcast_view(Value self, DType dtype);
Value as_real_view(Value self);
Value as_complex_view(Value self);

// Where a write changed a view: bool, of its shape. A write through a view of a view whose elements
// overlap changes some of them; the others still have the old value of the memory that they share.
Value changed_elements(Value before, Value after);

// The value of `parent` after `update` was written to the view that the arguments describe.
Value slice_write(Value parent, Value update, std::int64_t dim, const Promotable& start,
                  std::int64_t length, std::int64_t step);
Value select_write(Value parent, Value update, std::int64_t dim, const Promotable& index);
Value diagonal_write(Value parent, Value update, std::int64_t offset, std::int64_t dim1,
                     std::int64_t dim2);
Value expand_write(Value parent, Value update);
Value unfold_write(Value parent, Value update, std::int64_t dim, std::int64_t size,
                   std::int64_t step);
Value as_strided_write(Value parent, Value update, const Dims& root_strides, const Dims& sizes,
                       const Dims& strides, const Promotable& storage_offset);

// Zeros of the given sizes with every window of `grad` added where unfold_view took it from.
Value unfold_gradient(Value grad, const Dims& sizes, std::int64_t dim, std::int64_t size,
                      std::int64_t step);

}  // namespace torch_xla::ops

// Gathers and scatters as emission, for the families that index by tensors. Indices are int32 or
// int64 and in range unless a function says otherwise; one that is out of range reads the nearest
// element and writes nothing.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ops/promotion.h"
#include "ops/registry.h"

namespace torch_xla::ops {

// Negative indices counted from the end of a dimension of `size`.
Value wrap_negative(Value indices, std::int64_t size);

// The elements of a 1-dimensional tensor at `indices` of any shape.
Value gather_elements(Value flat, Value indices);
// A 1-dimensional tensor with `updates`, of the indices' shape, combined into it.
Value scatter_elements(Value flat, Value indices, Value updates, const hlo::BinaryRegion& combine);

// self[..., indices, ...]: the slices of dimension `dim` at `indices`, whose dimensions take the
// place of `dim`.
Value take_slices(Value self, std::int64_t dim, Value indices);
// `updates`, with one slice along `dim` for each of the 1-dimensional `indices`, combined into
// self.
Value scatter_slices(Value self, std::int64_t dim, Value indices, Value updates,
                     const hlo::BinaryRegion& combine);

// ATen's `gather`: out[i][j][k] = self[i][index[i][j][k]][k] for dim = 1.
Value gather_along(Value self, std::int64_t dim, Value index);

// How a scatter combines an element with an update, and the host's kernel that does, if there is
// one.
struct Combination {
  hlo::BinaryRegion region;
  std::string call = {};
};
Combination replacing();
Combination adding();

// ATen's `scatter`: the inverse of `gather`. `src` may be larger than the index, or 0-dim.
Value scatter_along(const Context& context, Value self, std::int64_t dim, Value index, Value src,
                    const Combination& combination);
// The same as a call, where it is better: `src` has the index's sizes or is 0-dim, and `self` has
// them too but for `dim`. An index of one dimension has a slice of `src` for each element.
std::optional<Value> called_scatter(const Context& context, Value self, std::int64_t dim,
                                    Value index, Value src, const Combination& combination);

// Throws as PyTorch's `gather` and `scatter` do unless the index has self's rank, is no larger
// outside `dim`, and is of int32 or int64; `src`, when given, must be at least as large.
void check_index_along(std::string_view op, Value self, std::int64_t dim, Value index,
                       const std::optional<Value>& src = std::nullopt);

// What a scatter combines with: the update takes the place of the element.
Value replace(Value element, Value update);
// The greater, and the lesser; NaN if either is. (XLA's CPU backend lets hlo::maximum and minimum
// drop a NaN inside a scatter.)
Value greater_of(Value element, Value update);
Value lesser_of(Value element, Value update);

// Checks that the dtype is int32 or int64 with the words that embedding operators use.
void check_long_or_int(Value indices, int argument, std::string_view name, std::string_view op);

// The running count of true elements of a 1-dimensional bool tensor, less one: for each true
// element, its place among the true ones. int64.
Value places_of_true(Value mask);

}  // namespace torch_xla::ops

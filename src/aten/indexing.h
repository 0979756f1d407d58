// Indexing operators whose arguments must be prepared before they can be recorded: index tensors
// from the CPU, and boolean masks, whose number of elements only the data tells.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

namespace torch_xla::aten {

using Indices = c10::List<std::optional<at::Tensor>>;

// Throws where `self[indices] = values` shares memory with an index or with the values.
void check_put(const at::Tensor& self, const Indices& indices, const at::Tensor& values,
               bool accumulate);
// What `self[indices] = values` makes of self, where the indices are one mask and else None: the
// mask chooses between self and values, and nobody needs to know how many elements it has. Nothing
// for other indices. Composed of differentiable operators.
std::optional<at::Tensor> put_by_mask(const at::Tensor& self, const Indices& indices,
                                      const at::Tensor& values, bool accumulate);

}  // namespace torch_xla::aten

// Tensors whose strides the caller names: `empty_strided`, `as_strided_scatter`, and how autograd
// takes the views of `as_strided` up again after a write. (The view itself is one of views.cpp.)
#pragma once

#include "aten/tensor.h"

namespace torch_xla::aten {

// Makes `self` stand for `view`, of the same memory, as `transpose_` and the like do.
void apply_view_in_place(const at::Tensor& self, const at::Tensor& view);

// A view that was taken by `as_strided`, as its base shows it: the gradient is the base's, though a
// view in between may lack some of the elements. Other tensors as they are.
at::Tensor seen_from_base(const at::Tensor& view);

}  // namespace torch_xla::aten

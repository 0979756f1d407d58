// Tensors whose strides the caller names: `empty_strided`, `as_strided_scatter`, and how autograd
// takes the views of `as_strided` up again after a write. (The view itself is one of views.cpp.)
#pragma once

#include <torch/library.h>

namespace torch_xla::aten {

void register_strided(torch::Library& m);
// For the autograd key.
void register_strided_autograd(torch::Library& m);

}  // namespace torch_xla::aten

// Operators whose derivative in PyTorch looks at values: it counts zeros, or selects by a mask. A
// look is a barrier in the middle of the backward pass, so these are composed, where a gradient is
// asked for, of operators whose derivatives do not look.
#pragma once

#include <torch/library.h>

namespace torch_xla::aten {

// For the autograd key.
void register_derivatives(torch::Library& m);

}  // namespace torch_xla::aten

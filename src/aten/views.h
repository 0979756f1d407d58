// View operators. Each becomes one of a few internal operators ("view:slice", "view:permute", ...)
// that the registry lowers forwards and backwards; the tensor made shares its base's alias.
#pragma once

#include <torch/library.h>

namespace torch_xla::aten {

void register_views(torch::Library& m);
// reshape, contiguous, ravel and flatten decide by the strides here: torch's own trust
// is_contiguous(), which is true of most tensors on this device, and would alias where CPU copies.
// resolve_conj and resolve_neg copy as they do where a bit says what is a view here. Calls of
// Tensor.contiguous() never get here, as torch asks is_contiguous() before it dispatches: the
// package patches the method.
void register_copying_views(torch::Library& m);

}  // namespace torch_xla::aten

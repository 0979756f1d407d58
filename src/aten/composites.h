// Composite operators that are kept whole: torch would take `linear` and
// `scaled_dot_product_attention` apart into a dozen calls, each of them recorded.
#pragma once

#include <torch/library.h>

namespace torch_xla::aten {

// For the XLA key, where `linear` itself has a lowering.
void register_composites(torch::Library& m);
// For the key above it: decides which calls can stay whole.
void register_composites_autograd(torch::Library& m);

}  // namespace torch_xla::aten

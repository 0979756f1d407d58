// Indexing operators whose arguments must be prepared before they can be recorded: index tensors
// from the CPU, and boolean masks, whose number of elements only the data tells.
#pragma once

#include <torch/library.h>

namespace torch_xla::aten {

void register_indexing(torch::Library& m);

}  // namespace torch_xla::aten

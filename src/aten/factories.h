// `out=` overloads of what makes numbers out of nothing: the tensor that is written says dtype and
// device, which the functional overloads take as arguments.
#pragma once

#include <torch/library.h>

namespace torch_xla::aten {

void register_factories(torch::Library& m);

}  // namespace torch_xla::aten

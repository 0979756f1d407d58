// Operators whose results have as many elements as the data say: their inputs are computed and
// read, which is one barrier each.
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace torch_xla::aten {

void register_dynamic_shapes(torch::Library& m);
// Splits at positions that lie on the device. For the autograd key too.
void register_splits(torch::Library& m);

// Their names, as "bincount".
std::vector<std::string> dynamic_operators();

// Counts such a barrier as `DataDependentShape`, and warns about the first of each `name` at the
// user's line.
void report_dynamic_shape(const std::string& name);

}  // namespace torch_xla::aten

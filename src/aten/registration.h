// What the dispatcher is told when the library is loaded.
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace torch_xla::aten {

// What each file registers for the key XLA; with `_autograd`, for the autograd key.
void register_views(torch::Library& m);
void register_copying_views(torch::Library& m);
void register_strided(torch::Library& m);
void register_strided_autograd(torch::Library& m);
void register_copies(torch::Library& m);
void register_indexing(torch::Library& m);
void register_composites(torch::Library& m);
void register_composites_autograd(torch::Library& m);
void register_recurrences(torch::Library& m);
void register_factories(torch::Library& m);
void register_factor_checks(torch::Library& m);
void register_dynamic_shapes(torch::Library& m);
void register_splits(torch::Library& m);
void register_derivatives(torch::Library& m);

// Lowerings that this torch cannot use, each with the reason: names it does not know, parameters
// that do not fit its schema. Empty when registry and torch agree; a test asserts it.
std::vector<std::string> registration_problems();
void add_registration_problem(std::string problem);
// The operators that the recording kernel serves.
std::vector<std::string> lowered_operators();
// Those that programs call on the host where they can (see ops/aten_call.h).
std::vector<std::string> host_operators();

}  // namespace torch_xla::aten

// Operators whose results have as many elements as the data say: their inputs are computed and
// read, which is one barrier each.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>
#include <vector>

namespace torch_xla::aten {

// Reports and runs one call.
void run_with_dynamic_shape(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// The names of those that always do so, as "bincount".
std::vector<std::string> dynamic_operators();

// Counts such a barrier as `DataDependentShape`, and warns about the first of each `name` at the
// user's line.
void report_dynamic_shape(const std::string& name);

}  // namespace torch_xla::aten

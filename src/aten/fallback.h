// The kernel of every operator that has no other.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>

namespace torch_xla::aten {

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// True once for each name: users are told once.
bool is_first_use(const std::string& name);

}  // namespace torch_xla::aten

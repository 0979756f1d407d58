// The kernel of every operator that has no other.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace torch_xla::aten {

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace torch_xla::aten

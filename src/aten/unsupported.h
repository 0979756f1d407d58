// Kinds of tensors that this device does not have: sparse, quantized and nested ones. Every call
// that would read or make one on xla is refused with a NotImplementedError that says what to do
// instead.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace torch_xla::aten {

// For calls that would run on the CPU: refuses those that take or return such tensors.
void check_kinds(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

}  // namespace torch_xla::aten

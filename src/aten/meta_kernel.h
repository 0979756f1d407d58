// Meta kernels: PyTorch's own functions from the types of an operator's arguments to those of its
// results. The dispatcher calls the newest one, which in a Python process is often a slow one that
// torch registers from Python in front of the compiled one. This finds the compiled one behind it.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>

namespace torch_xla::aten {

// The operator's compiled Meta kernel, even if one written in Python is in front of it. It shares
// the checks, and their words, with PyTorch's kernel for the CPU. Null if there is none.
std::optional<c10::KernelFunction> compiled_meta_kernel(const c10::OperatorHandle& handle);

// Calls `kernel`, or what the dispatcher has for Meta where it is null, with every xla tensor of
// the stack's last `num_arguments` replaced by a meta tensor of the same type; the results are on
// the returned stack.
torch::jit::Stack call_on_meta(const c10::OperatorHandle& handle, const c10::KernelFunction* kernel,
                               std::size_t num_arguments, const torch::jit::Stack& stack);

// A meta tensor of the same type; other tensors as they are.
at::Tensor to_meta(const at::Tensor& tensor);

}  // namespace torch_xla::aten

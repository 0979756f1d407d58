// Calls of PyTorch's own kernels on tensors of another device that stand in for those of this one.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/Exception.h>

#include <functional>

namespace torch_xla::aten {

using StandIn = std::function<at::Tensor(const at::Tensor&)>;

// The stack's last `num_arguments`, with `stand_in` of every defined tensor, with `device` where
// one is named, and without generators and pinned memory.
torch::jit::Stack with_stand_ins(const c10::OperatorHandle& handle, std::size_t num_arguments,
                                 const torch::jit::Stack& stack, c10::Device device,
                                 const StandIn& stand_in);

// What PyTorch's kernel for the CPU has not implemented, in its words.
class RefusedByCpu final : public c10::NotImplementedError {
 public:
  explicit RefusedByCpu(const c10::NotImplementedError& error) : c10::NotImplementedError(error) {}
};

// Calls PyTorch's kernel for the CPU, below autograd, modes and hooks. Its NotImplementedError
// comes as RefusedByCpu.
void call_on_cpu(const c10::OperatorHandle& handle, torch::jit::Stack& stack);

// Calls PyTorch's kernel for the CPU on ones of the same types, for its errors: where a dtype is
// refused it has the words and the class that users know. Returns if it refuses nothing, or if the
// call is too large to be tried.
void ask_cpu(const c10::OperatorHandle& handle, std::size_t num_arguments,
             const torch::jit::Stack& stack);

}  // namespace torch_xla::aten

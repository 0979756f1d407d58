// Arguments of PyTorch's operators, made of numbers.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/Scalar.h>

#include <span>
#include <vector>

namespace torch_xla::aten {

// The number as an argument of this type.
c10::IValue to_kind(const c10::Type& type, const at::Scalar& scalar);
// The numbers as an argument of this type, a list.
c10::IValue list_of(const c10::Type& type, std::span<const at::Scalar> scalars);
// The tensors that an operator has left, those of lists among them.
std::vector<at::Tensor> tensors_of(const torch::jit::Stack& stack);

}  // namespace torch_xla::aten

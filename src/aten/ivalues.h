// Arguments of PyTorch's operators, made of numbers.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/core/stack.h>
#include <c10/core/Scalar.h>

#include <optional>
#include <span>
#include <vector>

namespace torch_xla::aten {

// The number as an argument of this type.
c10::IValue to_kind(const c10::Type& type, const at::Scalar& scalar);
// The numbers as an argument of this type, a list.
c10::IValue list_of(const c10::Type& type, std::span<const at::Scalar> scalars);
// The tensors as an argument of this type, a list, which may hold None: where an index is negative.
template <typename Index, typename Get>
c10::IValue list_of_tensors(const c10::Type& type, std::span<const Index> indices, const Get& get) {
  const auto element = type.castRaw<c10::ListType>()->getElementType();
  if (element->kind() == c10::TypeKind::OptionalType) {
    c10::List<std::optional<at::Tensor>> list;
    for (const Index index : indices) {
      list.push_back(index < 0 ? std::nullopt : std::optional<at::Tensor>(get(index)));
    }
    return list;
  }
  c10::List<at::Tensor> list;
  for (const Index index : indices) list.push_back(get(index));
  return list;
}
// The tensors that an operator has left, those of lists among them.
std::vector<at::Tensor> tensors_of(const torch::jit::Stack& stack);

}  // namespace torch_xla::aten

#include "aten/ivalues.h"

namespace torch_xla::aten {

c10::IValue to_kind(const c10::Type& type, const at::Scalar& scalar) {
  switch (type.kind()) {
    case c10::TypeKind::FloatType: return scalar.toDouble();
    case c10::TypeKind::BoolType:
    case c10::TypeKind::SymBoolType: return scalar.toBool();
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType: return scalar.toLong();
    default: return scalar;
  }
}

c10::IValue list_of(const c10::Type& type, std::span<const at::Scalar> scalars) {
  const c10::Type& element = *type.castRaw<c10::ListType>()->getElementType();
  c10::List<std::int64_t> integers;
  c10::List<double> reals;
  c10::List<bool> booleans;
  for (const at::Scalar& scalar : scalars) {
    const c10::IValue value = to_kind(element, scalar);
    if (value.isDouble()) reals.push_back(value.toDouble());
    if (value.isInt()) integers.push_back(value.toInt());
    if (value.isBool()) booleans.push_back(value.toBool());
  }
  if (element.kind() == c10::TypeKind::FloatType) return reals;
  if (element.kind() == c10::TypeKind::BoolType) return booleans;
  return integers;
}

std::vector<at::Tensor> tensors_of(const torch::jit::Stack& stack) {
  std::vector<at::Tensor> out;
  for (const c10::IValue& value : stack) {
    if (value.isTensor()) {
      out.push_back(value.toTensor());
    } else {
      for (const at::Tensor& tensor : value.toTensorVector()) out.push_back(tensor);
    }
  }
  return out;
}

}  // namespace torch_xla::aten

// Replacing the tensors of a call.
#include "aten/stand_ins.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include "aten/tensor.h"

namespace torch_xla::aten {
namespace {

// What trying a call on the CPU may cost.
constexpr std::int64_t kMostElements = 1 << 20;

c10::IValue replaced(const c10::IValue& value, c10::Device device, const StandIn& stand_in) {
  const auto of = [&](const at::Tensor& x) { return x.defined() ? stand_in(x) : x; };
  if (value.isTensor()) return of(value.toTensor());
  if (value.isDevice()) return device;
  if (value.isGenerator()) return {};
  if (value.isTensorList()) {
    c10::List<at::Tensor> out;
    for (const at::Tensor& tensor : value.toTensorList()) out.push_back(of(tensor));
    return out;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> out;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
      out.push_back(tensor.has_value() ? std::optional(of(*tensor)) : std::nullopt);
    }
    return out;
  }
  return value;
}

}  // namespace

torch::jit::Stack with_stand_ins(const c10::OperatorHandle& handle, std::size_t num_arguments,
                                 const torch::jit::Stack& stack, c10::Device device,
                                 const StandIn& stand_in) {
  torch::jit::Stack out;
  const auto arguments = torch::jit::last(stack, num_arguments);
  const auto& schema = handle.schema().arguments();
  for (std::size_t i = 0; i < num_arguments; ++i) {
    out.push_back(replaced(arguments[i], device, stand_in));
    if (schema[i].name() == "device") out.back() = device;
    if (schema[i].name() == "pin_memory") out.back() = c10::IValue();
  }
  return out;
}

void call_on_cpu(const c10::OperatorHandle& handle, torch::jit::Stack& stack) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  try {
    handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  } catch (const c10::NotImplementedError& error) {
    throw RefusedByCpu(error);
  }
}

void ask_cpu(const c10::OperatorHandle& handle, std::size_t num_arguments,
             const torch::jit::Stack& stack) {
  std::int64_t num_elements = 0;
  const auto ones = [&](const at::Tensor& tensor) {
    const TensorImpl* impl = as_xla(tensor);
    if (impl == nullptr) return tensor;
    const base::Shape& shape = impl->xla_type()->shape;
    num_elements += shape.num_elements();
    const auto options = at::TensorOptions().dtype(to_scalar_type(shape.dtype));
    if (num_elements > kMostElements) return at::empty({0}, options);
    return at::empty(shape.dims, options).fill_(1);
  };
  torch::jit::Stack on_cpu =
      with_stand_ins(handle, num_arguments, stack, c10::DeviceType::CPU, ones);
  if (num_elements > kMostElements) return;
  call_on_cpu(handle, on_cpu);
}

}  // namespace torch_xla::aten

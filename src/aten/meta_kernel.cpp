// Finding and calling of Meta kernels.
#include "aten/meta_kernel.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>

#include "aten/stand_ins.h"
#include "aten/tensor.h"

namespace torch_xla::aten {
namespace {

template <typename Kernels>
std::optional<c10::KernelFunction> first_compiled(const Kernels& kernels, c10::DispatchKey key) {
  const auto it = kernels.find(key);
  if (it == kernels.end()) return std::nullopt;
  for (const c10::impl::AnnotatedKernel& annotated : it->second) {
    const bool is_python = annotated.debug.find(".py:") != std::string::npos;
    if (!is_python && annotated.kernel.isValid() && !annotated.kernel.isFallthrough()) {
      return annotated.kernel;
    }
  }
  return std::nullopt;
}

std::optional<c10::KernelFunction> find_compiled(const c10::OperatorHandle& handle,
                                                 c10::DispatchKey key);

// The dispatcher keeps the kernels that a later registration hid, but shows them in texts only. Its
// members are named in an explicit instantiation, where the language does not ask who may.
template <auto kDefinition, auto kKernels>
struct HiddenKernels {
  friend std::optional<c10::KernelFunction> find_compiled(const c10::OperatorHandle& handle,
                                                          c10::DispatchKey key) {
    return first_compiled((handle.*kDefinition)->op.*kKernels, key);
  }
};
template struct HiddenKernels<&c10::OperatorHandle::operatorDef_,
                              &c10::impl::OperatorEntry::kernels_>;

}  // namespace

std::optional<c10::KernelFunction> compiled_meta_kernel(const c10::OperatorHandle& handle) {
  return find_compiled(handle, c10::DispatchKey::Meta);
}

torch::jit::Stack call_on_meta(const c10::OperatorHandle& handle, const c10::KernelFunction* kernel,
                               std::size_t num_arguments, const torch::jit::Stack& stack) {
  torch::jit::Stack meta =
      with_stand_ins(handle, num_arguments, stack, c10::DeviceType::Meta, to_meta);
  const at::AutoDispatchBelowADInplaceOrView guard;
  const c10::DispatchKeySet keys(c10::DispatchKey::Meta);
  if (kernel != nullptr) {
    kernel->callBoxed(handle, keys, &meta);
  } else {
    handle.redispatchBoxed(keys, &meta);
  }
  return meta;
}

at::Tensor to_meta(const at::Tensor& tensor) {
  const TensorImpl* impl = as_xla(tensor);
  if (impl == nullptr) return tensor;
  const graph::TensorType& type = *impl->xla_type();
  return at::empty_strided(
      type.shape.dims, type.strides,
      at::TensorOptions().dtype(to_scalar_type(type.shape.dtype)).device(c10::DeviceType::Meta));
}

}  // namespace torch_xla::aten

// Inference by Meta kernels and by lowerings.
#include "aten/infer.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>

#include "aten/errors.h"
#include "aten/tensor.h"
#include "base/metrics.h"
#include "ops/lower.h"
#include "runtime/client.h"

namespace torch_xla::aten {
namespace {

at::Tensor to_meta(const at::Tensor& tensor) {
  const TensorImpl* impl = as_xla(tensor);
  if (impl == nullptr) return tensor;
  const graph::TensorType& type = *impl->xla_type();
  return at::empty_strided(
      type.shape.dims, type.strides,
      at::TensorOptions().dtype(to_scalar_type(type.shape.dtype)).device(c10::DeviceType::Meta));
}

c10::IValue to_meta(const c10::IValue& value) {
  if (value.isTensor()) return to_meta(value.toTensor());
  if (value.isDevice()) return c10::Device(c10::DeviceType::Meta);
  if (value.isGenerator()) return {};
  if (value.isTensorList()) {
    c10::List<at::Tensor> out;
    for (const at::Tensor& tensor : value.toTensorList()) out.push_back(to_meta(tensor));
    return out;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> out;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
      out.push_back(tensor.has_value() ? std::optional(to_meta(*tensor)) : std::nullopt);
    }
    return out;
  }
  return value;
}

const graph::TensorType* type_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  return graph::intern(
      {{to_dtype(tensor.scalar_type()), tensor.sizes().vec()}, tensor.strides().vec()});
}

void append_types(const c10::IValue& value, std::vector<const graph::TensorType*>& types) {
  if (value.isTensor()) {
    types.push_back(type_of(value.toTensor()));
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList()) types.push_back(type_of(tensor));
  } else if (value.isNone()) {
    types.push_back(nullptr);
  }
}

std::vector<const graph::TensorType*> infer_by_meta(const Operator& op,
                                                    const torch::jit::Stack& stack) {
  const torch::jit::Stack results = call_on_meta(op.handle, op.arguments.size(), stack);
  std::vector<const graph::TensorType*> types;
  for (const c10::IValue& result : results) append_types(result, types);
  return types;
}

std::vector<const graph::TensorType*> infer_by_lowering(const graph::Entry& entry) {
  std::vector<const graph::TensorType*> types;
  for (const std::optional<base::Shape>& shape : ops::infer(entry, runtime::platform())) {
    types.push_back(shape.has_value() ? graph::intern_contiguous(*shape) : nullptr);
  }
  return types;
}

// In-place calls give their arguments' own types, whatever the lowering makes.
std::vector<const graph::TensorType*> written_types(const Operator& op,
                                                    const torch::jit::Stack& stack) {
  std::vector<const graph::TensorType*> types;
  const auto arguments = torch::jit::last(stack, op.arguments.size());
  for (const std::size_t i : op.written) {
    const c10::IValue& value = arguments[i];
    if (value.isTensor()) {
      types.push_back(
          expect_xla(value.toTensor(), op.schema.name, op.schema.args[i].name).xla_type());
    } else {
      for (const at::Tensor& tensor : value.toTensorList()) {
        types.push_back(expect_xla(tensor, op.schema.name, op.schema.args[i].name).xla_type());
      }
    }
  }
  return types;
}

// What an in-place call must hold when no Meta kernel says it.
void check_in_place(const Operator& op, const std::vector<const graph::TensorType*>& results,
                    const std::vector<const graph::TensorType*>& written) {
  for (std::size_t i = 0; i < written.size() && op.num_fresh_returns + i < results.size(); ++i) {
    const graph::TensorType* result = results[op.num_fresh_returns + i];
    if (result == nullptr) continue;
    const base::Shape& from = result->shape;
    const base::Shape& to = written[i]->shape;
    TORCH_CHECK(from.dims == to.dims, "aten::", op.schema.name, ": output with shape ",
                base::to_string(to.dims), " doesn't match the broadcast shape ",
                base::to_string(from.dims));
    TORCH_CHECK(c10::canCast(to_scalar_type(from.dtype), to_scalar_type(to.dtype)), "result type ",
                to_scalar_type(from.dtype), " can't be cast to the desired output type ",
                to_scalar_type(to.dtype));
  }
}

bool has_any_meta(const Operator& op) {
  return op.handle.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta);
}

}  // namespace

torch::jit::Stack call_on_meta(const c10::OperatorHandle& handle, std::size_t num_arguments,
                               const torch::jit::Stack& stack) {
  torch::jit::Stack meta;
  const auto arguments = torch::jit::last(stack, num_arguments);
  const auto& schema = handle.schema().arguments();
  for (std::size_t i = 0; i < num_arguments; ++i) {
    meta.push_back(to_meta(arguments[i]));
    if (schema[i].name() == "device") meta.back() = c10::Device(c10::DeviceType::Meta);
    if (schema[i].name() == "pin_memory") meta.back() = c10::IValue();
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &meta);
  return meta;
}

std::vector<const graph::TensorType*> infer_outputs(const Operator& op, const graph::Entry& entry,
                                                    const torch::jit::Stack& stack) {
  const bool writes = op.kind == graph::OpKind::kInPlace;
  std::vector<const graph::TensorType*> types;
  if ((op.has_cpp_meta || op.lowering->is_untyped) && op.effects.empty()) {
    types = infer_by_meta(op, stack);
  } else {
    try {
      types = infer_by_lowering(entry);
    } catch (const base::Error& error) {
      // Lowerings word their errors as PyTorch does. Where only StableHLO's rules saw this one,
      // PyTorch's own kernel words it better; if that sees none, ours stands.
      if (!ops::is_constraint_error(error) || !has_any_meta(op)) {
        throw_as_torch(error, op.schema.name);
      }
      static base::Counter& count = base::counter("PythonMetaKernel");
      count.add();
      call_on_meta(op.handle, op.arguments.size(), stack);
      throw_as_torch(error, op.schema.name);
    }
    if (writes) check_in_place(op, types, written_types(op, stack));
  }
  if (!writes) return types;
  types.resize(op.num_fresh_returns);
  for (const graph::TensorType* type : written_types(op, stack)) types.push_back(type);
  return types;
}

}  // namespace torch_xla::aten

// The refusals, and the dispatch keys of the kinds that they serve.
#include "aten/unsupported.h"

#include <ATen/ops/_nested_tensor_from_tensor_list_native.h>
#include <torch/library.h>

#include <array>
#include <memory>
#include <string_view>

namespace torch_xla::aten {
namespace {

constexpr const char* kSparse =
    "sparse tensors are not on the xla device; make them dense with "
    ".to_dense(), or compute with them on the CPU";
constexpr const char* kQuantized =
    "quantized tensors are not on the xla device; take their "
    "numbers with .dequantize(), or compute with them on the CPU";
constexpr const char* kNested =
    "nested tensors of the strided layout are not on the xla device; use layout=torch.jagged, pad "
    "them with torch.nested.to_padded_tensor, or compute with them on the CPU";

[[noreturn]] void refuse(const c10::OperatorHandle& op, const char* why) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, op.operator_name(), ": ", why);
}

// Operators that make such a tensor of one that is not, by how their names begin.
struct Maker {
  std::string_view prefix;
  const char* why;
};
constexpr std::array<Maker, 8> kMakers = {{
    {"aten::_to_sparse", kSparse},
    {"aten::_sparse_", kSparse},
    {"aten::sparse_", kSparse},
    {"aten::quantize_per_", kQuantized},
    {"aten::_make_per_", kQuantized},
    {"aten::_empty_affine_quantized", kQuantized},
    {"aten::_empty_per_channel_affine_quantized", kQuantized},
    {"aten::_nested_", kNested},
}};

// Refuses every call.
struct Refusal final : c10::OperatorKernel {
  explicit Refusal(const char* reason) : why(reason) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack*) {
    refuse(op, why);
  }
  const char* why;
};

torch::CppFunction refusal(const char* why) {
  return torch::CppFunction::makeFromBoxedKernel(
      c10::BoxedKernel::makeFromFunctor(std::make_unique<Refusal>(why)));
}

// Of tensors on the CPU, to be made on `device`: PyTorch's kernel asserts that it knows the device.
at::Tensor nested_tensor(at::TensorList list, std::optional<at::ScalarType> dtype,
                         std::optional<at::Layout> layout, std::optional<at::Device> device,
                         std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(!device.has_value() || !device->is_xla(),
                              "aten::_nested_tensor_from_tensor_list: ", kNested);
  return at::native::_nested_tensor_from_tensor_list(list, dtype, layout, device, pin_memory);
}

// Whether a nested tensor can be made of `tensor` and `mask`, which torch.nn.TransformerEncoder
// asks before it looks at the device: no, whatever the mask, so that it takes its other path.
bool can_be_nested(const at::Tensor& /*tensor*/, const at::Tensor& /*mask*/) { return false; }

}  // namespace

void check_kinds(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const std::string& name = op.operator_name().name;
  for (const Maker& maker : kMakers) {
    if (name.starts_with(maker.prefix)) refuse(op, maker.why);
  }
  for (const c10::IValue& value : torch::jit::last(stack, op.schema().arguments().size())) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor& tensor = value.toTensor();
    if (tensor.layout() != c10::kStrided) refuse(op, kSparse);
    if (tensor.is_quantized()) refuse(op, kQuantized);
    if (tensor.is_nested()) refuse(op, kNested);
  }
}

TORCH_LIBRARY_IMPL(_, SparseXLA, m) { m.fallback(refusal(kSparse)); }
TORCH_LIBRARY_IMPL(_, SparseCsrXLA, m) { m.fallback(refusal(kSparse)); }
TORCH_LIBRARY_IMPL(_, QuantizedXLA, m) { m.fallback(refusal(kQuantized)); }
TORCH_LIBRARY_IMPL(_, NestedTensorXLA, m) { m.fallback(refusal(kNested)); }
// What PyTorch's kernels for every backend would do comes before a fallback: they leave tensors on
// the CPU, or know devices by name.
TORCH_LIBRARY_IMPL(aten, XLA, m) {
  m.impl("_nested_tensor_from_tensor_list", refusal(kNested));
  m.impl("_nested_tensor_from_mask_left_aligned", can_be_nested);
}
TORCH_LIBRARY_IMPL(aten, CPU, m) { m.impl("_nested_tensor_from_tensor_list", nested_tensor); }
TORCH_LIBRARY_IMPL(aten, QuantizedXLA, m) { m.impl("_to_copy", refusal(kQuantized)); }
TORCH_LIBRARY_IMPL(aten, SparseCsrXLA, m) {
  m.impl("_to_copy", refusal(kSparse));
  m.impl("sparse_compressed_tensor.comp_plain_value_size", refusal(kSparse));
  m.impl("sparse_compressed_tensor.comp_plain_value", refusal(kSparse));
}

}  // namespace torch_xla::aten

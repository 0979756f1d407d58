// Strides by PyTorch's own TensorIterator, run on meta tensors.
#include "aten/strides.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like_native.h>

#include <algorithm>
#include <vector>

#include "aten/meta_kernel.h"

namespace torch_xla::aten {
namespace {

const graph::TensorType* with_strides(const graph::TensorType* type, at::IntArrayRef strides) {
  return graph::intern({type->shape, strides.vec()});
}

// The tensors that stand for the arguments of one result.
std::vector<at::Tensor> meta_operands(at::ArrayRef<c10::IValue> arguments, std::size_t i) {
  std::vector<at::Tensor> out;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined()) out.push_back(to_meta(tensor));
  };
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor()) {
      add(argument.toTensor());
    } else if (argument.isTensorList() && i < argument.toTensorList().size()) {
      add(argument.toTensorList().get(i));
    }
  }
  return out;
}

}  // namespace

bool is_row_major(at::IntArrayRef sizes, at::IntArrayRef strides) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return true;
  std::int64_t expected = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (sizes[d] != 1 && strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

const graph::TensorType* with_pointwise_strides(const graph::TensorType* type,
                                                at::ArrayRef<c10::IValue> arguments,
                                                std::size_t i) {
  const std::vector<at::Tensor> operands = meta_operands(arguments, i);
  if (operands.empty()) return type;
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false)
      .check_all_same_dtype(false)
      .check_all_same_device(false)
      .declare_static_dtype_and_device(at::kFloat, c10::DeviceType::Meta)
      .add_owned_output(at::Tensor());
  for (const at::Tensor& operand : operands) config.add_owned_const_input(operand);
  const at::TensorIterator iterator = config.build();
  const at::Tensor& output = iterator.output();
  return output.sizes() == type->shape.dims ? with_strides(type, output.strides()) : type;
}

const graph::TensorType* with_memory_format(const graph::TensorType* type, const c10::IValue& self,
                                            const c10::IValue& memory_format) {
  const std::optional<at::MemoryFormat> format = memory_format.toOptional<at::MemoryFormat>();
  const at::Tensor like =
      self.isTensor()
          ? at::native::empty_like(to_meta(self.toTensor()), at::kFloat, {}, {}, {}, format)
          : at::empty(type->shape.dims, at::kFloat, {}, at::kMeta, {}, format);
  return with_strides(type, like.strides());
}

}  // namespace torch_xla::aten

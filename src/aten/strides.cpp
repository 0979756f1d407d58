// Strides by PyTorch's own TensorIterator, run on meta tensors.
#include "aten/strides.h"

#include <ATen/TensorIterator.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like_native.h>

#include <algorithm>
#include <span>
#include <vector>

#include "aten/meta_kernel.h"
#include "aten/tensor.h"

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

// As the kernels for the CPU do with what has another dtype than they compute in; only what has
// gaps or repeats elements is laid out anew by it.
void convert(std::span<at::Tensor> operands, at::ScalarType result) {
  at::ScalarType common =
      at::native::result_type(at::ArrayRef<at::Tensor>(operands.data(), operands.size()));
  if (at::isIntegralType(common, /*includeBool=*/true) && at::isFloatingType(result)) {
    common = result;
  }
  for (at::Tensor& operand : operands) {
    const bool is_dense = operand.is_non_overlapping_and_dense();
    if (!is_dense && operand.scalar_type() != common) operand = operand.to(common);
  }
}

}  // namespace

const graph::TensorType* with_columns(const graph::TensorType* type, std::int64_t column_size) {
  const std::vector<std::int64_t>& dims = type->shape.dims;
  const std::size_t rank = dims.size();
  if (rank < 2) return type;
  std::vector<std::int64_t> strides(rank);
  strides[rank - 2] = 1;
  strides[rank - 1] = std::max({column_size, dims[rank - 2], std::int64_t{1}});
  std::int64_t step = strides[rank - 1] * std::max<std::int64_t>(dims[rank - 1], 1);
  for (std::size_t d = rank - 2; d-- > 0;) {
    strides[d] = step;
    step *= std::max<std::int64_t>(dims[d], 1);
  }
  return with_strides(type, strides);
}

const graph::TensorType* with_transform_strides(const graph::TensorType* type,
                                                at::IntArrayRef operand_strides,
                                                at::IntArrayRef dims, bool is_of_reals) {
  const auto rank = static_cast<std::int64_t>(type->shape.dims.size());
  std::vector<std::int64_t> order;
  std::vector<std::int64_t> transformed;
  for (const std::int64_t dim : dims) transformed.push_back(dim < 0 ? dim + rank : dim);
  for (std::int64_t d = 0; d < rank; ++d) {
    if (std::find(transformed.begin(), transformed.end(), d) == transformed.end()) {
      order.push_back(d);
    }
  }
  const auto is_longer = [&](std::int64_t a, std::int64_t b) {
    return operand_strides[static_cast<std::size_t>(a)] >
           operand_strides[static_cast<std::size_t>(b)];
  };
  std::stable_sort(order.begin(), order.end(), is_longer);
  std::stable_sort(transformed.begin(), transformed.end() - (is_of_reals ? 1 : 0), is_longer);
  order.insert(order.end(), transformed.begin(), transformed.end());
  std::vector<std::int64_t> strides(order.size());
  std::int64_t step = 1;
  for (std::size_t k = order.size(); k-- > 0;) {
    const auto d = static_cast<std::size_t>(order[k]);
    strides[d] = step;
    step *= std::max<std::int64_t>(type->shape.dims[d], 1);
  }
  return with_strides(type, strides);
}

const graph::TensorType* with_channels_like(const graph::TensorType* type,
                                            at::ArrayRef<c10::IValue> tensors) {
  if (type == nullptr) return nullptr;
  at::MemoryFormat format = at::MemoryFormat::Contiguous;
  for (const c10::IValue& value : tensors) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor tensor = to_meta(value.toTensor());
    const auto rank = static_cast<std::size_t>(tensor.dim());
    if (rank != type->shape.dims.size() || format != at::MemoryFormat::Contiguous) continue;
    format = tensor.suggest_memory_format();
  }
  const at::Tensor like = at::empty(type->shape.dims, at::kFloat, {}, at::kMeta, {}, format);
  return with_strides(type, like.strides());
}

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
                                                at::ArrayRef<c10::IValue> arguments, std::size_t i,
                                                bool has_condition) {
  std::vector<at::Tensor> operands = meta_operands(arguments, i);
  if (operands.empty()) return type;
  convert(std::span(operands).subspan(has_condition ? 1 : 0), to_scalar_type(type->shape.dtype));
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

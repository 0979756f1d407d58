// Interning of tensor types and keys of memo entries.
#include "graph/entry.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <unordered_map>

#include "base/error.h"

namespace torch_xla::graph {
namespace {

void add_dims(base::Hasher& hasher, const base::Dims& dims) {
  hasher.add(dims.size());
  for (const std::int64_t d : dims) hasher.add(static_cast<std::uint64_t>(d));
}

void add_shape(base::Hasher& hasher, const base::Shape& shape) {
  hasher.add(static_cast<std::uint64_t>(shape.dtype));
  add_dims(hasher, shape.dims);
}

struct TypeHash {
  std::size_t operator()(const TensorType& type) const {
    base::Hasher hasher;
    add_shape(hasher, type.shape);
    add_dims(hasher, type.strides);
    return hasher.finish().lo;
  }
};
struct TypeEqual {
  bool operator()(const TensorType& a, const TensorType& b) const {
    return a.shape == b.shape && a.strides == b.strides;
  }
};

void add_scalar(base::Hasher& hasher, const base::Scalar& scalar) {
  const auto value = scalar.to<std::complex<double>>();
  hasher.add(static_cast<std::uint64_t>(scalar.dtype()));
  if (scalar.is_int()) {
    hasher.add(static_cast<std::uint64_t>(scalar.to<std::int64_t>()));
  } else {
    hasher.add(std::bit_cast<std::uint64_t>(value.real()));
    hasher.add(std::bit_cast<std::uint64_t>(value.imag()));
  }
}

// A number in a slot is not part of the key: only that there is one, and its type.
void add_number(base::Hasher& hasher, const Number& number) {
  hasher.add(static_cast<std::uint64_t>(number.dtype) | (number.is_wrapped ? 256u : 0u));
  hasher.add(static_cast<std::uint64_t>(number.slot));
  if (number.slot < 0) add_scalar(hasher, number.constant);
}

struct AddAttribute {
  base::Hasher& hasher;
  void operator()(std::monostate) const {}
  void operator()(const Operand& operand) const { hasher.add(operand.index); }
  void operator()(const OperandList& list) const {
    hasher.add(list.indices.size());
    for (const std::int32_t i : list.indices) hasher.add(static_cast<std::uint64_t>(i));
  }
  void operator()(const Number& number) const { add_number(hasher, number); }
  void operator()(const std::vector<Number>& numbers) const {
    hasher.add(numbers.size());
    for (const Number& number : numbers) add_number(hasher, number);
  }
  void operator()(const base::Dims& dims) const { add_dims(hasher, dims); }
  void operator()(const std::vector<bool>& flags) const {
    hasher.add(flags.size());
    for (const bool flag : flags) hasher.add(flag ? 1 : 0);
  }
  void operator()(const std::string& text) const { hasher.add(std::string_view(text)); }
  void operator()(const base::DType& dtype) const { hasher.add(static_cast<std::uint64_t>(dtype)); }
};

// False where each stride steps over all that the lesser ones reach.
bool may_repeat(const TensorType& type) {
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;  // stride and size
  for (std::size_t i = 0; i < type.strides.size(); ++i) {
    if (type.shape.dims[i] > 1) steps.emplace_back(type.strides[i], type.shape.dims[i]);
  }
  std::sort(steps.begin(), steps.end());
  std::int64_t reach = 0;
  for (const auto& [stride, size] : steps) {
    if (stride <= reach) return true;
    reach += (size - 1) * stride;
  }
  return false;
}

}  // namespace

const TensorType* intern(TensorType type) {
  type.may_repeat = may_repeat(type);
  // Never freed: entries and tensors that outlive static destruction point into it.
  static auto* const types = new std::unordered_map<TensorType, bool, TypeHash, TypeEqual>();
  static auto* const mutex = new std::mutex();
  const std::lock_guard lock(*mutex);
  return &types->try_emplace(std::move(type), true).first->first;
}

base::Dims contiguous_strides(const base::Dims& dims) {
  base::Dims strides(dims.size());
  std::int64_t stride = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= dims[i] > 1 ? dims[i] : 1;
  }
  return strides;
}

const TensorType* intern_contiguous(base::Shape shape) {
  base::Dims strides = contiguous_strides(shape.dims);
  return intern({std::move(shape), std::move(strides)});
}

base::Hash128 compute_key(const Entry& entry) {
  base::Hasher hasher;
  hasher.add(std::string_view(entry.op->name));
  hasher.add(entry.args.size());
  for (const Attribute& arg : entry.args) {
    hasher.add(arg.index());
    std::visit(AddAttribute{hasher}, arg);
  }
  hasher.add(entry.operands.size());
  for (const TensorType* operand : entry.operands) add_shape(hasher, operand->shape);
  hasher.add(entry.slots.size());
  for (const Slot& slot : entry.slots) {
    hasher.add(static_cast<std::uint64_t>(slot.dtype) | static_cast<std::uint64_t>(slot.mode) << 8);
  }
  hasher.add(static_cast<std::uint64_t>(entry.default_float));
  hasher.add(entry.outputs.size());
  for (const TensorType* output : entry.outputs) {
    hasher.add(output != nullptr ? 1 : 0);
    if (output != nullptr) add_shape(hasher, output->shape);
  }
  return hasher.finish();
}

}  // namespace torch_xla::graph

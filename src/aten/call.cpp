// Reading of arguments. `read` (on every call) and `attribute` (on new calls) walk the arguments in
// the same order and make the same decisions, which is what keeps slots and operands aligned.
#include "aten/call.h"

#include <ATen/ATen.h>
#include <c10/core/DefaultDtype.h>

#include <bit>

#include "aten/device.h"
#include "aten/generator.h"
#include "base/settings.h"

namespace torch_xla::aten {
namespace {

using base::DType;
using base::Scalar;
using graph::ArgKind;

// First words of arguments: they keep arguments of different kinds apart.
enum Tag : std::uint64_t {
  kNone = 1,
  kTensor,
  kList,
  kNumberConstant,
  kNumberSlot,
  kText,
};
std::uint64_t tag(Tag t, std::uint64_t detail = 0) { return t | detail << 8; }

Scalar to_scalar(const c10::IValue& value) {
  if (value.isDouble()) return value.toDouble();
  if (value.isBool()) return value.toBool();
  if (value.isInt()) return value.toInt();
  if (value.isComplexDouble()) {
    const c10::complex<double> z = value.toComplexDouble();
    return std::complex<double>(z.real(), z.imag());
  }
  if (value.isSymInt()) return value.toSymInt().expect_int();
  if (value.isSymFloat()) return value.toSymFloat().expect_float();
  if (value.isSymBool()) return value.toSymBool().expect_bool();
  TORCH_CHECK(false, "expected a number, got ", value.tagKind());
}

std::uint64_t bits_of(const Scalar& scalar) {
  if (scalar.is_floating()) return std::bit_cast<std::uint64_t>(scalar.to<double>());
  return static_cast<std::uint64_t>(scalar.to<std::int64_t>());
}

std::uint64_t default_float() {
  return static_cast<std::uint64_t>(c10::get_default_dtype_as_scalartype());
}

bool is_cpu_scalar(const at::Tensor& tensor) {
  return tensor.dim() == 0 && tensor.device().is_cpu() && !tensor.is_sparse();
}

}  // namespace

Call::Call(const Operator& op, const torch::jit::Stack& stack)
    : op_(op),
      arguments_(torch::jit::last(stack, op.arguments.size()).data(), op.arguments.size()),
      no_special_scalars_(base::settings().no_special_scalars()) {
  // Addresses leave the upper bits free.
  words_.push_back(reinterpret_cast<std::uintptr_t>(&op) | default_float() << 56);
  for (std::size_t i = 0; i < arguments_.size(); ++i) read(op.arguments[i], arguments_[i]);
  if (device_ == nullptr) find_device();
  if (op.draws_key) draw_key(nullptr);
}

void Call::find_device() {
  if (op_.device_argument.has_value()) {
    const c10::IValue& value = arguments_[*op_.device_argument];
    if (!value.isNone()) {
      device_ = &device_of(value.toDevice());
      return;
    }
  }
  device_ = &current_device();
}

void Call::read(const Argument& argument, const c10::IValue& value) {
  switch (argument.travel) {
    case Travel::kIgnored:
      // No part of the program, but a memory format decides the result's strides.
      if (value.isInt()) words_.push_back(static_cast<std::uint64_t>(value.toInt()) + 16);
      return;
    case Travel::kOperand:
      if (value.isTensor()) {
        read_tensor(argument, value.toTensor());
      } else if (value.isNone()) {
        words_.push_back(kNone);
      } else if (value.isTensorList()) {
        const c10::List<at::Tensor> list = value.toTensorList();
        words_.push_back(tag(kList, list.size()));
        for (const at::Tensor& tensor : list) read_tensor(argument, tensor);
      } else {
        const auto list = value.toListRef();
        words_.push_back(tag(kList, list.size()));
        for (const c10::IValue& element : list) {
          read_tensor(argument, element.isNone() ? at::Tensor() : element.toTensor());
        }
      }
      return;
    case Travel::kData:
    case Travel::kPromotable:
      if (value.isNone()) {
        words_.push_back(kNone);
      } else if (value.isList()) {
        const auto list = value.toListRef();
        words_.push_back(tag(kList, list.size()));
        for (const c10::IValue& element : list) {
          read_number(number_of(element, argument.travel));
        }
      } else {
        read_number(number_of(value, argument.travel));
      }
      return;
    case Travel::kKey: draw_key(&value); return;
    case Travel::kConstant: read_constant(argument, value); return;
  }
}

void Call::read_tensor(const Argument& argument, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    words_.push_back(kNone);
    return;
  }
  if (TensorImpl* impl = as_xla(tensor)) {
    words_.push_back(reinterpret_cast<std::uintptr_t>(impl->xla_type()));
    operands_.push_back(impl);
    if (device_ == nullptr) {
      device_ = &impl->xla_device();
    } else if (device_ != &impl->xla_device()) [[unlikely]] {
      TORCH_CHECK(false, "aten::", op_.schema.name,
                  ": Expected all tensors to be on the same device, but found at least two "
                  "devices, xla:",
                  device_->ordinal(), " and xla:", impl->xla_device().ordinal(), "! (argument '",
                  argument.schema.name, "')");
    }
    return;
  }
  if (is_cpu_scalar(tensor) && !argument.schema.is_written) {
    read_number(number_of(tensor));
    return;
  }
  expect_xla(tensor, op_.schema.name, argument.schema.name);
}

void Call::read_number(const Numeric& number) {
  const std::uint64_t detail = static_cast<std::uint64_t>(number.dtype) |
                               (number.is_wrapped ? 256u : 0u) |
                               static_cast<std::uint64_t>(number.slot.mode) << 9;
  if (number.in_slot) {
    words_.push_back(tag(kNumberSlot, detail));
    slots_.push_back(bits_of(number.value));
    return;
  }
  words_.push_back(tag(kNumberConstant, detail));
  if (number.value.is_complex()) {
    const auto z = number.value.to<std::complex<double>>();
    words_.push_back(std::bit_cast<std::uint64_t>(z.real()));
    words_.push_back(std::bit_cast<std::uint64_t>(z.imag()));
  } else {
    words_.push_back(static_cast<std::uint64_t>(number.value.dtype()));
    words_.push_back(bits_of(number.value));
  }
}

void Call::read_constant(const Argument& argument, const c10::IValue& value) {
  if (value.isNone()) {
    words_.push_back(kNone);
  } else if (value.isIntList()) {
    const std::vector<std::int64_t> list = value.toIntVector();
    words_.push_back(tag(kList, list.size()));
    for (const std::int64_t element : list) words_.push_back(static_cast<std::uint64_t>(element));
  } else if (value.isList()) {
    const auto list = value.toListRef();
    words_.push_back(tag(kList, list.size()));
    for (const c10::IValue& element : list) read_number(number_of(element, Travel::kConstant));
  } else if (value.isString()) {
    const std::string& text = value.toStringRef();
    words_.push_back(tag(kText, text.size()));
    for (std::size_t i = 0; i < text.size(); i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + i, std::min<std::size_t>(8, text.size() - i));
      words_.push_back(word);
    }
  } else if (argument.schema.kind == ArgKind::kDType) {
    words_.push_back(tag(kText, static_cast<std::uint64_t>(value.toInt())));
  } else {
    read_number(number_of(value, Travel::kConstant));
  }
}

void Call::draw_key(const c10::IValue* generator) {
  words_.push_back(tag(kNumberSlot, static_cast<std::uint64_t>(DType::kUInt64)));
  if (device_ == nullptr) find_device();
  slots_.push_back(next_random_key(*device_, generator == nullptr || generator->isNone()
                                                 ? std::nullopt
                                                 : std::optional(generator->toGenerator())));
}

Call::Numeric Call::number_of(const at::Tensor& cpu_scalar) const {
  Numeric number;
  const at::Scalar scalar = cpu_scalar.item();
  if (scalar.isComplex()) {
    const auto z = scalar.toComplexDouble();
    number.value = std::complex<double>(z.real(), z.imag());
  } else if (scalar.isFloatingPoint()) {
    number.value = scalar.toDouble();
  } else if (scalar.isBoolean()) {
    number.value = scalar.toBool();
  } else {
    number.value = scalar.toLong();
  }
  number.dtype = to_dtype(cpu_scalar.scalar_type());
  number.is_wrapped = cpu_scalar.unsafeGetTensorImpl()->is_wrapped_number();
  const bool fits = number.value.is_int() || number.value.is_floating();
  number.in_slot = fits && !all_numbers_are_special.load(std::memory_order_relaxed);
  number.slot = data_slot(number.value);
  return number;
}

Call::Numeric Call::number_of(const c10::IValue& value, Travel travel) const {
  Numeric number;
  number.value = to_scalar(value);
  number.dtype = number.value.dtype();
  const bool fits = number.value.is_int() || number.value.is_floating();
  number.slot = data_slot(number.value);
  if (travel == Travel::kPromotable) {
    number.slot.mode = graph::SlotMode::kPromotable;
    number.in_slot = fits;
  } else {
    number.in_slot =
        fits && travel == Travel::kData && !all_numbers_are_special.load(std::memory_order_relaxed);
  }
  return number;
}

graph::Slot Call::data_slot(const base::Scalar& value) const {
  return {value.is_floating() ? DType::kFloat64 : DType::kInt64,
          no_special_scalars_ ? graph::SlotMode::kData : graph::SlotMode::kNumber};
}

graph::Number Call::add_number(const Numeric& number, graph::Entry& entry) const {
  graph::Number out;
  out.dtype = number.dtype;
  out.is_wrapped = number.is_wrapped;
  if (number.in_slot) {
    out.slot = static_cast<std::int32_t>(entry.slots.size());
    out.constant = number.value.is_floating() ? Scalar(0.0) : Scalar(std::int64_t{0});
    entry.slots.push_back(number.slot);
  } else {
    out.constant = number.value;
  }
  return out;
}

graph::Attribute Call::tensor_attribute(const at::Tensor& tensor, graph::Entry& entry) const {
  if (!tensor.defined()) return std::monostate{};
  if (TensorImpl* impl = as_xla(tensor)) {
    entry.operands.push_back(impl->xla_type());
    return graph::Operand{static_cast<std::uint32_t>(entry.operands.size() - 1)};
  }
  return add_number(number_of(tensor), entry);
}

graph::Attribute Call::attribute(const Argument& argument, const c10::IValue& value,
                                 graph::Entry& entry) const {
  if (argument.travel == Travel::kKey) {
    graph::Number key{Scalar(std::int64_t{0}), DType::kUInt64,
                      static_cast<std::int32_t>(entry.slots.size()), false};
    entry.slots.push_back({DType::kUInt64, graph::SlotMode::kData});
    return key;
  }
  if (value.isNone()) return std::monostate{};
  if (argument.travel == Travel::kOperand) {
    if (value.isTensor()) return tensor_attribute(value.toTensor(), entry);
    graph::OperandList list;
    std::vector<graph::Number> numbers;
    for (const c10::IValue& element : value.toListRef()) {
      const graph::Attribute a =
          tensor_attribute(element.isNone() ? at::Tensor() : element.toTensor(), entry);
      if (const auto* operand = std::get_if<graph::Operand>(&a)) {
        list.indices.push_back(static_cast<std::int32_t>(operand->index));
      } else if (const auto* number = std::get_if<graph::Number>(&a);
                 number != nullptr && op_.lowering->is_foreach && list.indices.empty()) {
        numbers.push_back(*number);
      } else {
        TORCH_CHECK(std::holds_alternative<std::monostate>(a), "aten::", op_.schema.name,
                    ": Input tensor is not an XLA tensor: ", element.toTensor().toString(),
                    " (in the list '", argument.schema.name, "')");
        list.indices.push_back(-1);
      }
    }
    if (numbers.empty()) return list;
    TORCH_CHECK(list.indices.empty(), "aten::", op_.schema.name, ": the list '",
                argument.schema.name, "' has tensors of the CPU beside tensors of the device");
    return numbers;
  }
  if (value.isString()) return value.toStringRef();
  if (argument.schema.kind == ArgKind::kDType && !argument.schema.is_list) {
    return to_dtype(value.toScalarType());
  }
  if (value.isIntList() && argument.travel == Travel::kConstant) return value.toIntVector();
  if (value.isBoolList()) {
    const c10::List<bool> list = value.toBoolList();
    return std::vector<bool>(list.begin(), list.end());
  }
  if (value.isList()) {
    std::vector<graph::Number> numbers;
    for (const c10::IValue& element : value.toListRef()) {
      numbers.push_back(add_number(number_of(element, argument.travel), entry));
    }
    return numbers;
  }
  return add_number(number_of(value, argument.travel), entry);
}

graph::Entry Call::make_entry() const {
  graph::Entry entry;
  entry.op = &op_.op;
  entry.default_float = to_dtype(c10::get_default_dtype_as_scalartype());
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    if (op_.arguments[i].travel == Travel::kIgnored) continue;
    entry.args.push_back(attribute(op_.arguments[i], arguments_[i], entry));
  }
  if (op_.draws_key) {
    entry.args.push_back(graph::Number{Scalar(std::int64_t{0}), DType::kUInt64,
                                       static_cast<std::int32_t>(entry.slots.size()), false});
    entry.slots.push_back({DType::kUInt64, graph::SlotMode::kData});
  }
  return entry;
}

}  // namespace torch_xla::aten

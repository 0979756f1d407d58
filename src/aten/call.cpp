// Reading of arguments: one walk, with two sinks. On every call `Words` takes what the memo knows
// the call by, on new calls `Attributes` makes the memo entry, so that slots, operands and
// attributes are aligned whatever the walk decides.
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
  TORCH_CHECK(!value.isUnsigned(), "value cannot be converted to type int64_t without overflow");
  TORCH_CHECK(false, "expected a number, got ", value.tagKind());
}

std::uint64_t bits_of(const Scalar& scalar) {
  if (scalar.is_floating()) return std::bit_cast<std::uint64_t>(scalar.to<double>());
  return static_cast<std::uint64_t>(scalar.to<std::int64_t>());
}

std::uint64_t default_float() {
  return static_cast<std::uint64_t>(c10::get_default_dtype_as_scalartype());
}

// Whether a number goes to the program beside it, so that another value is the same program.
bool is_data(const Scalar& value) {
  return !value.is_complex() && !all_numbers_are_special.load(std::memory_order_relaxed);
}

bool is_cpu_scalar(const at::Tensor& tensor) {
  return tensor.dim() == 0 && tensor.device().is_cpu() && !tensor.is_sparse();
}

}  // namespace

// What arguments are to the memo. A sink has a function for each kind of thing that the walk meets:
// `none`, `tensor`, `number`, `key`, `ints`, `text`, `dtype`, `ignored`, and around the elements of
// a list `begin_list` and `end_list`.
class Call::Words {
 public:
  explicit Words(Call& call) : call_(call), words_(call.words_) {}

  void none() { words_.push_back(kNone); }
  // No part of the program, but a memory format decides the result's strides.
  void ignored(const c10::IValue& value) {
    if (value.isInt()) words_.push_back(static_cast<std::uint64_t>(value.toInt()) + 16);
  }
  void begin_list(std::size_t size) { words_.push_back(tag(kList, size)); }
  void end_list(const Argument&) {}
  void tensor(const Argument& argument, TensorImpl& impl) {
    words_.push_back(reinterpret_cast<std::uintptr_t>(impl.xla_type()));
    call_.operands_.push_back(&impl);
    call_.join_device(argument, impl.xla_device());
  }
  void number(const Numeric& number) {
    const std::uint64_t detail = static_cast<std::uint64_t>(number.dtype) |
                                 (number.is_wrapped ? 256u : 0u) |
                                 static_cast<std::uint64_t>(number.slot.mode) << 9;
    if (number.in_slot) {
      words_.push_back(tag(kNumberSlot, detail));
      call_.slots_.push_back(bits_of(number.value));
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
  void key(const c10::IValue* generator) {
    words_.push_back(tag(kNumberSlot, static_cast<std::uint64_t>(DType::kUInt64)));
    if (call_.device_ == nullptr) call_.find_device();
    call_.slots_.push_back(
        next_random_key(*call_.device_, generator == nullptr || generator->isNone()
                                            ? std::nullopt
                                            : std::optional(generator->toGenerator())));
  }
  void ints(const std::vector<std::int64_t>& list) {
    words_.push_back(tag(kList, list.size()));
    for (const std::int64_t element : list) words_.push_back(static_cast<std::uint64_t>(element));
  }
  void text(const std::string& text) {
    words_.push_back(tag(kText, text.size()));
    for (std::size_t i = 0; i < text.size(); i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + i, std::min<std::size_t>(8, text.size() - i));
      words_.push_back(word);
    }
  }
  void dtype(at::ScalarType type) {
    words_.push_back(tag(kText, static_cast<std::uint64_t>(type)));
  }

 private:
  Call& call_;
  decltype(Call::words_)& words_;
};

// The same as attributes of an entry, one per argument that is not ignored.
class Call::Attributes {
 public:
  Attributes(const Operator& op, graph::Entry& entry) : op_(op), entry_(entry) {}

  void none() {
    if (is_list_) {
      operands_.indices.push_back(-1);
    } else {
      add(std::monostate{});
    }
  }
  void ignored(const c10::IValue&) {}
  void begin_list(std::size_t) {
    is_list_ = true;
    operands_ = {};
    numbers_.clear();
  }
  void end_list(const Argument& argument) {
    is_list_ = false;
    const bool is_of_tensors = argument.travel == Travel::kOperand;
    if (is_of_tensors && numbers_.empty()) return add(std::move(operands_));
    if (is_of_tensors) check_numbers(argument);
    const bool are_bools = argument.schema.kind == ArgKind::kBool;
    if (!are_bools) return add(std::move(numbers_));
    std::vector<bool> bools;
    for (const graph::Number& number : numbers_) bools.push_back(number.constant.to<bool>());
    add(std::move(bools));
  }
  void tensor(const Argument&, TensorImpl& impl) {
    const auto index = static_cast<std::uint32_t>(entry_.operands.size());
    entry_.operands.push_back(impl.xla_type());
    if (is_list_) {
      operands_.indices.push_back(static_cast<std::int32_t>(index));
    } else {
      add(graph::Operand{index});
    }
  }
  void number(const Numeric& number) {
    graph::Number out;
    out.dtype = number.dtype;
    out.is_wrapped = number.is_wrapped;
    if (number.in_slot) {
      out.slot = static_cast<std::int32_t>(entry_.slots.size());
      out.constant = number.value.is_floating() ? Scalar(0.0) : Scalar(std::int64_t{0});
      entry_.slots.push_back(number.slot);
    } else {
      out.constant = number.value;
    }
    if (is_list_) {
      numbers_.push_back(out);
    } else {
      add(out);
    }
  }
  void key(const c10::IValue*) {
    add(graph::Number{Scalar(std::int64_t{0}), DType::kUInt64,
                      static_cast<std::int32_t>(entry_.slots.size()), false});
    entry_.slots.push_back({DType::kUInt64, graph::SlotMode::kData});
  }
  void ints(std::vector<std::int64_t> list) { add(std::move(list)); }
  void text(const std::string& text) { add(text); }
  void dtype(at::ScalarType type) { add(to_dtype(type)); }

 private:
  void add(graph::Attribute attribute) { entry_.args.push_back(std::move(attribute)); }
  // Numbers of the CPU in a list of tensors: all of them, where numbers of a list are operands too.
  void check_numbers(const Argument& argument) const {
    TORCH_CHECK(op_.lowering->is_foreach, "aten::", op_.schema.name,
                ": Input tensor is not an XLA tensor: a number of the CPU (in the list '",
                argument.schema.name, "')");
    TORCH_CHECK(operands_.indices.empty(), "aten::", op_.schema.name, ": the list '",
                argument.schema.name, "' has tensors of the CPU beside tensors of the device");
  }

  const Operator& op_;
  graph::Entry& entry_;
  bool is_list_ = false;
  graph::OperandList operands_;
  std::vector<graph::Number> numbers_;
};

Call::Call(const Operator& op, const torch::jit::Stack& stack)
    : op_(op),
      arguments_(torch::jit::last(stack, op.arguments.size()).data(), op.arguments.size()),
      no_special_scalars_(base::settings().no_special_scalars()) {
  // Addresses leave the upper bits free.
  words_.push_back(reinterpret_cast<std::uintptr_t>(&op) | default_float() << 56);
  Words words(*this);
  walk(words);
  if (device_ == nullptr) find_device();
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

void Call::join_device(const Argument& argument, runtime::Device& device) {
  if (device_ == nullptr) device_ = &device;
  if (device_ == &device) [[likely]]
    return;
  TORCH_CHECK(false, "aten::", op_.schema.name,
              ": Expected all tensors to be on the same device, but found at least two devices, "
              "xla:",
              device_->ordinal(), " and xla:", device.ordinal(), "! (argument '",
              argument.schema.name, "')");
}

template <typename Sink>
void Call::walk(Sink& sink) const {
  for (std::size_t i = 0; i < arguments_.size(); ++i) {
    const Argument& argument = op_.arguments[i];
    const c10::IValue& value = arguments_[i];
    switch (argument.travel) {
      case Travel::kIgnored: sink.ignored(value); break;
      case Travel::kKey: sink.key(&value); break;
      case Travel::kOperand: walk_tensors(argument, value, sink); break;
      default: walk_value(argument, value, sink); break;
    }
  }
  if (op_.draws_key) sink.key(nullptr);
}

template <typename Sink>
void Call::walk_tensors(const Argument& argument, const c10::IValue& value, Sink& sink) const {
  if (value.isTensor()) return walk_tensor(argument, value.toTensor(), sink);
  if (value.isNone()) return sink.none();
  if (value.isTensorList()) {
    const c10::List<at::Tensor> list = value.toTensorList();
    sink.begin_list(list.size());
    for (const at::Tensor& tensor : list) walk_tensor(argument, tensor, sink);
  } else {
    const auto list = value.toListRef();
    sink.begin_list(list.size());
    for (const c10::IValue& element : list) {
      walk_tensor(argument, element.isNone() ? at::Tensor() : element.toTensor(), sink);
    }
  }
  sink.end_list(argument);
}

template <typename Sink>
void Call::walk_tensor(const Argument& argument, const at::Tensor& tensor, Sink& sink) const {
  if (!tensor.defined()) return sink.none();
  if (TensorImpl* impl = as_xla(tensor)) return sink.tensor(argument, *impl);
  if (is_cpu_scalar(tensor) && !argument.schema.is_written) return sink.number(number_of(tensor));
  expect_xla(tensor, op_.schema.name, argument.schema.name);
}

template <typename Sink>
void Call::walk_value(const Argument& argument, const c10::IValue& value, Sink& sink) const {
  if (value.isNone()) return sink.none();
  if (value.isString()) return sink.text(value.toStringRef());
  if (argument.schema.kind == ArgKind::kDType && !argument.schema.is_list) {
    return sink.dtype(value.toScalarType());
  }
  if (value.isIntList() && argument.travel == Travel::kConstant) {
    return sink.ints(value.toIntVector());
  }
  if (!value.isList()) return sink.number(number_of(value, argument.travel));
  const auto list = value.toListRef();
  sink.begin_list(list.size());
  for (const c10::IValue& element : list) sink.number(number_of(element, argument.travel));
  sink.end_list(argument);
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
  number.in_slot = is_data(number.value);
  number.slot = data_slot(number.value);
  return number;
}

Call::Numeric Call::number_of(const c10::IValue& value, Travel travel) const {
  Numeric number;
  number.value = to_scalar(value);
  number.dtype = number.value.dtype();
  number.slot = data_slot(number.value);
  if (travel == Travel::kPromotable) {
    number.slot.mode = graph::SlotMode::kPromotable;
    number.in_slot = number.value.is_int() || number.value.is_floating();
  } else {
    number.in_slot = travel == Travel::kData && is_data(number.value);
  }
  return number;
}

// A bool is data at once: one that changes, as the last step's "all are done" does, changes once,
// and what it would fold is an elementwise operand.
graph::Slot Call::data_slot(const base::Scalar& value) const {
  const bool is_data_at_once = no_special_scalars_ || value.is_bool();
  return {value.is_floating() ? DType::kFloat64 : DType::kInt64,
          is_data_at_once ? graph::SlotMode::kData : graph::SlotMode::kNumber};
}

graph::Entry Call::make_entry() const {
  graph::Entry entry;
  entry.op = &op_.op;
  entry.default_float = to_dtype(c10::get_default_dtype_as_scalartype());
  Attributes attributes(op_, entry);
  walk(attributes);
  return entry;
}

}  // namespace torch_xla::aten

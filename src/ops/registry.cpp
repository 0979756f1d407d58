// The registry's table, and the conversion of recorded arguments to what lowerings take.
#include "ops/registry.h"

#include <utility>

#include "base/error.h"
#include "ops/aten_call.h"
#include "ops/promotion.h"

namespace torch_xla::ops {

Value Promotable::value(hlo::Builder& builder, DType dtype) const {
  if (value_.has_value()) return convert(*value_, dtype);
  return scalar(builder, dtype, constant_);
}

namespace detail {
namespace {

const std::optional<Value>* slot_value(const graph::Number& number, const Frame& frame) {
  if (number.slot < 0) return nullptr;
  return &frame.slots[static_cast<std::size_t>(number.slot)];
}

// The number as a constant: what the entry says, or the bits that travel with the node.
Scalar constant_of(const graph::Number& number, const Frame& frame) {
  if (number.slot < 0) return number.constant;
  const auto slot = static_cast<std::size_t>(number.slot);
  const std::uint64_t bits = frame.slot_bits[slot];
  if (frame.slot_types[slot].dtype == DType::kFloat64) {
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  return static_cast<std::int64_t>(bits);
}

Value number_value(const graph::Number& number, const Frame& frame, hlo::Builder& builder) {
  const std::optional<Value>* data = slot_value(number, frame);
  Value value = data != nullptr && data->has_value()
                    ? convert(**data, number.dtype)
                    : scalar(builder, number.dtype, constant_of(number, frame));
  if (number.is_wrapped) value.mark = kWrappedNumber;
  return value;
}

}  // namespace

Value tensor_or_data(const graph::Attribute& attr, const Frame& frame, hlo::Builder& builder) {
  if (const auto* operand = std::get_if<graph::Operand>(&attr)) {
    return frame.operands[operand->index];
  }
  if (const auto* number = std::get_if<graph::Number>(&attr)) {
    return number_value(*number, frame, builder);
  }
  base::fail(base::ErrorKind::kType, "expected a tensor or a number, got None");
}

Factor factor(const graph::Attribute& attr, const Frame& frame, hlo::Builder& builder) {
  const auto* number = std::get_if<graph::Number>(&attr);
  const Value value = tensor_or_data(attr, frame, builder);
  if (number == nullptr) return {value};
  const std::optional<Value>* data = slot_value(*number, frame);
  if (data != nullptr && data->has_value()) return {value};
  const Scalar constant = constant_of(*number, frame);
  if (constant.is_complex()) return {value};
  return {value, constant.to<double>() == 1, constant.to<double>() == 0};
}

std::vector<std::optional<Value>> tensor_list(const graph::Attribute& attr, const Frame& frame,
                                              hlo::Builder& builder) {
  std::vector<std::optional<Value>> out;
  if (const auto* numbers = std::get_if<std::vector<graph::Number>>(&attr)) {
    for (const graph::Number& number : *numbers)
      out.push_back(number_value(number, frame, builder));
    return out;
  }
  for (const std::int32_t index : std::get<graph::OperandList>(attr).indices) {
    out.push_back(index < 0 ? std::nullopt
                            : std::optional(frame.operands[static_cast<std::size_t>(index)]));
  }
  return out;
}

Scalar number(const graph::Attribute& attr, const Frame& frame) {
  return constant_of(std::get<graph::Number>(attr), frame);
}

Promotable promotable(const graph::Attribute& attr, const Frame& frame) {
  const auto& number = std::get<graph::Number>(attr);
  const std::optional<Value>* data = slot_value(number, frame);
  if (data != nullptr && data->has_value()) return Promotable(**data);
  return Promotable(constant_of(number, frame));
}

std::vector<Scalar> number_list(const graph::Attribute& attr, const Frame& frame) {
  std::vector<Scalar> out;
  if (const auto* dims = std::get_if<Dims>(&attr)) {
    for (const std::int64_t d : *dims) out.emplace_back(d);
    return out;
  }
  for (const graph::Number& n : std::get<std::vector<graph::Number>>(attr)) {
    out.push_back(constant_of(n, frame));
  }
  return out;
}

}  // namespace detail

namespace {

std::size_t list_length(const graph::Attribute& attr) {
  if (const auto* list = std::get_if<graph::OperandList>(&attr)) return list->indices.size();
  if (const auto* list = std::get_if<std::vector<graph::Number>>(&attr)) return list->size();
  return 0;
}

// The attribute as the i-th element of an operator over lists sees it.
graph::Attribute element(const graph::Attribute& attr, std::size_t i) {
  if (const auto* list = std::get_if<graph::OperandList>(&attr)) {
    if (list->indices[i] < 0) return std::monostate{};
    return graph::Operand{static_cast<std::uint32_t>(list->indices[i])};
  }
  if (const auto* list = std::get_if<std::vector<graph::Number>>(&attr)) return (*list)[i];
  return attr;
}

std::string key_of(const std::string& name, std::string_view platform) {
  return platform.empty() ? name : base::str(name, "@", platform);
}

}  // namespace

Lowering Registry::over_lists(Lowering element_lowering) {
  Lowering lowering;
  lowering.params = element_lowering.params;
  lowering.is_foreach = true;
  lowering.emit = [emit = std::move(element_lowering.emit)](
                      Context& context, std::span<const graph::Attribute* const> args,
                      const Frame& frame) {
    std::vector<Value> results;
    for (std::size_t i = 0; i < list_length(*args[0]); ++i) {
      std::vector<graph::Attribute> elements;
      for (const graph::Attribute* arg : args) elements.push_back(element(*arg, i));
      std::vector<const graph::Attribute*> pointers;
      for (const graph::Attribute& e : elements) pointers.push_back(&e);
      for (Value v : emit(context, pointers, frame)) results.push_back(v);
    }
    return results;
  };
  return lowering;
}

void Registry::add(const std::string& name, Lowering lowering, const Options& options) {
  lowering.name = name;
  lowering.is_random = options.is_random;
  lowering.is_collective = options.is_collective;
  lowering.is_between_two = options.is_between_two;
  lowering.has_own_sizes = options.has_own_sizes;
  lowering.repeats = options.repeats;
  lowering.constant = options.constant;
  lowering.overwrites = options.overwrites;
  lowering.computes_in_out_dtype = options.computes_in_out_dtype;
  const bool added = lowerings_.emplace(key_of(name, options.platform), std::move(lowering)).second;
  base::internal_check(added, "two lowerings are registered for ", name);
}

void Registry::mark_pointwise() {
  for (auto& [name, lowering] : lowerings_) lowering.is_pointwise = true;
}

void Registry::mark_pointwise(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) lowerings_.find(name)->second.is_pointwise = true;
}

void Registry::add_aten_call(const std::string& name, Types types, const Options& options) {
  Lowering lowering;
  lowering.is_aten_call = true;
  lowering.takes_half = options.takes_half;
  lowering.is_untyped = types.types == nullptr;
  lowering.params = std::move(types.params);
  lowering.emit = [name, types = std::move(types.types)](
                      Context& context, std::span<const graph::Attribute* const> args,
                      const Frame& frame) -> std::vector<Value> {
    std::vector<Shape> results(context.outputs.begin(), context.outputs.end());
    if (results.empty() && types == nullptr) {
      base::fail(base::ErrorKind::kUnimplemented, "aten::", name, ": only PyTorch knows its types");
    }
    if (results.empty()) results = types(context, args, frame);
    return call_on_host(name, context.builder, args, frame, results);
  };
  add(name, std::move(lowering), options);
}

const Lowering* Registry::find(std::string_view name, std::string_view platform) const {
  if (!platform.empty()) {
    const auto it = lowerings_.find(key_of(std::string(name), platform));
    if (it != lowerings_.end()) return &it->second;
  }
  const auto it = lowerings_.find(name);
  return it == lowerings_.end() ? nullptr : &it->second;
}

std::vector<std::string> Registry::names() const {
  std::vector<std::string> out;
  for (const auto& [name, lowering] : lowerings_) {
    if (name.find('@') == std::string::npos) out.push_back(name);
  }
  return out;
}

const Registry& registry() {
  static const Registry* const instance = [] {
    auto* m = new Registry();
    register_pointwise_unary(*m);
    register_pointwise_binary(*m);
    register_pointwise_ternary(*m);
    register_special(*m);
    register_special_bessel(*m);
    register_foreach(*m);
    register_activation(*m);
    register_optimizer(*m);
    register_sharding(*m);
    m->mark_pointwise();
    register_creation(*m);
    register_shape(*m);
    register_views(*m);
    register_view_copies(*m);
    register_padding(*m);
    register_resampling(*m);
    register_grid_sampler(*m);
    register_indexing(*m);
    register_scatter(*m);
    register_search(*m);
    register_segment(*m);
    register_reduction(*m);
    register_cumulative(*m);
    register_sort(*m);
    register_linear_algebra(*m);
    register_convolution(*m);
    register_pooling(*m);
    register_normalization(*m);
    register_softmax(*m);
    register_attention(*m);
    register_loss(*m);
    register_class_loss(*m);
    register_ctc_loss(*m);
    register_distance(*m);
    register_embedding(*m);
    register_random(*m);
    register_recurrence(*m);
    register_fake_quantize(*m);
    register_custom_call(*m);
    register_inexpressible(*m);
    register_collectives(*m);
    m->mark_pointwise({"clone", "zeros_like", "ones_like", "full_like", "empty_like"});
    return m;
  }();
  return *instance;
}

}  // namespace torch_xla::ops

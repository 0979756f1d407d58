// Writes a call's arguments into the attributes of a custom call.
#include "ops/aten_call.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include "hlo/partitioned.h"

namespace torch_xla::ops {
namespace {

using Words = std::vector<std::int64_t>;

void append_number(const Scalar& number, DType dtype, Words& words) {
  const auto z = number.to<std::complex<double>>();
  words.push_back(static_cast<std::int64_t>(dtype));
  words.push_back(number.is_floating() || number.is_complex()
                      ? std::bit_cast<std::int64_t>(z.real())
                      : number.to<std::int64_t>());
  words.push_back(std::bit_cast<std::int64_t>(z.imag()));
}

// The kernels that read transposed matrices as fast as others.
constexpr std::array<std::string_view, 8> kProducts = {"addmm", "addmv",  "baddbmm", "bmm",
                                                       "dot",   "linear", "mm",      "mv"};

// The kernels that may write their result over their first operand: each element is read for the
// last time before it is written.
constexpr std::array<std::string_view, 2> kWriteOverFirst = {"_log_softmax_backward_data",
                                                             "_softmax_backward_data"};

// Fresh memory costs more than what is written to it. XLA copies an operand that is wanted
// afterwards, as a parameter may be.
bool writes_over_first(const std::string& name, const hlo::Builder& builder,
                       const hlo::Values& operands, const std::vector<Shape>& results) {
  return std::ranges::find(kWriteOverFirst, name) != kWriteOverFirst.end() &&
         operands.front().type() == results.front() &&
         !builder.definition(operands.front().id()).operands.empty();
}

// What a value of bfloat16 was before it was reshaped, or the value. XLA makes float32 of bfloat16
// to reshape it, and back, which is a pass over memory for a call's operand and for its result.
Value before_reshapes(const hlo::Builder& builder, Value value) {
  if (value.dtype() != DType::kBFloat16 || hlo::is_partitioned()) return value;
  while (const Value* const before = builder.reshaped(value)) value = *before;
  return value;
}

// Collects operands and attributes, argument by argument.
class Arguments {
 public:
  Arguments(const std::string& name, hlo::Builder& builder, const Frame& frame)
      : builder_(builder),
        frame_(frame),
        takes_views_(std::ranges::find(kProducts, name) != kProducts.end()),
        is_of_aten_(name.find("::") == std::string::npos) {}

  void add(const graph::Attribute& attribute) {
    std::visit([this](const auto& value) { add_value(value); }, attribute);
    ++position_;
  }

  // Whether the kernel sees the first operand as this, and the program has it in other sizes: then
  // the result may lie as the operand does.
  bool has_reshaped_first(const Shape& result) const {
    return first_seen_.has_value() && *first_seen_ == result && operands.front().type() != result;
  }

  hlo::Values operands;
  hlo::Attributes attributes;

 private:
  std::string name(char kind) const { return base::str(kind, position_); }
  void add_words(char kind, Words words) { attributes.emplace_back(name(kind), std::move(words)); }

  std::int64_t operand(Value value) {
    operands.push_back(value);
    return static_cast<std::int64_t>(operands.size()) - 1;
  }

  void add_value(std::monostate) {}
  void add_value(const graph::Operand& tensor) {
    const Value value = frame_.operands[tensor.index];
    const auto* const view = takes_views_ ? builder_.transposition(value) : nullptr;
    const Value seen = view == nullptr ? value : view->operand;
    const Value before = is_of_aten_ ? before_reshapes(builder_, seen) : seen;
    if (operands.empty()) first_seen_ = seen.type();
    add_words('t', {operand(before)});
    if (before.dims() != seen.dims()) add_words('d', seen.dims());
    if (view != nullptr) add_words('p', view->permutation);
  }
  void add_value(const graph::OperandList& list) {
    Words indices;
    for (const std::int32_t index : list.indices) {
      indices.push_back(index < 0 ? -1 : operand(frame_.operands[static_cast<std::size_t>(index)]));
    }
    add_words('t', std::move(indices));
  }
  // A number that travels with the node is data, so an operand.
  void add_value(const graph::Number& number) {
    if (number.slot >= 0) {
      add_words('t', {operand(detail::tensor_or_data(number, frame_, builder_))});
      return;
    }
    Words words;
    append_number(number.constant, number.dtype, words);
    add_words('n', std::move(words));
  }
  void add_value(const std::vector<graph::Number>& numbers) {
    Words words;
    for (const graph::Number& number : numbers) {
      append_number(detail::number(number, frame_), number.dtype, words);
    }
    add_words('n', std::move(words));
  }
  void add_value(const Dims& numbers) {
    Words words;
    for (const std::int64_t number : numbers) append_number(number, DType::kInt64, words);
    add_words('n', std::move(words));
  }
  void add_value(const std::vector<bool>& numbers) {
    Words words;
    for (const bool number : numbers) append_number(number, DType::kBool, words);
    add_words('n', std::move(words));
  }
  void add_value(DType dtype) { add_words('n', {static_cast<std::int64_t>(dtype), 0, 0}); }
  void add_value(const std::string& text) { attributes.emplace_back(name('s'), text); }

  hlo::Builder& builder_;
  const Frame& frame_;
  const bool takes_views_;
  const bool is_of_aten_;  // collectives' operands are what members compare: they stay as recorded
  std::optional<Shape> first_seen_;
  std::size_t position_ = 0;
};

}  // namespace

hlo::Values call_on_host(const std::string& name, hlo::Builder& builder,
                         std::span<const graph::Attribute* const> args, const Frame& frame,
                         const std::vector<Shape>& results, const Dims& positions,
                         const hlo::Attributes& more) {
  Arguments arguments(name, builder, frame);
  for (const graph::Attribute* arg : args) arguments.add(*arg);
  hlo::CustomCall call;
  call.call_target_name = kAtenCall;
  call.results = results;
  call.backend_config = std::move(arguments.attributes);
  call.backend_config.emplace_back(kAtenCallOperator, name);
  call.backend_config.insert(call.backend_config.end(), more.begin(), more.end());
  if (!positions.empty()) call.backend_config.emplace_back(kAtenCallResults, positions);
  const bool is_reshaped = !results.empty() && arguments.has_reshaped_first(results.front());
  if (is_reshaped) {
    call.results.front() = arguments.operands.front().type();
    call.backend_config.emplace_back(kAtenCallSizes, results.front().dims);
  }
  if (writes_over_first(name, builder, arguments.operands, call.results)) {
    call.output_operand_aliases.push_back({0, 0});
  }
  hlo::Values out = hlo::custom_call(builder, arguments.operands, call);
  if (is_reshaped) out.front() = hlo::reshape(out.front(), results.front().dims);
  return out;
}

}  // namespace torch_xla::ops

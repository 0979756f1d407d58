// Running lowerings over a trace, in its order, and over the argument types of one call.
#include "ops/lower.h"

#include "hlo/builder.h"
#include "hlo/constraint_error.h"
#include "hlo/ops.h"
#include "ops/registry.h"
#include "ops/trace_emitter.h"

namespace torch_xla::ops {
namespace {

class Module {
 public:
  Module(const graph::Trace& trace, const LowerOptions& options)
      : trace_(trace),
        options_(options),
        promoted_(options.promoted.empty() ? trace.promoted : options.promoted) {
    builder_.set_default_precision(options.precision);
  }

  Program run() {
    add_parameters();
    const EmitOptions options{options_.platform, options_.has_host_kernels, options_.has_locations,
                              options_.has_constant_numbers};
    const auto slots = [this](const graph::Entry& entry) { return slots_of(entry); };
    const std::vector<Value> roots =
        emit_trace(builder_, options, trace_, std::move(leaves_), slots);
    program_.text = builder_.finish(roots);
    return std::move(program_);
  }

 private:
  void add_parameters() {
    for (const graph::DataPtr& leaf : trace_.leaves) {
      leaves_.push_back(builder_.parameter(leaf->shape()));
    }
    for (const Donation& donation : options_.donations) {
      builder_.set_parameter_attribute(donation.leaf, "tf.aliasing_output",
                                       base::str(donation.root, " : i32"));
    }
    if (options_.has_constant_numbers) return;
    find_promoted();
    program_.num_floats = trace_.floats.size() + program_.promoted_floats.size();
    program_.num_ints = trace_.ints.size() + program_.promoted_ints.size();
    if (program_.num_floats > 0) floats_ = vector_parameter(DType::kFloat64, program_.num_floats);
    if (program_.num_ints > 0) ints_ = vector_parameter(DType::kInt64, program_.num_ints);
    next_promoted_float_ = trace_.floats.size();
    next_promoted_int_ = trace_.ints.size();
  }

  Value vector_parameter(DType dtype, std::size_t size) {
    return builder_.parameter({dtype, {static_cast<std::int64_t>(size)}});
  }

  // Which promotables are data, by the vector that carries them.
  void find_promoted() {
    std::uint32_t position = 0;
    for (const graph::Trace::Step& step : trace_.steps) {
      for (const graph::Slot& slot : step.node->entry()->slots) {
        if (slot.mode == graph::SlotMode::kData) continue;
        if (promoted_[position]) {
          (slot.dtype == DType::kFloat64 ? program_.promoted_floats : program_.promoted_ints)
              .push_back(position);
        }
        ++position;
      }
    }
  }

  // The data of each slot, taken out of the vectors in the order in which the walk filled them.
  std::vector<std::optional<Value>> slots_of(const graph::Entry& entry) {
    std::vector<std::optional<Value>> values;
    values.reserve(entry.slots.size());
    if (options_.has_constant_numbers) {
      values.resize(entry.slots.size());
      return values;
    }
    for (const graph::Slot& slot : entry.slots) {
      const bool is_float = slot.dtype == DType::kFloat64;
      if (slot.mode == graph::SlotMode::kData) {
        values.emplace_back(element(slot, is_float ? next_float_++ : next_int_++));
        continue;
      }
      const std::size_t position = next_promotable_++;
      if (promoted_[position]) {
        values.emplace_back(
            element(slot, is_float ? next_promoted_float_++ : next_promoted_int_++));
      } else {
        values.emplace_back(std::nullopt);
      }
    }
    return values;
  }

  Value element(const graph::Slot& slot, std::size_t index) const {
    const auto start = static_cast<std::int64_t>(index);
    const Value& vector = slot.dtype == DType::kFloat64 ? floats_ : ints_;
    const Value number = hlo::reshape(hlo::slice(vector, {start}, {start + 1}, {1}), {});
    return slot.dtype == DType::kUInt64 ? hlo::bitcast_convert(number, DType::kUInt64) : number;
  }

  const graph::Trace& trace_;
  const LowerOptions& options_;
  const std::vector<bool>& promoted_;
  hlo::Builder builder_;
  Program program_;
  std::vector<Value> leaves_;
  Value floats_;
  Value ints_;
  std::size_t next_float_ = 0;
  std::size_t next_int_ = 0;
  std::size_t next_promotable_ = 0;
  std::size_t next_promoted_float_ = 0;
  std::size_t next_promoted_int_ = 0;
};

}  // namespace

Program lower(const graph::Trace& trace, const LowerOptions& options) {
  return Module(trace, options).run();
}

std::vector<std::optional<Shape>> infer(const graph::Entry& partial, std::string_view platform) {
  hlo::Builder builder(hlo::Mode::kTypesOnly);
  std::vector<Value> operands;
  for (const graph::TensorType* type : partial.operands) {
    operands.push_back(builder.parameter(type->shape));
  }
  // Numbers that travel with a node are not known here, and decide no type.
  std::vector<std::optional<Value>> slots;
  for (const graph::Slot& slot : partial.slots) {
    slots.emplace_back(builder.parameter({slot.dtype, {}}));
  }
  const std::vector<std::uint64_t> bits(partial.slots.size());
  Context context{builder, platform, {}};
  std::vector<std::optional<Shape>> types;
  for (const Value& result : emit_call(partial, context, {operands, slots, bits, partial.slots},
                                       /*reads_second_result=*/true)) {
    types.push_back(result ? std::optional(result.type()) : std::nullopt);
  }
  return types;
}

bool is_constraint_error(const base::Error& error) { return hlo::is_constraint_error(error); }

}  // namespace torch_xla::ops

// Running lowerings over a trace, in its order, and over the argument types of one call.
#include "ops/lower.h"

#include <string>
#include <utility>

#include "hlo/builder.h"
#include "hlo/constraint_error.h"
#include "hlo/known_nan.h"
#include "hlo/ops.h"
#include "hlo/partitioned.h"
#include "hlo/update_order.h"
#include "ops/bounded.h"
#include "ops/registry.h"
#include "ops/trace_emitter.h"

namespace torch_xla::ops {
namespace {

// Whole arrays lie on the mesh that the others are split over: Shardy takes no notice of those on
// another one. Null for a program of one device.
const base::Sharding* find_whole(const graph::Trace& trace, const Partition& partition) {
  if (partition.num_devices == 1) return nullptr;
  for (const auto& shardings : {partition.leaves, partition.roots}) {
    for (const base::Sharding* const sharding : shardings) {
      if (!base::is_whole(sharding)) return base::Sharding::make(sharding->mesh(), {});
    }
  }
  for (const graph::Trace::Step& step : trace.steps) {
    const graph::Entry& entry = *step.node->entry();
    if (entry.op->name != "xla:_sharding_constraint") continue;
    const std::string& text = std::get<std::string>(entry.args[1]);
    return base::Sharding::make(base::Sharding::find(text)->mesh(), {});
  }
  return base::Sharding::replicated(partition.num_devices);
}

class Module {
 public:
  Module(const graph::Trace& trace, const Target& target, std::span<const Donation> donations,
         const Numbers& numbers, const Partition& partition, const base::Sharding* whole,
         const Bounds* bounds)
      : trace_(trace),
        target_(target),
        donations_(donations),
        partition_(partition),
        whole_(whole) {
    builder_.set_default_precision(target.precision);
    if (bounds != nullptr) bounded_.emplace(trace, *bounds);
    for (std::size_t i = 0; i < trace.leaves.size(); ++i) {
      base::Shape shape = trace.leaves[i]->shape();
      if (bounded_.has_value()) {
        shape.dims = bounded_->leaf_dims(i);
        program_.leaves.push_back(shape.dims);
      }
      leaves_.push_back(builder_.parameter(shape));
    }
    for (const Donation& donation : donations) {
      const bool is_alike = !bounded_.has_value() || bounded_->leaf_dims(donation.leaf) ==
                                                         bounded_->root_dims(donation.root);
      if (!is_alike) continue;
      builder_.set_parameter_attribute(donation.leaf, "tf.aliasing_output",
                                       base::str(donation.root, " : i32"));
    }
    address_slots(numbers);
    const std::size_t first_variable = program_.ints.size();
    for (std::size_t i = 0; bounds != nullptr && i < bounds->bounds.size(); ++i) {
      program_.ints.push_back(static_cast<std::uint32_t>(trace.numbers.size() + i));
    }
    if (!program_.floats.empty()) {
      floats_ = vector_parameter(DType::kFloat64, program_.floats.size());
    }
    if (!program_.ints.empty()) {
      ints_ = vector_parameter(DType::kInt64, program_.ints.size());
    }
    for (std::size_t i = first_variable; i < program_.ints.size(); ++i) {
      variables_.push_back(ints_.elements[i]);
    }
    if (whole_ != nullptr) place_parameters();
  }

  Program run() {
    const auto slots = [this](std::size_t step) { return slots_of(step); };
    const std::vector<Value> parameters = leaves_;
    const std::vector<Value> roots = emit_roots(slots);
    order_updates(parameters, roots);
    if (whole_ != nullptr) place_results(roots);
    program_.text = builder_.finish(roots);
    return std::move(program_);
  }

 private:
  // Not in a partitioned program: each device would be given all of what is behind a barrier's
  // call.
  void order_updates(const std::vector<Value>& parameters, const std::vector<Value>& roots) {
    if (builder_.barrier_call().empty() || target_.is_exported || whole_ != nullptr) return;
    std::vector<hlo::Update> updates;
    for (const Donation& donation : donations_) {
      updates.push_back({parameters[donation.leaf], roots[donation.root]});
    }
    hlo::let_updates_wait(builder_, updates);
  }

  std::vector<Value> emit_roots(const SlotValues& slots) {
    if (!bounded_.has_value()) {
      return emit_trace(builder_, target_, trace_, std::move(leaves_), slots);
    }
    for (std::size_t i = 0; i < trace_.roots.size(); ++i) {
      program_.roots.push_back(bounded_->root_dims(i));
    }
    const BoundedEmission bounded{*bounded_, std::move(variables_)};
    return emit_trace(builder_, target_, trace_, std::move(leaves_), slots, &bounded);
  }

  std::string attribute_of(std::span<const base::Sharding* const> shardings, std::size_t i,
                           const Value& value) {
    const bool is_split = i < shardings.size() && !base::is_whole(shardings[i]);
    return hlo::sharding_attribute(builder_, is_split ? *shardings[i] : *whole_, value.rank());
  }

  void place_parameters() {
    std::vector<Value> parameters = leaves_;
    if (!program_.floats.empty()) parameters.push_back(floats_.vector);
    if (!program_.ints.empty()) parameters.push_back(ints_.vector);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      builder_.set_parameter_attribute(i, hlo::sharding_attribute_name(),
                                       attribute_of(partition_.leaves, i, parameters[i]));
    }
  }

  void place_results(const std::vector<Value>& roots) {
    for (std::size_t i = 0; i < roots.size(); ++i) {
      builder_.set_result_attribute(i, hlo::sharding_attribute_name(),
                                    attribute_of(partition_.roots, i, roots[i]));
    }
  }

  // Where a slot's number is in the vector of its kind; none: it is a constant.
  using Address = std::optional<std::size_t>;

  // The numbers of one kind.
  struct Vector {
    Value vector;
    std::vector<Value> elements;
  };

  // All elements are taken out before the first step: they are there for every reader, whoever
  // comes first, and in regions.
  Vector vector_parameter(DType dtype, std::size_t size) {
    const auto count = static_cast<std::int64_t>(size);
    Vector numbers{builder_.parameter({dtype, {count}}), {}};
    for (std::int64_t i = 0; i < count; ++i) {
      numbers.elements.push_back(hlo::reshape(hlo::slice(numbers.vector, {i}, {i + 1}, {1}), {}));
    }
    return numbers;
  }

  // Data lie in the vectors in the order in which the walk met them, each only once.
  void address_slots(const Numbers& numbers) {
    const std::vector<bool>& is_data = numbers.is_data.empty() ? trace_.is_data : numbers.is_data;
    for (const graph::Trace::Step& step : trace_.steps) {
      first_slot_.push_back(addresses_.size());
      for (const graph::Slot& slot : step.node->entry()->slots) {
        const auto number = static_cast<std::uint32_t>(addresses_.size());
        Address& address = addresses_.emplace_back();
        if (target_.is_exported || !is_data[number]) continue;
        const std::uint32_t first = numbers.same_as.empty() ? number : numbers.same_as[number];
        if (first != number) {
          address = addresses_[first];
          base::internal_check(address.has_value(), "number ", number, " of ",
                               step.node->entry()->op->name, " is data, and is to be the same as ",
                               first, ", which is not");
          continue;
        }
        std::vector<std::uint32_t>& vector =
            slot.dtype == DType::kFloat64 ? program_.floats : program_.ints;
        address = vector.size();
        vector.push_back(number);
      }
    }
  }

  std::vector<std::optional<Value>> slots_of(std::size_t step) {
    const std::vector<graph::Slot>& slots = trace_.steps[step].node->entry()->slots;
    std::vector<std::optional<Value>> values(slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const Address& address = addresses_[first_slot_[step] + i];
      if (address.has_value()) values[i] = element(slots[i], *address);
    }
    return values;
  }

  Value element(const graph::Slot& slot, std::size_t index) const {
    const Vector& numbers = slot.dtype == DType::kFloat64 ? floats_ : ints_;
    const Value& number = numbers.elements[index];
    return slot.dtype == DType::kUInt64 ? hlo::bitcast_convert(number, DType::kUInt64) : number;
  }

  const graph::Trace& trace_;
  const Target& target_;
  const std::span<const Donation> donations_;
  const Partition& partition_;
  const base::Sharding* const whole_;  // of a partitioned program, else null
  std::optional<BoundedTrace> bounded_;
  std::vector<Value> variables_;  // of a bounded program
  hlo::Builder builder_;
  Program program_;
  std::vector<Value> leaves_;
  Vector floats_;
  Vector ints_;
  std::vector<Address> addresses_;       // of all slots
  std::vector<std::size_t> first_slot_;  // of each step, in `addresses_`
};

}  // namespace

Program lower(const graph::Trace& trace, const Target& target, std::span<const Donation> donations,
              const Numbers& numbers, const Partition& partition, const Bounds* bounds) {
  const base::Sharding* const whole = find_whole(trace, partition);
  const hlo::PartitionedScope scope(whole, target.partitioner);
  const hlo::KnownNanScope nans(target.platform == "cpu" && !target.is_exported);
  return Module(trace, target, donations, numbers, partition, whole, bounds).run();
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
  Context context{{.platform = platform}, builder};
  std::vector<std::optional<Shape>> types;
  for (const Value& result : emit_call(partial, context, {operands, slots, bits, partial.slots},
                                       /*reads_second_result=*/true)) {
    types.push_back(result ? std::optional(result.type()) : std::nullopt);
  }
  return types;
}

bool is_constraint_error(const base::Error& error) { return hlo::is_constraint_error(error); }

}  // namespace torch_xla::ops

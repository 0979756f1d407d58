// Running lowerings over a trace, in its order, and over the argument types of one call.
#include "ops/lower.h"

#include <utility>

#include "hlo/builder.h"
#include "hlo/constraint_error.h"
#include "hlo/ops.h"
#include "ops/partitioned.h"
#include "ops/registry.h"
#include "ops/trace_emitter.h"

namespace torch_xla::ops {
namespace {

thread_local bool lowers_partitioned = false;

}  // namespace

PartitionedScope::PartitionedScope(bool is_partitioned)
    : before_(std::exchange(lowers_partitioned, is_partitioned)) {}
PartitionedScope::~PartitionedScope() { lowers_partitioned = before_; }

bool is_partitioned() { return lowers_partitioned; }

namespace {

class Module {
 public:
  Module(const graph::Trace& trace, const Target& target, std::span<const Donation> donations,
         const std::vector<bool>& promoted, const Partition& partition)
      : trace_(trace), target_(target), partition_(partition) {
    builder_.set_default_precision(target.precision);
    for (const graph::DataPtr& leaf : trace.leaves) {
      leaves_.push_back(builder_.parameter(leaf->shape()));
    }
    for (const Donation& donation : donations) {
      builder_.set_parameter_attribute(donation.leaf, "tf.aliasing_output",
                                       base::str(donation.root, " : i32"));
    }
    address_slots(promoted.empty() ? trace.promoted : promoted);
    if (program_.num_floats > 0) floats_ = vector_parameter(DType::kFloat64, program_.num_floats);
    if (program_.num_ints > 0) ints_ = vector_parameter(DType::kInt64, program_.num_ints);
    if (partition.num_devices > 1) place_parameters();
  }

  Program run() {
    const auto slots = [this](std::size_t step) { return slots_of(step); };
    const std::vector<Value> roots =
        emit_trace(builder_, target_, trace_, std::move(leaves_), slots);
    if (partition_.num_devices > 1) place_results(roots);
    program_.text = builder_.finish(roots);
    return std::move(program_);
  }

 private:
  // Whole arrays lie on the mesh that the others are split over: Shardy takes no notice of those on
  // another one.
  const base::Sharding& whole() const {
    for (const auto& shardings : {partition_.leaves, partition_.roots}) {
      for (const base::Sharding* const sharding : shardings) {
        if (!base::is_whole(sharding)) return *base::Sharding::make(sharding->mesh(), {});
      }
    }
    for (const graph::Trace::Step& step : trace_.steps) {
      const graph::Entry& entry = *step.node->entry();
      if (entry.op->name != "xla:_sharding_constraint") continue;
      const std::string& text = std::get<std::string>(entry.args[1]);
      return *base::Sharding::make(base::Sharding::find(text)->mesh(), {});
    }
    return *base::Sharding::replicated(partition_.num_devices);
  }

  std::string attribute_of(std::span<const base::Sharding* const> shardings, std::size_t i,
                           const Value& value) {
    const bool is_split = i < shardings.size() && !base::is_whole(shardings[i]);
    return hlo::sharding_attribute(builder_, is_split ? *shardings[i] : whole(), value.rank());
  }

  void place_parameters() {
    std::vector<Value> parameters = leaves_;
    if (program_.num_floats > 0) parameters.push_back(floats_);
    if (program_.num_ints > 0) parameters.push_back(ints_);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      builder_.set_parameter_attribute(i, "sdy.sharding",
                                       attribute_of(partition_.leaves, i, parameters[i]));
    }
  }

  void place_results(const std::vector<Value>& roots) {
    for (std::size_t i = 0; i < roots.size(); ++i) {
      builder_.set_result_attribute(i, "sdy.sharding", attribute_of(partition_.roots, i, roots[i]));
    }
  }

  // Where a slot's number is in the vector of its kind; none: it is a constant.
  using Address = std::optional<std::size_t>;

  Value vector_parameter(DType dtype, std::size_t size) {
    return builder_.parameter({dtype, {static_cast<std::int64_t>(size)}});
  }

  // Data lie in the vectors in the order in which the walk met them, promoted numbers behind them.
  void address_slots(const std::vector<bool>& promoted) {
    std::size_t num_floats = 0;
    std::size_t num_ints = 0;
    std::uint32_t promotable = 0;
    for (const graph::Trace::Step& step : trace_.steps) {
      first_slot_.push_back(addresses_.size());
      for (const graph::Slot& slot : step.node->entry()->slots) {
        const bool is_float = slot.dtype == DType::kFloat64;
        Address& address = addresses_.emplace_back();
        if (target_.is_exported) continue;
        if (slot.mode == graph::SlotMode::kData) {
          address = is_float ? num_floats++ : num_ints++;
          continue;
        }
        const std::uint32_t position = promotable++;
        if (!promoted[position]) continue;
        std::vector<std::uint32_t>& behind =
            is_float ? program_.promoted_floats : program_.promoted_ints;
        address = (is_float ? trace_.floats : trace_.ints).size() + behind.size();
        behind.push_back(position);
      }
    }
    program_.num_floats = num_floats + program_.promoted_floats.size();
    program_.num_ints = num_ints + program_.promoted_ints.size();
  }

  std::vector<std::optional<Value>> slots_of(std::size_t step) const {
    const std::vector<graph::Slot>& slots = trace_.steps[step].node->entry()->slots;
    std::vector<std::optional<Value>> values(slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const Address& address = addresses_[first_slot_[step] + i];
      if (address.has_value()) values[i] = element(slots[i], *address);
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
  const Target& target_;
  const Partition& partition_;
  hlo::Builder builder_;
  Program program_;
  std::vector<Value> leaves_;
  Value floats_;
  Value ints_;
  std::vector<Address> addresses_;       // of all slots
  std::vector<std::size_t> first_slot_;  // of each step, in `addresses_`
};

}  // namespace

Program lower(const graph::Trace& trace, const Target& target, std::span<const Donation> donations,
              const std::vector<bool>& promoted, const Partition& partition) {
  const PartitionedScope scope(partition.num_devices > 1);
  return Module(trace, target, donations, promoted, partition).run();
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

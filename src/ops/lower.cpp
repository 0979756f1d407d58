// Running lowerings over a trace, in its order, and over the argument types of one call.
#include "ops/lower.h"

#include <exception>
#include <map>
#include <set>

#include "base/stored_dtype.h"
#include "hlo/builder.h"
#include "hlo/constraint_error.h"
#include "hlo/ops.h"
#include "ops/composite.h"
#include "ops/promotion.h"
#include "ops/registry.h"

namespace torch_xla::ops {
namespace {

const Lowering& lowering_of(const graph::Entry& entry, std::string_view platform) {
  const Lowering* lowering = registry().find(entry.op->name, platform);
  if (lowering == nullptr) {
    base::fail(base::ErrorKind::kUnimplemented, "aten::", entry.op->name,
               " has no lowering for the platform '", platform, "'");
  }
  return *lowering;
}

std::vector<Value> emit(const Lowering& lowering, const graph::Entry& entry, Context& context,
                        const Frame& frame) {
  std::vector<const graph::Attribute*> args;
  args.reserve(entry.args.size());
  for (const graph::Attribute& arg : entry.args) args.push_back(&arg);
  return lowering.emit(context, args, frame);
}

std::string type_text(const Value& value) {
  return value ? base::to_string(value.type()) : "an undefined tensor";
}

// A result as the entry recorded it: what a call records is what its readers were told.
Value as_recorded(Value result, const graph::TensorType* type, const graph::Op& op,
                  std::size_t output) {
  // A result that is not wanted by the entry costs nothing: XLA drops it.
  if (type == nullptr) return {};
  const Shape shape = base::stored_shape(type->shape);
  if (result && op.converts_result) {
    result = broadcast_to(convert(result, shape.dtype), shape.dims);
  } else if (result && base::stores_other_dtypes()) {
    result = convert(result, shape.dtype);
  }
  base::internal_check(result && result.type() == shape, "aten::", op.name, ": result ", output,
                       " was recorded as ", base::to_string(shape), " and lowered to ",
                       type_text(result));
  return result;
}

// False for operators that need the dtypes which their operands report: Fourier transforms, which
// there are none of in bfloat16, and what looks at the bits of a number.
bool runs_in_stored_dtypes(const graph::Entry& entry, std::string_view platform) {
  graph::Entry stored = entry;
  for (const graph::TensorType*& type : stored.operands) {
    type = graph::intern_contiguous(base::stored_shape(type->shape));
  }
  try {
    const std::vector<std::optional<Shape>> types = infer(stored, platform);
    for (std::size_t i = 0; i < types.size() && i < entry.outputs.size(); ++i) {
      if (entry.outputs[i] == nullptr || !types[i].has_value()) continue;
      // Writes are broadcast to what they write.
      if (!entry.op->converts_result && types[i]->dims != entry.outputs[i]->shape.dims)
        return false;
      if (base::is_complex(types[i]->dtype) != base::is_complex(entry.outputs[i]->shape.dtype)) {
        return false;
      }
    }
    return true;
  } catch (const base::Error&) {
    return false;
  }
}

class Module {
 public:
  Module(const graph::Trace& trace, const LowerOptions& options)
      : trace_(trace), options_(options) {
    builder_.set_default_precision(options.precision);
  }

  Program run() {
    add_parameters();
    std::size_t num_results = 0;
    for (const graph::Trace::Step& step : trace_.steps) {
      first_result_.push_back(num_results);
      num_results += step.node->entry()->outputs.size();
    }
    results_.resize(num_results);
    if (options_.has_constant_numbers) composites_ = find_composites(trace_);
    if (composites_.empty()) {
      for (std::uint32_t i = 0; i < trace_.steps.size(); ++i) add_step(i);
    } else {
      add_contracted_steps();
    }
    std::vector<Value> roots;
    roots.reserve(trace_.roots.size());
    for (const graph::Source& root : trace_.roots) roots.push_back(value_of(root));
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

  // Which promotable slots are data, by the vector that carries them.
  void find_promoted() {
    if (options_.promoted.empty()) return;
    std::uint32_t position = 0;
    for (const graph::Trace::Step& step : trace_.steps) {
      for (const graph::Slot& slot : step.node->entry()->slots) {
        if (slot.mode != graph::SlotMode::kPromotable) continue;
        if (options_.promoted[position]) {
          (slot.dtype == DType::kFloat64 ? program_.promoted_floats : program_.promoted_ints)
              .push_back(position);
        }
        ++position;
      }
    }
  }

  void add_contracted_steps() {
    std::map<std::uint32_t, const Composite*> by_output;
    for (const Composite& composite : composites_) {
      for (const std::uint32_t output : composite.outputs) by_output[output] = &composite;
    }
    std::set<const Composite*> is_added;
    for (const std::uint32_t i : contracted_order(trace_, composites_)) {
      const auto found = by_output.find(i);
      if (found == by_output.end()) {
        add_step(i);
      } else if (is_added.insert(found->second).second) {
        add_composite(*found->second, base::str("composite", is_added.size()));
      }
    }
  }

  // One operation by the composite's name, and a function of the module that says what it means.
  void add_composite(const Composite& composite, const std::string& function) {
    std::vector<Value> operands;
    for (const std::uint32_t input : composite.inputs) operands.push_back(result_of(input));
    for (const std::uint32_t leaf : composite.leaves) operands.push_back(leaves_[leaf]);
    std::vector<Shape> types;
    for (const Value& operand : operands) types.push_back(operand.type());
    // Inside, results and leaves are the function's own.
    const std::vector<Value> outer_results = results_;
    const std::vector<Value> outer_leaves = leaves_;
    builder_.define_function(function, types, [&](std::span<const Value> parameters) {
      std::size_t next = 0;
      for (const std::uint32_t input : composite.inputs) result_of(input) = parameters[next++];
      for (const std::uint32_t leaf : composite.leaves) leaves_[leaf] = parameters[next++];
      for (const std::uint32_t step : composite.body) add_step(step);
      std::vector<Value> yielded;
      for (const std::uint32_t output : composite.outputs) {
        yielded.push_back(value_of(trace_.sources[trace_.steps[output].first_source]));
      }
      return yielded;
    });
    results_ = outer_results;
    leaves_ = outer_leaves;
    const std::vector<Value> results =
        hlo::composite(operands, composite.name, function, composite.attributes);
    for (std::size_t i = 0; i < results.size(); ++i) result_of(composite.outputs[i]) = results[i];
  }

  Value& result_of(std::uint32_t step) { return results_[first_result_[step]]; }

  void add_step(std::uint32_t index) {
    const graph::Trace::Step& step = trace_.steps[index];
    const graph::Entry& entry = *step.node->entry();
    const graph::Op& op = *entry.op;
    if (options_.has_locations) set_location(*step.node);
    try {
      add_results(index, entry, lower_call(step, entry));
    } catch (const base::Error& error) {
      const std::string what = error.what();
      if (what.find(op.name) != std::string::npos) throw;
      base::fail(error.kind(), "aten::", op.name, ": ", what);
    } catch (const std::exception& error) {
      base::internal_check(false, "lowering of aten::", op.name, ": ", error.what());
    }
  }

  void set_location(const graph::Node& node) {
    const graph::SourceLine& line = graph::source_line(node.location());
    std::string name = "aten::" + node.entry()->op->name;
    if (!line.scope.empty()) name = line.scope + "/" + name;
    if (node.location() == 0) {
      builder_.set_location(name);
    } else {
      builder_.set_location(name, line.frame.file, line.frame.line);
    }
  }

  std::vector<Value> lower_call(const graph::Trace::Step& step, const graph::Entry& entry) {
    std::vector<Value> operands = operands_of(step, entry);
    const std::vector<std::optional<Value>> slots = slots_of(entry);
    const bool in_stored_dtypes =
        !base::stores_other_dtypes() || runs_in_stored_dtypes(entry, options_.platform);
    if (!in_stored_dtypes) {
      for (std::size_t i = 0; i < operands.size(); ++i) {
        operands[i] = convert(operands[i], entry.operands[i]->shape.dtype);
      }
    }
    std::vector<Shape> outputs;
    for (const graph::TensorType* type : entry.outputs) {
      if (type == nullptr) {
        outputs.emplace_back();
      } else {
        outputs.push_back(in_stored_dtypes ? base::stored_shape(type->shape) : type->shape);
      }
    }
    const Lowering& lowering = lowering_of(entry, options_.platform);
    Context context{builder_, options_.platform, outputs, options_.has_host_kernels};
    return emit(lowering, entry, context, {operands, slots, step.node->slots(), entry.slots});
  }

  std::vector<Value> operands_of(const graph::Trace::Step& step, const graph::Entry& entry) const {
    std::vector<Value> operands;
    operands.reserve(entry.operands.size());
    for (std::size_t i = 0; i < entry.operands.size(); ++i) {
      operands.push_back(value_of(trace_.sources[step.first_source + i]));
    }
    return operands;
  }

  Value value_of(const graph::Source& source) const {
    if (source.is_leaf) return leaves_[source.index];
    const Value value = results_[first_result_[source.index] + source.output];
    base::internal_check(static_cast<bool>(value), "output ", source.output,
                         " of aten::", trace_.steps[source.index].node->entry()->op->name,
                         " is undefined");
    return value;
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
      if (options_.promoted.empty() || !options_.promoted[position]) {
        values.emplace_back(std::nullopt);
      } else {
        values.emplace_back(
            element(slot, is_float ? next_promoted_float_++ : next_promoted_int_++));
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

  void add_results(std::uint32_t step, const graph::Entry& entry,
                   const std::vector<Value>& results) {
    const graph::Op& op = *entry.op;
    base::internal_check(results.size() <= entry.outputs.size(), "aten::", op.name, ": ",
                         entry.outputs.size(), " results were recorded and ", results.size(),
                         " lowered");
    for (std::size_t i = 0; i < entry.outputs.size(); ++i) {
      results_[first_result_[step] + i] =
          as_recorded(i < results.size() ? results[i] : Value(), entry.outputs[i], op, i);
    }
  }

  const graph::Trace& trace_;
  const LowerOptions& options_;
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
  std::vector<Composite> composites_;
  std::vector<Value> results_;             // of all steps; empty for those that are to come
  std::vector<std::size_t> first_result_;  // of each step, in `results_`
};

}  // namespace

Program lower(const graph::Trace& trace, const LowerOptions& options) {
  return Module(trace, options).run();
}

std::vector<std::optional<Shape>> infer(const graph::Entry& partial, std::string_view platform) {
  const Lowering& lowering = lowering_of(partial, platform);
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
  for (const Value& result :
       emit(lowering, partial, context, {operands, slots, bits, partial.slots})) {
    types.push_back(result ? std::optional(result.type()) : std::nullopt);
  }
  return types;
}

bool is_constraint_error(const base::Error& error) { return hlo::is_constraint_error(error); }

}  // namespace torch_xla::ops

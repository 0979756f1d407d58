// The walk along a trace's steps: each takes values out of those of the steps before.
#include "ops/trace_emitter.h"

#include <algorithm>
#include <deque>
#include <exception>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "base/error.h"
#include "base/stored_dtype.h"
#include "hlo/chains.h"
#include "hlo/in_place.h"
#include "hlo/ops.h"
#include "ops/aten_call.h"
#include "ops/composite.h"
#include "ops/host_choice.h"
#include "ops/lines.h"
#include "ops/lower.h"
#include "ops/promotion.h"
#include "ops/regions.h"

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

// The collectives of a trace, by group, and each one's place.
struct Agreements {
  std::map<std::string, Agreement> by_group;
  std::map<std::uint32_t, std::pair<Agreement*, std::int64_t>> places;  // by step
};
Agreements find_agreements(const graph::Trace& trace, const Target& target) {
  Agreements found;
  std::map<const Agreement*, std::int64_t> counts;
  for (std::uint32_t i = 0; i < trace.steps.size(); ++i) {
    const graph::Entry& entry = *trace.steps[i].node->entry();
    const Lowering* lowering = registry().find(entry.op->name, target.platform);
    if (lowering == nullptr || !lowering->is_collective || lowering->is_between_two) continue;
    const std::string& group = std::get<std::string>(entry.args[entry.args.size() - 2]);
    Agreement& agreement = found.by_group[group];
    agreement.lines += line_of_collective(*trace.steps[i].node, lowering->has_own_sizes);
    found.places[i] = {&agreement, counts[&agreement]++};
  }
  return found;
}

// All steps of a trace, each behind those that it reads, and these, which are in such an order, as
// early as that allows.
std::vector<std::uint32_t> order_with_first(const graph::Trace& trace,
                                            const std::vector<std::uint32_t>& first) {
  std::vector<std::uint32_t> order;
  std::vector<bool> is_added(trace.steps.size());
  std::vector<std::uint32_t> wanted;
  for (const std::uint32_t step : first) {
    const std::size_t start = order.size();
    wanted.push_back(step);
    while (!wanted.empty()) {
      const std::uint32_t next = wanted.back();
      wanted.pop_back();
      if (is_added[next]) continue;
      is_added[next] = true;
      order.push_back(next);
      const graph::Trace::Step& reader = trace.steps[next];
      for (std::size_t i = 0; i < reader.node->entry()->operands.size(); ++i) {
        const graph::Source& source = trace.sources[reader.first_source + i];
        if (!source.is_leaf) wanted.push_back(source.index);
      }
    }
    std::sort(order.begin() + static_cast<std::ptrdiff_t>(start), order.end());
  }
  for (std::uint32_t i = 0; i < trace.steps.size(); ++i) {
    if (!is_added[i]) order.push_back(i);
  }
  return order;
}

// What several steps read and this many elementwise operations lead to is computed once.
constexpr std::size_t kLongChain = 32;

class TraceEmitter {
 public:
  TraceEmitter(hlo::Builder& builder, const Target& target, const graph::Trace& trace,
               std::vector<Value> leaves, const SlotValues& slots, const BoundedEmission* bounded)
      : builder_(builder),
        target_(target),
        trace_(trace),
        leaves_(std::move(leaves)),
        slots_(slots),
        bounded_(bounded) {
    // See src/aten/barrier_kernel.cpp.
    if (target.has_host_kernels) builder.set_barrier_call("torch_xla.optimization_barrier");
  }

  std::vector<Value> run() {
    std::size_t num_results = 0;
    for (const graph::Trace::Step& step : trace_.steps) {
      first_result_.push_back(num_results);
      num_results += step.node->entry()->outputs.size();
    }
    results_.resize(num_results);
    num_reads_.resize(num_results);
    for (const graph::Source& source : trace_.sources) note_read(source);
    for (const graph::Source& root : trace_.roots) note_read(root);
    if (target_.is_exported) composites_ = find_composites(trace_);
    agreements_ = find_agreements(trace_, target_);
    splits_exchanges_ = target_.has_host_kernels && !target_.is_exported && bounded_ == nullptr;
    if (composites_.empty()) {
      for (const std::uint32_t step : order()) add_step(step);
    } else {
      add_contracted_steps();
    }
    std::vector<Value> roots;
    roots.reserve(trace_.roots.size());
    finish_all();
    for (const graph::Source& root : trace_.roots) roots.push_back(value_of(root));
    return roots;
  }

 private:
  // A collective whose results are still to come.
  struct Unfinished {
    std::uint32_t step;
    std::function<std::vector<Value>()> finish;
  };

  // Collectives begin as early as they can.
  std::vector<std::uint32_t> order() const {
    std::vector<std::uint32_t> first;
    if (splits_exchanges_) {
      for (const auto& [step, place] : agreements_.places) first.push_back(step);
    }
    return order_with_first(trace_, first);
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

  void note_read(const graph::Source& source) {
    if (!source.is_leaf) ++num_reads_[first_result_[source.index] + source.output];
  }

  Value& result_of(std::uint32_t step) { return results_[first_result_[step]]; }

  void add_step(std::uint32_t index) {
    const graph::Trace::Step& step = trace_.steps[index];
    const graph::Entry& entry =
        bounded_ == nullptr ? *step.node->entry() : bounded_->trace.call(index).entry;
    const graph::Op& op = *entry.op;
    try {
      const bool is_exchange = agreements_.places.contains(index);
      if (!is_exchange && may_exchange(step)) finish_all();
      std::vector<Value> operands = operands_of(step, entry);
      // Another chain of tokens begins where an exchange is made again for a read: one order for
      // all.
      if (is_exchange && splits_exchanges_ && has_exchanged_) {
        operands.back() = results_[token_place_];
      }
      if (target_.has_locations) set_location(*step.node);
      std::vector<Value> results = lower_call(index, entry, std::move(operands));
      if (is_exchange) {
        token_place_ = first_result_[index] + entry.outputs.size() - 1;
        has_exchanged_ = true;
      }
      if (exchanges_.finish == nullptr) return add_results(index, entry, results);
      results_[token_place_] = results.back();
      unfinished_.push_back({index, std::exchange(exchanges_.finish, nullptr)});
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

  // Whether it may have calls of its own that would stand between those of exchanges that are to be
  // finished: it takes the last token, or is a region that takes what may be another.
  bool may_exchange(const graph::Trace::Step& step) const {
    if (unfinished_.empty()) return false;
    const graph::Entry& entry = *step.node->entry();
    const auto may_be_token = [](const graph::TensorType* type) {
      return type->shape.dims.empty() && type->shape.dtype == DType::kInt64;
    };
    if (entry.op->region != nullptr && std::ranges::any_of(entry.operands, may_be_token)) {
      return true;
    }
    return takes_token(step);
  }

  // Whether it reads what the last collective wrote.
  bool takes_token(const graph::Trace::Step& step) const {
    const std::size_t count = step.node->entry()->operands.size();
    for (std::size_t i = 0; i < count; ++i) {
      const graph::Source& source = trace_.sources[step.first_source + i];
      if (!source.is_leaf && first_result_[source.index] + source.output == token_place_) {
        return true;
      }
    }
    return false;
  }

  // In the order in which they have begun, up to this one.
  void finish_until(std::uint32_t step) {
    while (!unfinished_.empty()) {
      const Unfinished next = std::move(unfinished_.front());
      unfinished_.pop_front();
      const graph::Node& node = *trace_.steps[next.step].node;
      if (target_.has_locations) set_location(node);
      exchanges_.token = results_[token_place_];
      add_results(next.step, *node.entry(), next.finish());
      results_[token_place_] = exchanges_.token;
      if (next.step == step) return;
    }
  }
  void finish_all() { finish_until(static_cast<std::uint32_t>(trace_.steps.size())); }

  std::vector<Value> lower_call(std::uint32_t index, const graph::Entry& entry,
                                std::vector<Value> operands) {
    const graph::Trace::Step& step = trace_.steps[index];
    const std::vector<std::optional<Value>> slots = slots_(index);
    if (const graph::RegionOp* region = entry.op->region) {
      return emit_region(*region, builder_, target_, operands, keys_of(step, slots));
    }
    const bool in_stored_dtypes =
        !base::stores_other_dtypes() || runs_in_stored_dtypes(entry, target_.platform);
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
    // Composites are of programs that leave the process, which none of its kernels can follow.
    if (target_.is_exported && lowering_of(entry, target_.platform).is_aten_call) {
      base::fail(base::ErrorKind::kUnimplemented, "aten::", entry.op->name,
                 " is a call of PyTorch's own kernel, which a program that leaves this process "
                 "can't name");
    }
    Context context{target_, builder_, outputs};
    if (const auto found = agreements_.places.find(index); found != agreements_.places.end()) {
      std::tie(context.agreement, context.number_in_agreement) = found->second;
      if (splits_exchanges_) context.exchanges = &exchanges_;
    }
    const bool reads_second = entry.outputs.size() > 1 && num_reads_[first_result_[index] + 1] > 0;
    if (bounded_ != nullptr && bounded_->trace.call(index).is_bounded) {
      const DefaultFloat default_float(entry.default_float);
      return emit_bounded(bounded_->trace.call(index),
                          {context, std::move(operands), slots, step.node->slots(),
                           bounded_->variables, reads_second});
    }
    return emit_call(entry, context, {operands, slots, step.node->slots(), entry.slots},
                     reads_second);
  }

  std::vector<Value> operands_of(const graph::Trace::Step& step, const graph::Entry& entry) {
    std::vector<Value> operands;
    operands.reserve(entry.operands.size());
    for (std::size_t i = 0; i < entry.operands.size(); ++i) {
      operands.push_back(value_of(trace_.sources[step.first_source + i]));
    }
    return operands;
  }

  Value value_of(const graph::Source& source) {
    if (source.is_leaf) return leaves_[source.index];
    const std::size_t place = first_result_[source.index] + source.output;
    if (!results_[place]) finish_until(source.index);
    const Value value = results_[place];
    base::internal_check(static_cast<bool>(value), "output ", source.output,
                         " of aten::", trace_.steps[source.index].node->entry()->op->name,
                         " is undefined");
    return value;
  }

  // The random keys of a region's node.
  std::vector<Value> keys_of(const graph::Trace::Step& step,
                             const std::vector<std::optional<Value>>& slots) const {
    std::vector<Value> keys;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const auto bits = static_cast<std::int64_t>(step.node->slots()[i]);
      keys.push_back(slots[i].has_value() ? *slots[i]
                                          : scalar(builder_, DType::kUInt64, Scalar(bits)));
    }
    return keys;
  }

  void add_results(std::uint32_t step, const graph::Entry& entry,
                   const std::vector<Value>& results) {
    const graph::Op& op = *entry.op;
    base::internal_check(results.size() <= entry.outputs.size(), "aten::", op.name, ": ",
                         entry.outputs.size(), " results were recorded and ", results.size(),
                         " lowered");
    for (std::size_t i = 0; i < entry.outputs.size(); ++i) {
      const std::size_t place = first_result_[step] + i;
      if (results_[place]) continue;  // the token of a collective that ends
      results_[place] =
          as_recorded(i < results.size() ? results[i] : Value(), entry.outputs[i], op, i);
      keep_from_repetition(results_[place], num_reads_[place]);
    }
  }

  // XLA's CPU compiler fuses a formula into every reader of its value, and those into theirs: what
  // is carried through the turns of a Python loop would be computed again, all of it, in every
  // turn, and compiled as often.
  void keep_from_repetition(Value& value, std::uint32_t num_reads) const {
    const bool has_barrier = !builder_.barrier_call().empty() && !target_.is_exported;
    if (!has_barrier || !value || num_reads < 2 || value.num_elements() < 2) return;
    if (hlo::ends_chain(value, kLongChain)) value = hlo::hidden({value}, 1, true)[0];
  }

  hlo::Builder& builder_;
  const Target& target_;
  const graph::Trace& trace_;
  std::vector<Value> leaves_;
  const SlotValues& slots_;
  const BoundedEmission* bounded_;  // null: all sizes are those of the trace
  std::vector<Composite> composites_;
  Agreements agreements_;
  bool splits_exchanges_ = false;
  Exchanges exchanges_;
  std::deque<Unfinished> unfinished_;
  bool has_exchanged_ = false;
  std::size_t token_place_ = 0;            // in `results_`, of what the last collective wrote
  std::vector<Value> results_;             // of all steps; empty for those that are to come
  std::vector<std::size_t> first_result_;  // of each step, in `results_`
  std::vector<std::uint32_t> num_reads_;   // by steps and as roots, of `results_`
};

}  // namespace

std::vector<Value> emit_trace(hlo::Builder& builder, const Target& target,
                              const graph::Trace& trace, std::vector<Value> leaves,
                              const SlotValues& slots, const BoundedEmission* bounded) {
  return TraceEmitter(builder, target, trace, std::move(leaves), slots, bounded).run();
}

namespace {

// The results that PyTorch's kernel gives (see host_choice.h); those that don't exist stay empty.
std::vector<Value> take_from_host(const std::string& name, const graph::Entry& entry,
                                  const Context& context,
                                  std::span<const graph::Attribute* const> args, const Frame& frame,
                                  bool is_in_float32) {
  const auto widened = [&](DType dtype) {
    if (!is_in_float32) return dtype;
    return accumulate_dtype(base::is_integral(dtype) ? context.outputs.front().dtype : dtype);
  };
  std::vector<Value> operands;
  for (const Value& value : frame.operands) {
    operands.push_back(convert(value, widened(value.dtype())));
  }
  const Frame given{operands, frame.slots, frame.slot_bits, frame.slot_types};
  std::vector<Value> results(entry.outputs.size());
  std::vector<std::int64_t> positions;
  std::vector<Shape> types;
  for (std::size_t i = 0; i < entry.outputs.size(); ++i) {
    if (entry.outputs[i] == nullptr) continue;
    positions.push_back(static_cast<std::int64_t>(i));
    types.push_back(context.outputs[i]);
    types.back().dtype = widened(types.back().dtype);
  }
  const bool is_whole = positions.size() == entry.outputs.size();
  const hlo::Values called =
      call_on_host(name, context.builder, args, given, types, is_whole ? Dims{} : positions);
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const auto position = static_cast<std::size_t>(positions[i]);
    results[position] = convert(called[i], context.outputs[position].dtype);
  }
  return results;
}

}  // namespace

std::vector<Value> emit_call(const graph::Entry& entry, Context& context, const Frame& frame,
                             bool reads_second_result) {
  std::vector<const graph::Attribute*> args;
  args.reserve(entry.args.size());
  for (const graph::Attribute& arg : entry.args) args.push_back(&arg);
  const DefaultFloat default_float(entry.default_float);
  const Lowering& lowering = lowering_of(entry, context.platform);
  const HostChoice choice = host_choice(context, lowering.name, args, frame, reads_second_result);
  if (choice == HostChoice::kXla) return lowering.emit(context, args, frame);
  return take_from_host(lowering.name, entry, context, args, frame,
                        choice == HostChoice::kHostInFloat32);
}

}  // namespace torch_xla::ops

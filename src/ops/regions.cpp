// Regions in terms of `while`, `if` and `optimization_barrier`. The region's operands come from
// around it: only what a loop carries is an argument of its block.
#include "ops/regions.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/stored_dtype.h"
#include "hlo/in_place.h"
#include "hlo/ops.h"
#include "ops/expression.h"
#include "ops/promotion.h"
#include "ops/random_bits.h"

namespace torch_xla::ops {
namespace {

using graph::Region;
using graph::RegionOp;
using hlo::Values;

class RegionEmitter {
 public:
  RegionEmitter(const RegionOp& op, hlo::Builder& builder, const Target& target,
                std::span<const Value> operands, std::span<const Value> keys)
      : op_(op), builder_(builder), target_(target), operands_(operands), keys_(keys) {}

  Values run() const {
    switch (op_.kind) {
      case graph::RegionKind::kCall:
        return inlined(*op_.regions[0], {operands_.begin(), operands_.end()}, keys_);
      case graph::RegionKind::kCond: return cond();
      case graph::RegionKind::kWhile: return while_loop();
      case graph::RegionKind::kScan: return scan();
      case graph::RegionKind::kBarrier: return barrier();
    }
    return {};
  }

 private:
  Values inlined(const Region& region, const Values& operands, std::span<const Value> keys) const {
    Values leaves;
    for (const std::uint32_t operand : region.operand_of_leaf) leaves.push_back(operands[operand]);
    const std::vector<std::size_t> first_keys = first_keys_of(region.trace);
    return emit_trace(builder_, target_, region.trace, std::move(leaves), [&](std::size_t step) {
      std::vector<std::optional<Value>> values;
      std::size_t key = first_keys[step];
      for (const graph::Slot& slot : region.trace.steps[step].node->entry()->slots) {
        values.push_back(graph::is_key(slot) ? std::optional(keys[key++]) : std::nullopt);
      }
      return values;
    });
  }

  // Of each step, which of the region's keys are its own.
  static std::vector<std::size_t> first_keys_of(const graph::Trace& trace) {
    std::vector<std::size_t> first_keys;
    std::size_t next = 0;
    for (const graph::Trace::Step& step : trace.steps) {
      first_keys.push_back(next);
      const std::vector<graph::Slot>& slots = step.node->entry()->slots;
      next += static_cast<std::size_t>(std::ranges::count_if(slots, graph::is_key));
    }
    return first_keys;
  }

  // What region `index` reads beside its arguments; these operands stand behind `num_before`.
  std::span<const Value> rest_of(std::size_t index, std::size_t num_before) const {
    for (std::size_t i = 0; i < index; ++i) num_before += num_rest(*op_.regions[i]);
    return operands_.subspan(num_before, num_rest(*op_.regions[index]));
  }
  static std::size_t num_rest(const Region& region) {
    return region.operands.size() - region.num_arguments;
  }
  std::span<const Value> keys_of(std::size_t index) const {
    std::size_t first = 0;
    for (std::size_t i = 0; i < index; ++i) first += op_.regions[i]->keys.size();
    return keys_.subspan(first, op_.regions[index]->keys.size());
  }
  // Other random numbers in each turn of a loop.
  Values keys_of_turn(std::size_t index, Value turn) const {
    Values keys;
    for (const Value& key : keys_of(index)) {
      keys.push_back(derived_key(key, convert(turn, DType::kUInt64)));
    }
    return keys;
  }

  static Values joined(std::span<const Value> first, std::span<const Value> second) {
    Values out(first.begin(), first.end());
    out.insert(out.end(), second.begin(), second.end());
    return out;
  }

  // See src/aten/barrier_kernel.cpp.
  Values barrier() const {
    const Values operands(operands_.begin(), operands_.end());
    const std::size_t num_carried = op_.parameters.num_carried;
    // What is computed later has another memory: else the copy that it takes where the operand is
    // still in use may be made, and kept, long before.
    const bool is_ordered = operands.size() > num_carried;
    return hlo::hidden(operands, num_carried, !is_ordered);
  }

  Values cond() const {
    const std::size_t num_shared = 1 + op_.regions[0]->num_arguments;
    const auto branch = [&](std::size_t index) {
      return [this, index, num_shared] {
        return inlined(*op_.regions[index],
                       joined(operands_.subspan(1, num_shared - 1), rest_of(index, num_shared)),
                       keys_of(index));
      };
    };
    return hlo::if_(hlo::reshape(operands_[0], {}), branch(0), branch(1));
  }

  Values while_loop() const {
    const std::size_t num_carried = op_.parameters.num_carried;
    Values state = {scalar(builder_, DType::kInt64, base::Scalar(std::int64_t{0}))};
    state.insert(state.end(), operands_.begin(),
                 operands_.begin() + static_cast<std::ptrdiff_t>(num_carried));
    const auto run = [&](std::size_t index, std::span<const Value> x) {
      return inlined(*op_.regions[index], joined(x.subspan(1), rest_of(index, num_carried)),
                     keys_of_turn(index, x[0]));
    };
    Values results = hlo::while_(
        state, [&](std::span<const Value> x) { return hlo::reshape(run(0, x)[0], {}); },
        [&](std::span<const Value> x) {
          Values next = run(1, x);
          next.insert(next.begin(), x[0] + 1);
          return next;
        });
    results.erase(results.begin());
    return results;
  }

  // The loop's state: the turn, what is carried, and the results so far.
  Values scan() const {
    const Region& body = *op_.regions[0];
    const std::size_t num_carried = op_.parameters.num_carried;
    Values state = {scalar(builder_, DType::kInt64, base::Scalar(std::int64_t{0}))};
    state.insert(state.end(), operands_.begin(),
                 operands_.begin() + static_cast<std::ptrdiff_t>(num_carried));
    for (std::size_t i = num_carried; i < body.results.size(); ++i) {
      base::Shape shape = base::stored_shape(body.results[i]->shape);
      shape.dims.insert(shape.dims.begin(), op_.parameters.length);
      state.push_back(full(builder_, shape, base::Scalar(std::int64_t{0})));
    }
    Values results = hlo::while_(
        state,
        [&](std::span<const Value> x) {
          return less(x[0], hlo::full_like(x[0], op_.parameters.length));
        },
        [&](std::span<const Value> x) { return next_turn(body, x); });
    results.erase(results.begin());
    return results;
  }

  Values next_turn(const Region& body, std::span<const Value> state) const {
    const std::size_t num_carried = op_.parameters.num_carried;
    const Value turn = state[0];
    const Value last = hlo::full_like(turn, op_.parameters.length - 1);
    const Value index = op_.parameters.is_reversed ? last - turn : turn;
    Values arguments(state.begin() + 1,
                     state.begin() + 1 + static_cast<std::ptrdiff_t>(num_carried));
    for (std::size_t i = num_carried; i < body.num_arguments; ++i) {
      arguments.push_back(slice_at(operands_[i], index));
    }
    const Values results =
        inlined(body, joined(arguments, rest_of(0, body.num_arguments)), keys_of_turn(0, index));
    Values next = {turn + 1};
    next.insert(next.end(), results.begin(),
                results.begin() + static_cast<std::ptrdiff_t>(num_carried));
    for (std::size_t i = num_carried; i < results.size(); ++i) {
      next.push_back(with_slice_at(state[1 + i], results[i], index));
    }
    return next;
  }

  static Values start_at(const Value& sequence, const Value& index) {
    Values start(static_cast<std::size_t>(sequence.rank()), hlo::full_like(index, std::int64_t{0}));
    start[0] = index;
    return start;
  }

  static Value slice_at(const Value& sequence, const Value& index) {
    base::Dims sizes = sequence.dims();
    sizes[0] = 1;
    const Value slice = hlo::dynamic_slice(sequence, start_at(sequence, index), sizes);
    return hlo::reshape(slice, base::Dims(sizes.begin() + 1, sizes.end()));
  }

  static Value with_slice_at(const Value& sequence, const Value& slice, const Value& index) {
    base::Dims sizes = sequence.dims();
    sizes[0] = 1;
    return hlo::update_slice(sequence, hlo::reshape(slice, sizes), start_at(sequence, index));
  }

  const RegionOp& op_;
  hlo::Builder& builder_;
  const Target& target_;
  std::span<const Value> operands_;
  std::span<const Value> keys_;
};

}  // namespace

std::vector<Value> emit_region(const RegionOp& op, hlo::Builder& builder, const Target& target,
                               std::span<const Value> operands, std::span<const Value> keys) {
  return RegionEmitter(op, builder, target, operands, keys).run();
}

bool exchanges(const graph::Entry& entry) {
  const Lowering* const lowering = registry().find(entry.op->name, "");
  if (lowering != nullptr && lowering->is_collective) return true;
  if (entry.op->region == nullptr) return false;
  return std::ranges::any_of(entry.op->region->regions, [](const graph::RegionPtr& region) {
    return std::ranges::any_of(region->trace.steps, [](const graph::Trace::Step& step) {
      return exchanges(*step.node->entry());
    });
  });
}

}  // namespace torch_xla::ops

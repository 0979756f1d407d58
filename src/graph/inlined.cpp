// Appends the steps of each call's region, one after the other; regions may have calls themselves.
#include "graph/inlined.h"

#include <algorithm>
#include <span>
#include <utility>

#include "graph/region.h"

namespace torch_xla::graph {
namespace {

// The region that the step calls, or null.
const Region* region_of(const Trace::Step& step) {
  const RegionOp* const op = step.node->entry()->op->region;
  return op != nullptr && op->kind == RegionKind::kCall ? op->regions[0].get() : nullptr;
}

struct SlotNumber {
  std::uint64_t bits = 0;
  bool is_data = false;
};

// Of all slots of a called region: its keys come from the call.
std::vector<SlotNumber> numbers_of(const Region& region, std::span<const SlotNumber> keys) {
  std::vector<SlotNumber> numbers;
  std::size_t next_key = 0;
  for (const Trace::Step& step : region.trace.steps) {
    const std::vector<Slot>& slots = step.node->entry()->slots;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      numbers.push_back(is_key(slots[i]) ? keys[next_key++]
                                         : SlotNumber{step.node->slots()[i], false});
    }
  }
  return numbers;
}

class Inliner {
 public:
  Trace run(const Trace& trace) {
    std::vector<Source> leaves;
    for (std::uint32_t i = 0; i < trace.leaves.size(); ++i) leaves.push_back({i, 0, true});
    std::vector<SlotNumber> numbers;
    for (std::size_t i = 0; i < trace.numbers.size(); ++i) {
      numbers.push_back({trace.numbers[i], trace.is_data[i]});
    }
    out_.roots = append(trace, leaves, numbers);
    out_.leaves = trace.leaves;
    for (const Source& source : out_.sources) count(source);
    for (const Source& root : out_.roots) count(root);
    return std::move(out_);
  }

 private:
  // The trace's roots.
  std::vector<Source> append(const Trace& trace, std::span<const Source> leaves,
                             std::span<const SlotNumber> numbers) {
    std::vector<std::vector<Source>> results;
    const auto here = [&](const Source& source) {
      return source.is_leaf ? leaves[source.index] : results[source.index][source.output];
    };
    for (const Trace::Step& step : trace.steps) {
      const Entry& entry = *step.node->entry();
      std::vector<Source> operands;
      for (std::size_t i = 0; i < entry.operands.size(); ++i) {
        operands.push_back(here(trace.sources[step.first_source + i]));
      }
      const std::span<const SlotNumber> own = numbers.first(entry.slots.size());
      numbers = numbers.subspan(own.size());
      const Region* const region = region_of(step);
      results.push_back(region != nullptr ? append_call(*region, operands, own)
                                          : append_step(step, operands, own));
    }
    std::vector<Source> roots;
    for (const Source& root : trace.roots) roots.push_back(here(root));
    return roots;
  }

  std::vector<Source> append_call(const Region& region, std::span<const Source> operands,
                                  std::span<const SlotNumber> keys) {
    std::vector<Source> leaves;
    for (const std::uint32_t operand : region.operand_of_leaf) leaves.push_back(operands[operand]);
    return append(region.trace, leaves, numbers_of(region, keys));
  }

  std::vector<Source> append_step(const Trace::Step& step, std::span<const Source> operands,
                                  std::span<const SlotNumber> numbers) {
    const auto index = static_cast<std::uint32_t>(out_.steps.size());
    out_.steps.push_back({step.node, static_cast<std::uint32_t>(out_.sources.size()), 0});
    out_.sources.insert(out_.sources.end(), operands.begin(), operands.end());
    for (const SlotNumber& number : numbers) {
      out_.numbers.push_back(number.bits);
      out_.is_data.push_back(number.is_data);
    }
    std::vector<Source> outputs;
    for (std::uint32_t i = 0; i < step.node->num_outputs(); ++i)
      outputs.push_back({index, i, false});
    return outputs;
  }

  void count(const Source& source) {
    if (!source.is_leaf) ++out_.steps[source.index].uses;
  }

  Trace out_;
};

}  // namespace

std::optional<Trace> inlined(const Trace& trace) {
  const bool has_call = std::ranges::any_of(
      trace.steps, [](const Trace::Step& step) { return region_of(step) != nullptr; });
  if (!has_call) return std::nullopt;
  return Inliner().run(trace);
}

}  // namespace torch_xla::graph

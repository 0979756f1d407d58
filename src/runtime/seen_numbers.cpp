// Sets of equal numbers, each known by its first member, which is never taken into another set.
#include "runtime/seen_numbers.h"

#include <map>
#include <tuple>
#include <utility>
#include <variant>

#include "graph/region.h"

namespace torch_xla::runtime {
namespace {

// Then no numbers of the graph are taken for equal any more: each time costs a compilation.
constexpr int kMaxSplits = 8;

// The arguments that the slots are of; several where one is a list.
std::vector<std::size_t> arguments_of_slots(const graph::Entry& entry) {
  std::vector<std::size_t> arguments(entry.slots.size());
  for (std::size_t i = 0; i < entry.args.size(); ++i) {
    const auto note = [&](const graph::Number& number) {
      if (number.slot >= 0) arguments[static_cast<std::size_t>(number.slot)] = i;
    };
    if (const auto* number = std::get_if<graph::Number>(&entry.args[i])) {
      note(*number);
    } else if (const auto* numbers = std::get_if<std::vector<graph::Number>>(&entry.args[i])) {
      for (const graph::Number& of_list : *numbers) note(of_list);
    }
  }
  return arguments;
}

}  // namespace

SeenNumbers::SeenNumbers(const graph::Trace& trace, NumbersOf of)
    : first_(trace.numbers), is_data_(trace.is_data), has_split_(trace.numbers.size()) {
  using Place =
      std::tuple<const graph::Op*, std::size_t, base::DType, graph::SlotMode, std::uint64_t>;
  std::map<Place, std::uint32_t> places;
  same_as_.reserve(first_.size());
  for (const graph::Trace::Step& step : trace.steps) {
    const graph::Entry& entry = *step.node->entry();
    const std::vector<std::size_t> arguments = arguments_of_slots(entry);
    for (std::size_t i = 0; i < entry.slots.size(); ++i) {
      const auto number = static_cast<std::uint32_t>(same_as_.size());
      const graph::Slot& slot = entry.slots[i];
      const bool is_of_replica =
          of == NumbersOf::kReplicasOfOneProgram ||
          (of == NumbersOf::kReplica && slot.mode != graph::SlotMode::kPromotable);
      if (is_of_replica) is_data_[number] = true;
      const bool is_own =
          graph::is_key(slot) || (is_of_replica && slot.dtype == base::DType::kInt64);
      const Place place(entry.op, arguments[i], slot.dtype, slot.mode, first_[number]);
      same_as_.push_back(is_own ? number : places.try_emplace(place, number).first->second);
    }
  }
  finish();
}

bool SeenNumbers::holds(const graph::Trace& trace) const {
  const std::vector<std::uint64_t>& numbers = trace.numbers;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] != numbers[same_as_[i]]) return false;
    if (!is_data_[i] && (trace.is_data[i] || numbers[i] != first_[i])) return false;
  }
  return true;
}

SeenNumbersPtr SeenNumbers::with(const graph::Trace& trace) const {
  if (holds(trace)) return nullptr;
  auto seen = std::make_shared<SeenNumbers>(*this);
  for (std::size_t i = 0; i < first_.size(); ++i) {
    if (trace.is_data[i] || trace.numbers[i] != first_[i]) seen->is_data_[i] = true;
  }
  seen->split(trace);
  seen->finish();
  return seen;
}

void SeenNumbers::split(const graph::Trace& trace) {
  std::vector<bool> is_broken(same_as_.size());
  bool is_any_broken = false;
  for (std::size_t i = 0; i < same_as_.size(); ++i) {
    if (trace.numbers[i] == trace.numbers[same_as_[i]]) continue;
    is_broken[same_as_[i]] = is_any_broken = true;
  }
  if (!is_any_broken) return;
  const bool is_last = ++num_splits_ == kMaxSplits;
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint32_t> parts;
  for (std::uint32_t i = 0; i < same_as_.size(); ++i) {
    const std::uint32_t set = same_as_[i];
    if (is_last || (is_broken[set] && has_split_[i])) {
      same_as_[i] = i;
    } else if (is_broken[set]) {
      has_split_[i] = true;
      same_as_[i] = parts.try_emplace({set, trace.numbers[i]}, i).first->second;
    }
  }
}

void SeenNumbers::finish() {
  base::Hasher hasher;
  has_equal_ = false;
  for (std::uint32_t i = 0; i < same_as_.size(); ++i) {
    if (same_as_[i] == i) continue;
    has_equal_ = true;
    hasher.add(static_cast<std::uint64_t>(i) << 32 | same_as_[i]);
  }
  equalities_ = hasher.finish();
}

base::Hash128 SeenNumbers::key_with(const base::Hash128& key) const {
  if (!has_equal_) return key;
  base::Hasher hasher;
  hasher.add(key);
  hasher.add(equalities_);
  return hasher.finish();
}

}  // namespace torch_xla::runtime

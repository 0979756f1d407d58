// An update is followed back, through elementwise operations, to the gradient that it is made of,
// and all that reads the gradient is given it by a barrier, behind the other readers of the
// parameter.
#include "hlo/update_order.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "hlo/chains.h"
#include "hlo/in_place.h"

namespace torch_xla::hlo {
namespace {

// Copying less takes no longer than the barrier's call.
constexpr std::int64_t kWorthWaiting = std::int64_t{1} << 16;

using Id = std::uint32_t;

// Not fused into what reads it.
bool is_in_memory(std::string_view name) {
  return name == "stablehlo.dot_general" || name == "stablehlo.convolution" ||
         name == "stablehlo.custom_call";
}

bool is_rearranged(std::string_view name) {
  return name == "stablehlo.transpose" || name == "stablehlo.reshape";
}

class WaitFinder {
 public:
  explicit WaitFinder(const Builder& builder)
      : builder_(builder),
        readers_(builder.num_values()),
        needed_for_(builder.num_values(), builder.num_values()) {
    for (Id id = 0; id < builder.num_values(); ++id) {
      for (const Id operand : builder.definition(id).operands) readers_[operand].push_back(id);
    }
  }

  // What reads the parameter and is not needed by the update, in order; none if nothing does, or
  // something of which nothing is in memory.
  std::vector<Id> find_others(const Update& update) {
    std::vector<Id> others = readers_through_moves(update.parameter.id());
    if (others.empty()) return others;
    mark_needed(update.result.id(), others.front());
    std::unordered_set<const Id*> seen;
    for (const Id id : others) {
      if (needed_for_[id] == update.result.id()) seen.insert(operation(id));
    }
    std::erase_if(others, [&](Id id) { return !seen.insert(operation(id)).second; });
    const bool are_in_memory = std::ranges::all_of(others, [&](Id id) {
      return is_in_memory(builder_.definition(id).name) && builder_.value_of(id);
    });
    return are_in_memory ? others : std::vector<Id>();
  }

  // What the update is made of that nothing reads before `last`.
  std::optional<Id> find_gradient(const Update& update, Id last) const {
    std::unordered_set<Id> seen = {update.result.id()};
    std::vector<Id> pending = {update.result.id()};
    while (!pending.empty()) {
      const Id id = pending.back();
      pending.pop_back();
      const Builder::Definition definition = builder_.definition(id);
      if (is_fused(definition.name)) {
        for (const Id operand : definition.operands) {
          if (seen.insert(operand).second) pending.push_back(operand);
        }
      } else if (is_in_memory(definition.name) && is_read_behind(id, last) &&
                 definition.type->num_elements() == update.result.num_elements() &&
                 builder_.value_of(id)) {
        return id;
      }
    }
    return std::nullopt;
  }

 private:
  // A result alone is not: nothing is left to wait.
  bool is_read_behind(Id id, Id last) const {
    return !readers_[id].empty() && readers_[id].front() > last;
  }

  std::vector<Id> readers_through_moves(Id parameter) const {
    std::vector<Id> readers;
    std::vector<Id> pending = readers_[parameter];
    while (!pending.empty()) {
      const Id id = pending.back();
      pending.pop_back();
      if (is_rearranged(builder_.definition(id).name)) {
        pending.insert(pending.end(), readers_[id].begin(), readers_[id].end());
      } else {
        readers.push_back(id);
      }
    }
    std::ranges::sort(readers);
    readers.erase(std::ranges::unique(readers).begin(), readers.end());
    return readers;
  }

  // The same for all results of an operation that has operands.
  const Id* operation(Id id) const { return builder_.definition(id).operands.data(); }

  // What the result is computed from, as far as it comes behind `first`, and the result.
  void mark_needed(Id result, Id first) {
    std::vector<Id> pending = {result};
    while (!pending.empty()) {
      const Id id = pending.back();
      pending.pop_back();
      if (id < first || std::exchange(needed_for_[id], result) == result) continue;
      const std::span<const Id> operands = builder_.definition(id).operands;
      pending.insert(pending.end(), operands.begin(), operands.end());
    }
  }

  const Builder& builder_;
  std::vector<std::vector<Id>> readers_;  // by value, in their order
  std::vector<Id> needed_for_;            // by value: the last result that was found to need it
};

}  // namespace

void let_updates_wait(Builder& builder, std::span<const Update> updates) {
  if (updates.empty()) return;
  WaitFinder finder(builder);
  std::unordered_set<Id> waiting;
  for (const Update& update : updates) {
    const std::int64_t num_bytes = update.result.type().num_bytes();
    if (num_bytes < kWorthWaiting || update.result == update.parameter) continue;
    const std::vector<Id> others = finder.find_others(update);
    if (others.empty()) continue;
    const std::optional<Id> gradient = finder.find_gradient(update, others.back());
    if (!gradient.has_value() || !waiting.insert(*gradient).second) continue;
    Values operands = {builder.value_of(*gradient)};
    for (const Id other : others) operands.push_back(builder.value_of(other));
    builder.insert_behind(std::max(*gradient, others.back()), operands[0],
                          [&] { return hidden(operands, 1, true)[0]; });
  }
}

}  // namespace torch_xla::hlo

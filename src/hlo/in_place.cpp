// When an update may be fused with what computes it. XLA:CPU fuses producers into an update and
// then writes in place, while the producers still read. It checks for that by the identity of the
// update's operand: where the operand is a bitcast of memory that the producers reach by another
// way, it sees two values, fuses both, and reads what it has written. So such an update is computed
// first, behind a barrier. An operand that is memory by itself needs none.
#include "hlo/in_place.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "hlo/ops.h"
#include "hlo/partitioned.h"

namespace torch_xla::hlo {
namespace {

// Beyond these nothing is ruled out: a barrier too many costs a pass over the update.
constexpr std::size_t kMaxMemory = 64;
constexpr std::size_t kMaxUpdate = 1 << 14;

bool is_any_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Their results are memory, and stay so: no pass makes them a bitcast of something else.
bool is_memory(std::string_view name) {
  return name.empty() ||
         is_any_of(name, {"stablehlo.dynamic_update_slice", "stablehlo.while",
                          "stablehlo.custom_call", "stablehlo.if", "stablehlo.case"});
}

// Their results can't be the memory of an operand, though what a pass makes of them may end in a
// bitcast.
bool computes(std::string_view name) {
  return is_memory(name) ||
         is_any_of(name, {"stablehlo.dot_general", "stablehlo.convolution", "stablehlo.scatter",
                          "stablehlo.sort", "stablehlo.fft", "stablehlo.cholesky",
                          "stablehlo.triangular_solve", "stablehlo.rng_bit_generator"});
}

// A pad that adds elements is no bitcast of what it pads. Of parameters no type is known here.
bool is_new_memory(const Builder& builder, const Builder::Definition& definition) {
  if (is_memory(definition.name)) return true;
  if (definition.name != "stablehlo.pad") return false;
  const Type* const padded = builder.definition(definition.operands[0]).type;
  return padded != nullptr && definition.type->num_elements() > padded->num_elements();
}

bool is_constant(const Builder::Definition& definition) {
  return !definition.name.empty() && definition.operands.empty();
}

std::uint32_t without_barriers(const Builder& builder, std::uint32_t id) {
  while (true) {
    const Builder::Definition definition = builder.definition(id);
    if (definition.name != "stablehlo.optimization_barrier") return id;
    if (definition.operands.size() != 1) return id;
    id = definition.operands[0];
  }
}

// The same elements, however often the reshapes and slices that lead to them were written down.
bool is_same(const Builder& builder, std::uint32_t a, std::uint32_t b) {
  while (true) {
    a = without_barriers(builder, a);
    b = without_barriers(builder, b);
    if (a == b) return true;
    const Builder::Definition of_a = builder.definition(a);
    const Builder::Definition of_b = builder.definition(b);
    if (of_a.name != of_b.name || of_a.name.empty() || *of_a.type != *of_b.type) return false;
    if (of_a.name == "stablehlo.slice") {
      const Dims* starts_of_a = builder.slice_starts(a);
      const Dims* starts_of_b = builder.slice_starts(b);
      if (starts_of_a == nullptr || starts_of_b == nullptr || *starts_of_a != *starts_of_b) {
        return false;
      }
    } else if (of_a.name != "stablehlo.reshape") {
      return false;
    }
    a = of_a.operands[0];
    b = of_b.operands[0];
  }
}

using Ids = std::unordered_set<std::uint32_t>;

// What `id` may be the memory of: itself, and its operands as far as their elements are only moved,
// or changed one by one. Constants are left out. Ends above kMaxMemory.
Ids memory_of(const Builder& builder, std::uint32_t id) {
  Ids memory;
  std::vector<std::uint32_t> pending = {id};
  while (!pending.empty() && memory.size() <= kMaxMemory) {
    const std::uint32_t next = pending.back();
    pending.pop_back();
    const Builder::Definition definition = builder.definition(next);
    if (is_constant(definition) || !memory.insert(next).second) continue;
    if (computes(definition.name)) continue;
    pending.insert(pending.end(), definition.operands.begin(), definition.operands.end());
  }
  return memory;
}

// One update of a slice, and what is asked of the values that lead to it.
class Update {
 public:
  Update(Value operand, Value update, const Dims* starts)
      : builder_(operand.builder()),
        target_(without_barriers(builder_, operand.id())),
        update_(update),
        starts_(starts) {}

  // False where XLA is known to see all that it needs, or nothing of the memory is read.
  bool may_read_written_memory() const {
    if (is_new_memory(builder_, builder_.definition(target_))) return false;
    const Ids memory = memory_of(builder_, target_);
    Ids seen;
    // Of each value, whether only elementwise operations lead from it to the update.
    std::vector<std::pair<std::uint32_t, bool>> pending = {{update_.id(), true}};
    while (!pending.empty()) {
      const auto [id, is_elementwise] = pending.back();
      pending.pop_back();
      const Builder::Definition definition = builder_.definition(id);
      if (is_constant(definition) || (is_elementwise && reads_what_it_replaces(id, definition)) ||
          !seen.insert(2 * id + (is_elementwise ? 1 : 0)).second) {
        continue;
      }
      if (memory.contains(id) || memory.size() > kMaxMemory || seen.size() > kMaxUpdate)
        return true;
      if (definition.name == "stablehlo.custom_call") continue;
      const bool goes_on = is_elementwise && is_elementwise_op(definition.name);
      for (const std::uint32_t operand : definition.operands)
        pending.emplace_back(operand, goes_on);
    }
    return false;
  }

 private:
  // A slice of the very elements that the update replaces: each is read before it is written.
  bool reads_what_it_replaces(std::uint32_t id, const Builder::Definition& definition) const {
    const Dims* starts = builder_.slice_starts(id);
    return starts != nullptr && starts_ != nullptr && *starts == *starts_ &&
           definition.type->dims == update_.dims() &&
           is_same(builder_, definition.operands[0], target_);
  }

  static bool is_elementwise_op(std::string_view name) {
    return is_any_of(
        name, {"stablehlo.add", "stablehlo.subtract", "stablehlo.multiply", "stablehlo.divide",
               "stablehlo.maximum", "stablehlo.minimum", "stablehlo.negate", "stablehlo.convert",
               "stablehlo.select", "stablehlo.compare", "stablehlo.and", "stablehlo.or",
               "stablehlo.not", "stablehlo.exponential", "stablehlo.sqrt", "stablehlo.clamp",
               "stablehlo.tanh", "stablehlo.logistic"});
  }

  const Builder& builder_;
  std::uint32_t target_;
  Value update_;
  const Dims* starts_;
};

}  // namespace

Values hidden(const Values& operands, std::size_t num_results, bool shares_memory) {
  if (operands.empty()) return {};
  const Builder& builder = operands[0].builder();
  if (builder.barrier_call().empty()) {
    Values results = optimization_barrier(operands);
    results.resize(num_results);
    return results;
  }
  CustomCall call;
  call.call_target_name = builder.barrier_call();
  for (std::size_t i = 0; i < num_results; ++i) {
    const auto index = static_cast<std::int64_t>(i);
    call.results.push_back(operands[i].type());
    if (shares_memory) call.output_operand_aliases.push_back({index, index});
  }
  return custom_call(operands, call);
}

Value update_slice(Value operand, Value update, const Values& start_indices, const Dims* starts) {
  if (!Update(operand, update, starts).may_read_written_memory()) {
    return dynamic_update_slice(operand, update, start_indices);
  }
  if (!is_partitioned()) {
    return dynamic_update_slice(operand, hidden({update}, 1, true)[0], start_indices);
  }
  // There is no call to hide it in, since the partitioner would give each device all of it: what is
  // updated is other memory, and then chosen.
  Builder& builder = operand.builder();
  const Type flags{DType::kBool, operand.dims()};
  const Value is_updated =
      dynamic_update_slice(full(builder, flags, false),
                           full(builder, {DType::kBool, update.dims()}, true), start_indices);
  const Value updated = dynamic_update_slice(full_like(operand, 0), update, start_indices);
  return select(is_updated, updated, operand);
}

}  // namespace torch_xla::hlo

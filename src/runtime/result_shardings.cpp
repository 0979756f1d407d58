// What is known, and its way along the trace: forward and back until nothing is learnt.
#include "runtime/result_shardings.h"

#include <algorithm>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "base/stored_dtype.h"
#include "graph/alias.h"
#include "ops/registry.h"
#include "runtime/client.h"
#include "runtime/device.h"

namespace torch_xla::runtime {
namespace {

// A chain of operations needs one turn in each direction; what goes to and fro needs more.
constexpr int kMostTurns = 8;

bool is_pointwise(const graph::Entry& entry) {
  const ops::Lowering* const lowering = ops::registry().find(entry.op->name, platform());
  return lowering != nullptr && lowering->is_pointwise;
}

// Whether a view shows all of its memory's elements in their order, with other dimensions.
bool is_reshape(const graph::Entry& entry) {
  if (entry.op->name == "view:reshape") return true;
  if (!entry.op->is_view || entry.operands.size() != 1 || entry.outputs.size() != 1) return false;
  const auto without_ones = [](base::Dims dims) {
    std::erase(dims, 1);
    return dims;
  };
  const base::Dims& from = entry.operands[0]->shape.dims;
  const base::Dims& to = entry.outputs[0]->shape.dims;
  return from.size() != to.size() && without_ones(from) == without_ones(to);
}

// The order in which a view shows its memory's dimensions, if that is all it does; else null.
const base::Dims* permutation_of(const graph::Entry& entry) {
  return entry.op->name == "view:permute" ? std::get_if<base::Dims>(&entry.args[1]) : nullptr;
}

// The sharding of memory for a view with its dimensions in another order, or the other way.
const base::Sharding* permuted(const base::Sharding* sharding, const base::Dims& permutation,
                               bool is_of_view) {
  if (base::is_whole(sharding)) return sharding;
  std::vector<std::vector<int>> axes(permutation.size());
  for (std::size_t d = 0; d < permutation.size(); ++d) {
    const auto from = static_cast<std::size_t>(permutation[d]);
    const std::size_t to = is_of_view ? from : d;
    const std::size_t source = is_of_view ? d : from;
    if (source < sharding->axes().size()) axes[to] = sharding->axes()[source];
  }
  return base::Sharding::make(sharding->mesh(), std::move(axes));
}

// Dimensions next to each other, from `begin` to `end`.
struct Group {
  std::size_t begin;
  std::size_t end;
};

// The next dimensions of both that have as many elements, beginning with none of one element.
std::pair<Group, Group> next_groups(const base::Dims& from, std::size_t i, const base::Dims& to,
                                    std::size_t j) {
  while (i < from.size() && from[i] == 1) ++i;
  while (j < to.size() && to[j] == 1) ++j;
  std::pair<Group, Group> groups{{i, i}, {j, j}};
  std::int64_t a = 1;
  std::int64_t b = 1;
  do {
    if (a <= b && groups.first.end < from.size()) {
      a *= from[groups.first.end++];
    } else if (groups.second.end < to.size()) {
      b *= to[groups.second.end++];
    } else {
      break;
    }
  } while (a != b);
  return groups;
}

// The sharding of an array of `from` for one of `to` that has the same elements in their order:
// what splits the first of some dimensions splits the first of those that they become. Null where
// such parts would not be the same.
const base::Sharding* reshaped(const base::Sharding* sharding, const base::Dims& from,
                               const base::Dims& to) {
  if (base::is_whole(sharding)) return sharding;
  if (base::num_elements(from) == 0) return nullptr;
  std::vector<std::vector<int>> axes(to.size());
  std::size_t num_split = 0;
  Group before{0, 0};
  Group after{0, 0};
  while (true) {
    std::tie(before, after) = next_groups(from, before.end, to, after.end);
    if (before.begin == from.size()) break;
    if (before.begin >= sharding->axes().size() || sharding->axes()[before.begin].empty()) continue;
    std::int64_t parts = 1;
    for (const int axis : sharding->axes()[before.begin]) {
      parts *= sharding->mesh().sizes[static_cast<std::size_t>(axis)];
    }
    const bool is_same = before.end - before.begin == 1 && after.end - after.begin == 1;
    if (!is_same && (from[before.begin] % parts != 0 || to[after.begin] % parts != 0)) {
      return nullptr;
    }
    axes[after.begin] = sharding->axes()[before.begin];
    ++num_split;
  }
  const auto is_split = [](const std::vector<int>& of_dimension) { return !of_dimension.empty(); };
  if (!std::cmp_equal(num_split, std::ranges::count_if(sharding->axes(), is_split))) return nullptr;
  return base::Sharding::make(sharding->mesh(), std::move(axes));
}

}  // namespace

ResultShardings::ResultShardings(Device& device, const graph::Trace& trace)
    : device_(device), trace_(trace) {
  if (device.num_devices() == 1) return;
  std::size_t num_outputs = 0;
  for (const graph::Trace::Step& step : trace.steps) {
    first_output_.push_back(num_outputs);
    num_outputs += step.node->entry()->outputs.size();
  }
  shardings_.resize(num_outputs);
  read_leaves();
  read_constraints();
  read_memory();
  if (is_any_split_) spread();
}

const base::Sharding* ResultShardings::of(std::uint32_t step, std::uint32_t output) const {
  if (shardings_.empty()) return device_.whole();
  return device_.boundary(shardings_[first_output_[step] + output], shape_of(step, output));
}

const base::Shape& ResultShardings::shape_of(std::uint32_t step, std::uint32_t output) const {
  return trace_.steps[step].node->entry()->outputs[output]->shape;
}

void ResultShardings::set(std::uint32_t step, std::uint32_t output,
                          const base::Sharding* sharding) {
  shardings_[first_output_[step] + output] = sharding;
  is_any_split_ |= !base::is_whole(sharding);
}

void ResultShardings::read_leaves() {
  for (const graph::DataPtr& leaf : trace_.leaves) {
    const base::Sharding* const sharding = static_cast<const Array&>(*leaf).sharding();
    leaf_shardings_.push_back(base::is_whole(sharding) ? nullptr : sharding);
    is_any_split_ |= leaf_shardings_.back() != nullptr;
  }
}

void ResultShardings::read_constraints() {
  for (std::uint32_t i = 0; i < trace_.steps.size(); ++i) {
    const graph::Entry& entry = *trace_.steps[i].node->entry();
    if (entry.op->name != "xla:_sharding_constraint") continue;
    set(i, 0, base::Sharding::find(std::get<std::string>(entry.args[1])));
  }
}

void ResultShardings::read_memory() {
  device_.live().for_each([&](const graph::Alias& alias) {
    const graph::Value& value = alias.value();
    if (!value) return;
    const auto step = graph::find_step(trace_, *value.node);
    if (!step.has_value()) return;
    const auto* const before = dynamic_cast<const Array*>(alias.settled().get());
    if (alias.sharding() != nullptr) {
      set(*step, value.output, alias.sharding());
    } else if (before != nullptr &&
               before->shape() == base::stored_shape(shape_of(*step, value.output))) {
      set(*step, value.output, before->sharding());
    }
  });
}

void ResultShardings::spread() {
  const auto count = static_cast<std::uint32_t>(trace_.steps.size());
  for (int turn = 0; turn < kMostTurns; ++turn) {
    bool has_changed = false;
    for (std::uint32_t i = 0; i < count; ++i) has_changed |= spread_over(i);
    for (std::uint32_t i = count; i-- > 0;) has_changed |= spread_over(i);
    if (!has_changed) return;
  }
}

bool ResultShardings::spread_over_view(std::uint32_t step, const graph::Source& source) {
  const graph::Entry& entry = *trace_.steps[step].node->entry();
  const base::Dims* const permutation = permutation_of(entry);
  const base::Dims& memory_dims = entry.operands[0]->shape.dims;
  const base::Dims& view_dims = entry.outputs[0]->shape.dims;
  const auto of_memory = [&](const base::Sharding* view) {
    return permutation != nullptr ? permuted(view, *permutation, true)
                                  : reshaped(view, view_dims, memory_dims);
  };
  const auto of_view = [&](const base::Sharding* memory) {
    return permutation != nullptr ? permuted(memory, *permutation, false)
                                  : reshaped(memory, memory_dims, view_dims);
  };
  const base::Sharding*& shown = shardings_[first_output_[step]];
  if (source.is_leaf) {
    const base::Sharding* const leaf = leaf_shardings_[source.index];
    if (shown != nullptr || leaf == nullptr) return false;
    shown = of_view(leaf);
    return shown != nullptr;
  }
  const base::Sharding*& memory = shardings_[first_output_[source.index] + source.output];
  if ((shown == nullptr) == (memory == nullptr)) return false;
  const base::Sharding*& learnt = shown == nullptr ? shown : memory;
  learnt = shown == nullptr ? of_view(memory) : of_memory(shown);
  return learnt != nullptr;
}

// Of a pointwise step: what is as large as a result, in the same place of its list if there are
// lists, lies as the result does. Says whether something was learnt.
bool ResultShardings::spread_over(std::uint32_t index) {
  const graph::Trace::Step& step = trace_.steps[index];
  const graph::Entry& entry = *step.node->entry();
  const auto sources = std::span(trace_.sources).subspan(step.first_source, entry.operands.size());
  if (is_reshape(entry) || permutation_of(entry) != nullptr) {
    return spread_over_view(index, sources[0]);
  }
  if (!is_pointwise(entry)) return false;
  bool has_changed = false;
  for (std::uint32_t output = 0; output < entry.outputs.size(); ++output) {
    if (entry.outputs[output] == nullptr) continue;
    const base::Dims& dims = entry.outputs[output]->shape.dims;
    std::vector<std::uint32_t> operands;
    const auto add = [&](std::int64_t operand) {
      if (operand < 0 || entry.operands[static_cast<std::size_t>(operand)]->shape.dims != dims) {
        return;
      }
      operands.push_back(static_cast<std::uint32_t>(operand));
    };
    for (const graph::Attribute& argument : entry.args) {
      if (const auto* one = std::get_if<graph::Operand>(&argument)) add(one->index);
      const auto* list = std::get_if<graph::OperandList>(&argument);
      if (list != nullptr && !list->indices.empty()) {
        add(list->indices[output % list->indices.size()]);
      }
    }
    const base::Sharding* known = shardings_[first_output_[index] + output];
    const auto sharding_of = [&](const graph::Source& source) {
      return source.is_leaf ? leaf_shardings_[source.index]
                            : shardings_[first_output_[source.index] + source.output];
    };
    for (std::size_t i = 0; i < operands.size() && known == nullptr; ++i) {
      known = sharding_of(sources[operands[i]]);
    }
    if (known == nullptr) continue;
    const auto learn = [&](std::uint32_t of, std::uint32_t place) {
      if (shardings_[first_output_[of] + place] != nullptr) return;
      set(of, place, known);
      has_changed = true;
    };
    learn(index, output);
    for (const std::uint32_t operand : operands) {
      if (!sources[operand].is_leaf) learn(sources[operand].index, sources[operand].output);
    }
  }
  return has_changed;
}

}  // namespace torch_xla::runtime

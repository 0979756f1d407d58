// Backward over the steps to find out which are needed, then forward to make these.
#include "graph/recipe.h"

#include <utility>

namespace torch_xla::graph {

Recipe recipe_of(Trace&& trace) {
  Recipe recipe;
  recipe.entries.reserve(trace.steps.size());
  for (const Trace::Step& step : trace.steps) recipe.entries.push_back(step.node->entry());
  recipe.sources = std::move(trace.sources);
  recipe.numbers = std::move(trace.numbers);
  return recipe;
}

namespace {

std::vector<bool> find_needed(const Recipe& recipe, std::span<const Source> roots) {
  std::vector<bool> is_needed(recipe.entries.size());
  for (const Source& root : roots) is_needed[root.index] = true;
  std::size_t first = recipe.sources.size();
  for (std::size_t i = recipe.entries.size(); i-- > 0;) {
    const std::size_t end = first;
    first -= recipe.entries[i]->operands.size();
    for (std::size_t k = first; is_needed[i] && k < end; ++k) {
      if (!recipe.sources[k].is_leaf) is_needed[recipe.sources[k].index] = true;
    }
  }
  return is_needed;
}

}  // namespace

std::vector<Value> record_again(const Recipe& recipe, std::span<const DataPtr> leaves,
                                std::span<const Source> roots) {
  const std::vector<bool> is_needed = find_needed(recipe, roots);
  std::vector<NodeRef> leaf_nodes(leaves.size());
  std::vector<NodeRef> steps(recipe.entries.size());
  const auto value_of = [&](const Source& source) {
    if (!source.is_leaf) return Value{steps[source.index], source.output};
    NodeRef& leaf = leaf_nodes[source.index];
    if (!leaf) leaf = Node::make_leaf(leaves[source.index]);
    return Value{leaf, 0};
  };
  std::span<const Source> sources = recipe.sources;
  std::span<const std::uint64_t> numbers = recipe.numbers;
  for (std::size_t i = 0; i < recipe.entries.size(); ++i) {
    const Entry& entry = *recipe.entries[i];
    if (is_needed[i]) {
      std::vector<Value> operands;
      for (const Source& source : sources.first(entry.operands.size())) {
        operands.push_back(value_of(source));
      }
      steps[i] = Node::make(&entry, operands, numbers.first(entry.slots.size()));
    }
    sources = sources.subspan(entry.operands.size());
    numbers = numbers.subspan(entry.slots.size());
  }
  std::vector<Value> values;
  for (const Source& root : roots) values.push_back(value_of(root));
  return values;
}

}  // namespace torch_xla::graph

// The walk: from the values that must be computed to a list of nodes in topological order, the
// arrays they start from, the numbers they carry, and the key under which the program is cached.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/hash.h"
#include "graph/node.h"

namespace torch_xla::graph {

// Where an operand comes from: an earlier node's output, or a leaf.
struct Source {
  std::uint32_t index = 0;
  std::uint32_t output = 0;
  bool is_leaf = false;
};

struct Trace {
  struct Step {
    NodeRef node;
    std::uint32_t first_source = 0;  // its operands are sources[first_source ...]
    std::uint32_t uses = 0;          // edges and roots of this trace that lead to it
  };
  std::vector<Step> steps;
  std::vector<Source> sources;
  std::vector<DataPtr> leaves;
  std::vector<Source> roots;  // in the order given
  // Steps that are constants as which memory was born (`Node::born_as`).
  std::vector<std::uint32_t> births;
  // The numbers of all slots in the order of the steps, as their bits, and which of them are data
  // from the start. `strict_key` contains those that are not, and `relaxed_key` none.
  std::vector<std::uint64_t> numbers;
  std::vector<bool> is_data;
  base::Hash128 strict_key;
  base::Hash128 relaxed_key;
  std::uint64_t number = 0;  // of the walk, since the process began
};

// Under the lock of the device that the roots live on. Iterative: a graph may be a million deep.
Trace walk(std::span<const Value> roots);
// The key of the trace's graph where these of its numbers are data and the others constants.
base::Hash128 key_of(const Trace& trace, const std::vector<bool>& is_data);
// Where `data` is in the trace's leaves. In the same hold of the lock as the walk.
std::optional<std::uint32_t> find_leaf(const Trace& trace, const Data& data);
// Where `node` is in the trace's steps. Likewise.
std::optional<std::uint32_t> find_step(const Trace& trace, const Node& node);

}  // namespace torch_xla::graph

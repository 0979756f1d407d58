// Which graphs were compiled, kept while PT_XLA_DEBUG is on, and in what a new one differs from the
// nearest of them: the reason why it had to be compiled.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "graph/walk.h"
#include "ops/lower.h"

namespace torch_xla::runtime {

// What decides a graph's program, without what keeps memory on a device.
struct GraphSummary {
  struct Step {
    const graph::Entry* entry;
    graph::Location location;
    std::uint32_t first_source;
  };
  GraphSummary(const graph::Trace& trace, std::span<const ops::Donation> used_donations,
               std::string used_options, std::string used_where);

  base::Hash128 key;
  std::vector<Step> steps;
  std::vector<graph::Source> sources;
  std::vector<graph::Source> roots;
  std::vector<base::Shape> leaves;
  std::vector<std::optional<std::uint64_t>> constants;  // of the numbers; others are data
  std::vector<std::uint32_t> same_as;                   // of `SeenNumbers`, as far as seen here
  std::vector<ops::Donation> donations;
  std::string options;  // the settings and flags that the compiler was given
  std::string where;    // the user's line that ran it
};

// In words, the first thing in which `graph` differs from `other`: an operator, a shape, a dtype, a
// constant, how the operations are connected, what is alive at the barrier. With the user's lines,
// as far as the nodes know them.
std::string describe_difference(const GraphSummary& graph, const GraphSummary& other);

// Thread-safe.
class GraphHistory {
 public:
  // Why `graph` is compiled, and keeps it. At most kMaxGraphs are kept, the oldest goes first.
  std::string explain_and_add(GraphSummary graph);
  void clear();

 private:
  static constexpr std::size_t kMaxGraphs = 64;
  std::mutex mutex_;
  std::deque<GraphSummary> graphs_;  // under mutex_
};

}  // namespace torch_xla::runtime

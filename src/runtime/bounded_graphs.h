// Graphs that come again and again with other sizes: a sequence that grows by a token, a mask by a
// column, prompts of all lengths. Those of one form (graph/sizes.h) are compared; the integers that
// were seen to differ become variables of a bounded program (ops/bounded.h), whose bounds are so
// coarse that few programs serve all sizes. Next: programs.cpp, which asks here before it compiles.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/hash.h"
#include "graph/sizes.h"
#include "ops/bounded.h"
#include "ops/lower.h"
#include "runtime/lru_map.h"
#include "runtime/seen_numbers.h"

namespace torch_xla::runtime {

struct BoundedGraph {
  base::Hash128 form;
  base::Hash128 key;  // of the bounded graph: what a program's key has in the place of the trace's
  ops::Bounds bounds;
  std::vector<std::uint64_t> values;  // of the variables, in this trace
  ops::Numbers numbers;
};

// Thread-safe.
class BoundedGraphs {
 public:
  // What a graph that has no program yet may be compiled as: nothing at the first time that its
  // form comes, or for such sizes, or where they do not grow and these alone are asked for.
  std::optional<BoundedGraph> see(const graph::Trace& trace, bool growing_alone = false);
  // No rule for an operator of the form: it is compiled for each size.
  void refuse(const base::Hash128& form);
  void clear();

 private:
  struct Seen {
    std::vector<std::int64_t> integers;  // of the first graph
    std::vector<std::int64_t> last;      // of the latest
    std::vector<bool> is_variable;       // seen to differ from these
    std::vector<std::uint32_t> groups;   // of integers that have always been equal
    SeenNumbersPtr numbers;
    int num_graphs = 1;
    bool is_growing = false;  // from the first graph to the second
    bool is_refused = false;
  };

  static void add(Seen& seen, const graph::Trace& trace, const graph::Sizes& sizes);
  static std::optional<BoundedGraph> bounded(const Seen& seen, const graph::Trace& trace,
                                             const graph::Sizes& sizes);

  std::mutex mutex_;
  LruMap<base::Hash128, Seen> forms_;  // under mutex_
};

}  // namespace torch_xla::runtime

// Graphs that come again, large, but for a small part: a model whose attention mask has a column
// more for each token. Such a graph is computed in up to three launches: what differs and comes
// before the rest, the rest, which is compiled once, and what differs and comes behind it. Next:
// plan.cpp, which asks here before a read is planned.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "base/hash.h"
#include "graph/walk.h"
#include "runtime/graph_parts.h"
#include "runtime/lru_map.h"

namespace torch_xla::runtime {

// Thread-safe.
class GraphCuts {
 public:
  // Nothing for a graph that comes for the first time, that came before as it is, that differs in
  // much, or that exchanges something with replicas, which may have seen others. Under the
  // recording lock.
  GraphCut find(const graph::Trace& trace);
  void clear();

 private:
  // Graphs that differ in attributes and sizes alone.
  struct Form {
    std::vector<const graph::Entry*> entries;
    std::vector<bool> differs;  // by step: was seen to, from graph to graph
  };
  // Empty if there is nothing to compare with.
  std::vector<bool> differences(const graph::Trace& trace);

  std::mutex mutex_;
  LruMap<base::Hash128, bool> known_;  // by relaxed keys, under mutex_
  LruMap<base::Hash128, Form> forms_;  // under mutex_
};

}  // namespace torch_xla::runtime

// Equal layers in a row, as a transformer's: a graph of many operations most of which are the same
// few, again and again. Such a graph is computed layer by layer, in a launch for each of them and
// one for what stands before, between and behind, so that each kind of layer is compiled once.
// Where it is cut decides how much is compiled, and never a value. Next: plan.cpp, which asks here.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "base/hash.h"
#include "runtime/graph_parts.h"
#include "runtime/lru_map.h"

namespace torch_xla::runtime {

// Thread-safe.
class LayerCuts {
 public:
  // Nothing for a graph without such rows, or that exchanges something with replicas. A row is left
  // whole where its results replace large arrays, whose memory one program can give to them and
  // several can't. `num_new`: see FindCut.
  GraphCut find(const graph::Trace& trace, std::size_t num_new);
  void clear();

 private:
  struct Cut {
    std::vector<std::vector<graph::Source>> parts;
    std::string reason;
  };
  std::mutex mutex_;
  LruMap<base::Hash128, Cut> known_;  // under mutex_
};

}  // namespace torch_xla::runtime

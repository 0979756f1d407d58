// State that is made as a constant and updated in the same graph: an optimizer's averages, a cache,
// a sum over batches. As memory that is filled before the program runs, it is an input of the first
// program as it is of the later ones, so that these are one. Next: `plan.cpp`, where barriers use
// this.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "graph/alias.h"
#include "graph/walk.h"
#include "runtime/array.h"
#include "runtime/lru_map.h"

namespace torch_xla::runtime {

class Device;

// An array of one number, which is still to be filled.
struct Birth {
  ArrayPtr array;
  std::uint64_t bits = 0;  // of the number, in the array's dtype
};

// What a graph may read as memory in the place of a constant.
struct Newborn {
  graph::Alias* alias;
  graph::Value constant;
  Birth birth;
};

// What became of the memory that graphs made of constants. Under the recording lock.
class SeenBirths {
 public:
  // The first time that a graph comes it is expected to live on. That of graphs whose memory did
  // not is made anew in every step, and what is not small is better made by the program. `aliases`
  // are what this barrier computes: of those, what was born lives on.
  bool may_live_on(const base::Hash128& graph, std::int64_t num_bytes,
                   std::span<graph::Alias* const> aliases);
  // Has made memory of it.
  void add(const base::Hash128& graph, graph::Alias& alias);
  // Another barrier came, after another write.
  void note_lived_on(graph::Alias& alias);

 private:
  LruMap<base::Hash128, bool> lived_on_;
  LruMap<std::uint64_t, base::Hash128> graphs_;  // by the numbers of aliases
};

// Under the recording lock, of a trace whose roots are the aliases' values: those which were born
// as constants that the trace reads, each with a pending array. Constants that are only overwritten
// stay ones.
std::vector<Newborn> find_births(const graph::Trace& trace, Device& device,
                                 std::span<graph::Alias* const> aliases);

// Outside the lock; lets go of them, so that the program may reuse their memory. What can't be
// filled is failed.
void fill(std::vector<Birth>& births);
// Does so when it ends.
class FilledAtEnd {
 public:
  explicit FilledAtEnd(std::vector<Birth>& births) : births_(births) {}
  FilledAtEnd(const FilledAtEnd&) = delete;
  FilledAtEnd& operator=(const FilledAtEnd&) = delete;
  ~FilledAtEnd() { fill(births_); }

 private:
  std::vector<Birth>& births_;
};

}  // namespace torch_xla::runtime

// Regions: graphs that were captured once, from the values that stand for a function's arguments to
// its results, and that stand in other graphs as one node: called, looped over or chosen between.
// Recording such a node costs the same however much the region holds. `ops/regions.h` lowers them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/entry.h"
#include "graph/walk.h"

namespace torch_xla::graph {

// Immutable. A region's operands are the function's arguments, and then what else it reads.
struct Region {
  Trace trace;  // without leaves: see `operand_of_leaf`
  std::size_t num_arguments = 0;
  std::vector<const TensorType*> operands;
  std::vector<std::uint32_t> operand_of_leaf;
  std::vector<const TensorType*> results;
  // The random keys of its nodes, as drawn for the capture. A node of the region has others in
  // their place; the other numbers that travel with the region's nodes are constants.
  std::vector<std::uint64_t> keys;
  // Of all of the above but the keys: the same in every process.
  base::Hash128 key;
};
using RegionPtr = std::shared_ptr<const Region>;

// Sets `keys` and `key` from the other fields.
void finish(Region& region);
// True for the slots that hold random keys: no other number is an unsigned one.
inline bool is_key(const Slot& slot) { return slot.dtype == base::DType::kUInt64; }

enum class RegionKind : std::uint8_t {
  // (operands) -> results.
  kCall,
  // (predicate, arguments, rest of the first, rest of the second) -> results of one of two regions.
  kCond,
  // (carried, rest of the first, rest of the second): the second is applied to what is carried as
  // long as the first says so.
  kWhile,
  // (carried, sequences, rest) -> carried, sequences. The region maps what is carried and the i-th
  // slice of each sequence to what is carried on and the i-th slice of each result.
  kScan,
  // No region: as many operands as are carried, which the compiler may not look behind; they are
  // there when the others are.
  kBarrier,
};

struct RegionParameters {
  std::size_t num_carried = 0;
  std::int64_t length = 0;  // of a scan
  bool is_reversed = false;
};

// What nodes that hold regions point to.
struct RegionOp : Op {
  RegionKind kind = RegionKind::kCall;
  std::vector<RegionPtr> regions;
  RegionParameters parameters;
};

// The one entry for such a node, kept until the process ends, as the memo's are. Its slots are the
// regions' random keys. Throws base::Error if the regions' types do not fit.
const Entry* region_entry(RegionKind kind, std::vector<RegionPtr> regions,
                          const RegionParameters& parameters,
                          std::span<const TensorType* const> operands);

}  // namespace torch_xla::graph

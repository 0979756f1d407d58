// Nodes that hold regions (graph/region.h), as StableHLO: calls are inlined, so that XLA sees
// through them; loops and branches are its own.
#pragma once

#include <span>
#include <vector>

#include "graph/region.h"
#include "ops/trace_emitter.h"

namespace torch_xla::ops {

// `keys` has a 0-dim uint64 per random key of the regions, one region after the other.
std::vector<Value> emit_region(const graph::RegionOp& op, hlo::Builder& builder,
                               const Target& target, std::span<const Value> operands,
                               std::span<const Value> keys);

// Whether the node, or one of its regions, meets other processes.
bool exchanges(const graph::Entry& entry);

}  // namespace torch_xla::ops

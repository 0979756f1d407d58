// Graphs that are computed in parts, of which some are compiled once for several graphs or several
// times in one: what each part hands on. graph_cuts.h and layers.h say where they are cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "graph/walk.h"

namespace torch_xla::runtime {

// Values that are to be computed before the rest of a graph is, one list after the other.
struct GraphCut {
  std::vector<std::vector<graph::Value>> parts;
  std::string reason;  // a sentence for PT_XLA_DEBUG

  bool is_empty() const { return parts.empty(); }
};

// Where a trace is to be cut; `num_new` of its roots, the first ones, take the place of no array.
// Called under the recording lock.
using FindCut = std::function<GraphCut(const graph::Trace& trace, std::size_t num_new)>;

// What a step reads.
std::span<const graph::Source> sources_of(const graph::Trace& trace, std::uint32_t step);

// Whether something of it is exchanged with replicas, which may cut their graphs elsewhere.
bool exchanges(const graph::Trace& trace);

enum class Cheap : std::uint8_t { kHandedOn, kComputedAgain };
// By part: what its steps give to others and to whoever asked for the graph. `part_of_step` are
// below `num_parts`, or kRest for those that give nothing. What is cheap are views, and constants.
constexpr std::uint32_t kRest = 0xFFFFFFFF;
std::vector<std::vector<graph::Source>> handed_on(const graph::Trace& trace,
                                                  const std::vector<std::uint32_t>& part_of_step,
                                                  std::size_t num_parts, Cheap cheap);

// The values of such sources, which are outputs of steps.
std::vector<graph::Value> values_of(const graph::Trace& trace,
                                    const std::vector<graph::Source>& sources);

}  // namespace torch_xla::runtime

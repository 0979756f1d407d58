// A trace without calls of captured graphs: what these hold stands in their place, so that one who
// looks at the whole graph (graph/sizes.h) need not know of them.
#pragma once

#include <optional>

#include "graph/walk.h"

namespace torch_xla::graph {

// Nothing if the trace has no call. The numbers of a call's nodes are the trace's too: random keys
// are the call's own, the others constants at first. Keys and births are not those of the result.
std::optional<Trace> inlined(const Trace& trace);

}  // namespace torch_xla::graph

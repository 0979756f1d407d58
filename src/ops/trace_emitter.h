// Runs the lowerings of a trace's steps, in order, into a module or into a region of one.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "graph/walk.h"
#include "hlo/builder.h"
#include "ops/bounded.h"
#include "ops/registry.h"

namespace torch_xla::ops {

// What stands for the numbers that travel with a step's node: a value per slot of the entry, or
// none where the number is a constant. A step is asked for by its number, in any order.
using SlotValues = std::function<std::vector<std::optional<Value>>(std::size_t step)>;

// What a program for all sizes up to a bound is made by, and the values of its variables.
struct BoundedEmission {
  const BoundedTrace& trace;
  std::vector<Value> variables;
};

// The values of the trace's roots. `leaves` has one per leaf. Throws base::Error naming the
// operator that can't be lowered.
std::vector<Value> emit_trace(hlo::Builder& builder, const Target& target,
                              const graph::Trace& trace, std::vector<Value> leaves,
                              const SlotValues& slots, const BoundedEmission* bounded = nullptr);

// What the lowering of the entry's operator emits for one call.
std::vector<Value> emit_call(const graph::Entry& entry, Context& context, const Frame& frame,
                             bool reads_second_result);

}  // namespace torch_xla::ops

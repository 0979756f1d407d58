// Runs the lowerings of a trace's steps, in order, into a module or into a region of one.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/walk.h"
#include "hlo/builder.h"
#include "ops/registry.h"

namespace torch_xla::ops {

struct EmitOptions {
  std::string_view platform = {};
  bool has_host_kernels = false;
  bool has_locations = false;
  // What the user marked as one operation becomes one (ops/composite.h).
  bool has_composites = false;
};

// What stands for the numbers that travel with a step's node: a value per slot of the entry, or
// none where the number is a constant. Called once per step, in order.
using SlotValues = std::function<std::vector<std::optional<Value>>(const graph::Entry&)>;

// The values of the trace's roots. `leaves` has one per leaf. Throws base::Error naming the
// operator that can't be lowered.
std::vector<Value> emit_trace(hlo::Builder& builder, const EmitOptions& options,
                              const graph::Trace& trace, std::vector<Value> leaves,
                              const SlotValues& slots);

// What the lowering of the entry's operator emits for one call.
std::vector<Value> emit_call(const graph::Entry& entry, Context& context, const Frame& frame,
                             bool reads_second_result);

}  // namespace torch_xla::ops

// What is told of a run while someone looks: graphs written to XLA_SAVE_TENSORS_FILE, and the
// explanations of PT_XLA_DEBUG. The executor asks `is_observed` once per barrier or read; all else
// here runs only then.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "graph/walk.h"
#include "ops/lower.h"
#include "runtime/cause.h"
#include "runtime/compile_cache.h"
#include "runtime/device.h"

namespace torch_xla::runtime {

struct Run {
  const Device& device;
  const graph::Trace& trace;
  std::span<const ops::Donation> donations;
  RunKind kind;
  std::string_view where;
};

bool is_observed();
// 0: PT_XLA_DEBUG is off; 1: compilations are explained; 2: executions too.
int debug_level();

// Before the program is looked for, so that a graph which can't be compiled is seen too. No lock
// may be held by the caller of any of these.
void observe_graph(const Run& run);
// Once it is there. `compile_seconds` is negative if it was found.
void observe_program(const Run& run, const CompiledProgram& program, double compile_seconds);
// When it can't be compiled: writes what XLA_SAVE_HLO_FILE asks for, and returns what else the
// error shall say, or nothing.
std::string observe_failure(const Run& run);
// At the end of every barrier while observed.
void observe_barrier();
// An execution has ended; on a thread of the plugin.
void observe_execution_time(double seconds);

enum class GraphFormat { kText, kDot, kStableHlo, kHlo };
// Throws an Error of kind kValue for a name that is none: "text", "dot", "stablehlo", "hlo".
GraphFormat parse_graph_format(std::string_view name);
// Of that device; `results` are the shardings of the trace's roots, if they are known.
std::string print_graph(const Device& device, const graph::Trace& trace, GraphFormat format,
                        std::span<const base::Sharding* const> results = {});

// Appends to PT_XLA_DEBUG_FILE, or writes to the standard error stream: each line of `text` behind
// "pt-xla-profiler: ".
void write_explanation(std::string_view text);

}  // namespace torch_xla::runtime

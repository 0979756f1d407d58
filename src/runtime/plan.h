// What a barrier or a read is about to run. Everything that must be consistent with recording
// happens here, in one hold of the device's recording lock: choosing the values, walking the graph,
// and replacing the values by arrays that are still to be computed, so that no other thread
// computes them again and later recording starts from them.
#pragma once

#include <span>
#include <vector>

#include "graph/walk.h"
#include "ops/lower.h"
#include "runtime/array.h"
#include "runtime/births.h"
#include "runtime/executor.h"
#include "runtime/graph_parts.h"
#include "runtime/kept_arguments.h"
#include "runtime/launch_queue.h"
#include "runtime/recovery.h"

namespace torch_xla::runtime {

class Device;

struct Plan {
  graph::Trace trace;
  // An array per root, pending; whoever holds the plan must launch or fail them.
  std::vector<ArrayPtr> outputs;
  std::vector<ops::Donation> donations;
  // Of a bounded program, once it is found: in the place of the trace's numbers.
  std::vector<std::uint64_t> numbers;
  // Leaves of a barrier's trace that are to be filled before it is launched.
  std::vector<Birth> births;
  // Of a barrier: what the new values of aliases replace, and nodes that let go of their operands,
  // both in case it has to be taken back (`undo`).
  std::vector<Replaced> replaced;
  std::vector<graph::Node*> emptied;
  // One of the values that are not in the trace since what they need has failed, or null.
  ArrayPtr failed;
  // Of a graph that is to be computed in parts: what comes first. Nothing else is planned, and what
  // is left is to be planned then.
  GraphCut cut;
  // Of a read of arrays that have failed and can be computed (`origin.h`): likewise.
  std::vector<graph::DataPtr> lost;
  std::vector<graph::Value> values;  // that a read asks for, in both cases
  LaunchQueue::Place place;
  // Of a call of a graph: in the place of the trace's leaves that are null.
  ArgumentListPtr kept;
  // To be freed outside the lock, like the trace.
  std::vector<graph::NodeRef> garbage;
  std::vector<ArgumentListPtr> freed;

  bool is_empty() const { return outputs.empty(); }
};

// Whether barriers of this thread hand the memory of arrays that are donors (`Array::set_donor`) to
// results of the same type; what reads such an array afterwards gets an error. Returns what held
// before.
bool set_donors_are_used(bool are_used);

// All live values of the device; they are leaves from now on, unless `find_cut`, which may be null,
// has a cut for their graph.
Plan plan_sync(Device& device, const FindCut& find_cut = nullptr);

// The values that `read` gives (called under the lock), and those that are computed on the way and
// that someone may ask for later, views aside: they are cheap. `arrays` receives one per value,
// unless the graph is to be cut.
Plan plan_compute(Device& device, const ReadValues& read, std::vector<ArrayPtr>& arrays,
                  const FindCut& find_cut = nullptr);

// For a program that is known already: the arrays that `read` gives (called under the lock) are its
// leaves, and the trace has nothing else. Empty when `read` returns false.
Plan plan_again(Device& device, const ReadLeaves& read, const GraphCall& call);

// The graph of the values as it is; changes nothing.
graph::Trace trace_of(Device& device, std::span<const graph::Value> values);

// What `plan_sync` would plan now; changes nothing.
struct Preview {
  graph::Trace trace;
  std::vector<ops::Donation> donations;
  // Of the trace's roots, on a device that is several.
  std::vector<const base::Sharding*> shardings;
};
Preview preview_sync(Device& device);

}  // namespace torch_xla::runtime

// When programs may not run.
//
// Captures: functions that are recorded on stand-ins for their arguments, to become regions
// (graph/region.h). Meanwhile nothing that depends on a stand-in can run.
#pragma once

#include "graph/node.h"

namespace torch_xla::runtime {

// Stands for an array that will only be known when the region is used.
class Placeholder final : public graph::Data {
 public:
  using graph::Data::Data;
};

// While one exists, barriers of other threads wait, and one in this thread throws. Waits for a
// barrier that is collecting what it computes.
class CaptureScope {
 public:
  CaptureScope();
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

 private:
  const void* thread_;
};

// Whether any thread is capturing.
bool is_capturing();

// While one exists, captures wait: what a barrier collects must not be of a capture. Waits for
// captures of other threads; throws if this one is capturing.
class BarrierScope {
 public:
  BarrierScope();
  ~BarrierScope();
  BarrierScope(const BarrierScope&) = delete;
  BarrierScope& operator=(const BarrierScope&) = delete;
};

// Whether this thread may not launch programs: `torch_xla.compile(full_graph=True)` asks for it.
// Returns what held before.
bool set_runs_forbidden(bool is_forbidden);
// Throws if it may not.
void check_runs_allowed();
// Whether this thread may read what it records: it neither captures, nor are runs forbidden.
bool can_run();
// Throws unless `data` is an array: what was made of a stand-in can't be read.
void check_is_array(const graph::Data& data);

}  // namespace torch_xla::runtime

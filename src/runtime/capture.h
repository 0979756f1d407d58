// When programs may not run.
//
// Captures: functions that are recorded on stand-ins for their arguments, to become regions
// (graph/region.h). Meanwhile nothing that depends on a stand-in can run.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "graph/node.h"

namespace torch_xla::runtime {

class Device;

// Of one device. Captures and barriers exclude each other, but not their like, and not those of
// other devices: replicas in threads don't wait for each other.
class Captures {
 public:
  // Whether any thread is capturing.
  bool is_any() const { return num_captures_.load(std::memory_order_relaxed) > 0; }

 private:
  friend class CaptureScope;
  friend class BarrierScope;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> num_captures_{0};  // written under mutex_
  int num_barriers_ = 0;              // under mutex_
};

// Stands for an array that will only be known when the region is used.
class Placeholder final : public graph::Data {
 public:
  using graph::Data::Data;
};

// While one exists, barriers of the device in other threads wait, and any in this thread throws.
// Waits for a barrier of the device that is collecting what it computes.
class CaptureScope {
 public:
  explicit CaptureScope(Device& device);
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

 private:
  Captures& captures_;
  const void* thread_;
};

// While one exists, captures of the device wait: what a barrier collects must not be of a capture.
// Waits for captures of other threads; throws if this one is capturing, on whatever device.
class BarrierScope {
 public:
  explicit BarrierScope(Device& device);
  ~BarrierScope();
  BarrierScope(const BarrierScope&) = delete;
  BarrierScope& operator=(const BarrierScope&) = delete;

 private:
  Captures& captures_;
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

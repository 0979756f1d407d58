// Eager mode: what is recorded runs soon, without a barrier.
#pragma once

#include <atomic>

#include "graph/entry.h"
#include "runtime/device.h"

namespace torch_xla::aten {

inline std::atomic<bool> eager_mode_is_on{false};

// Whether eager mode is off in this thread whatever holds elsewhere, as inside of
// `torch_xla.compile`. Returns what held before.
bool suspend_eager_mode(bool is_suspended);
bool is_eager();

// After an operation was recorded: launches what is pending when a group of operations is complete.
// Where groups end is decided by the operations in them, so that a loop's groups repeat.
void run_eagerly(runtime::Device& device, const graph::Entry& entry);

inline void note_recorded(runtime::Device& device, const graph::Entry& entry) {
  if (eager_mode_is_on.load(std::memory_order_relaxed)) [[unlikely]]
    run_eagerly(device, entry);
}

}  // namespace torch_xla::aten

// Eager mode: what is recorded runs soon, without a barrier.
#pragma once

#include <atomic>
#include <optional>

#include "graph/entry.h"
#include "runtime/device.h"

namespace torch_xla::aten {

// Eager mode on or off for the process, or for this thread alone if it has a mode of its own.
void set_eager_mode(bool is_on);
// This thread's own mode, whatever holds for the process; none: the process's. Returns what held
// before.
std::optional<bool> set_thread_eager_mode(std::optional<bool> is_on);
// Whether eager mode is off in this thread whatever was set, as inside of `torch_xla.compile`.
// Returns what held before.
bool suspend_eager_mode(bool is_suspended);
// Whether eager mode is on in this thread.
bool is_eager();

// For the process, and for how many threads by their own modes.
inline std::atomic<int> num_eager_modes{0};

// After an operation was recorded: launches what is pending when a group of operations is complete.
// Where groups end is decided by the operations in them, so that a loop's groups repeat.
void run_eagerly(runtime::Device& device, const graph::Entry& entry);

inline void note_recorded(runtime::Device& device, const graph::Entry& entry) {
  if (num_eager_modes.load(std::memory_order_relaxed) > 0) [[unlikely]]
    run_eagerly(device, entry);
}

}  // namespace torch_xla::aten

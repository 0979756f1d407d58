// How many objects of the plugins this process holds. Tests assert that all are zero when the last
// owner is gone; a count that grows from step to step is a leak.
#pragma once

#include <atomic>
#include <cstdint>

namespace torch_xla::pjrt {

struct LiveObjects {
  std::int64_t clients = 0;
  std::int64_t buffers = 0;
  std::int64_t executables = 0;
  std::int64_t events = 0;

  std::int64_t total() const { return clients + buffers + executables + events; }
  friend bool operator==(const LiveObjects&, const LiveObjects&) = default;
};

// The counts now. Safe to call from any thread; each count is exact, but not all of one instant.
LiveObjects live_objects();

// What the owning classes count with.
struct LiveCounters {
  std::atomic<std::int64_t> clients{0};
  std::atomic<std::int64_t> buffers{0};
  std::atomic<std::int64_t> executables{0};
  std::atomic<std::int64_t> events{0};
};
LiveCounters& live_counters();

}  // namespace torch_xla::pjrt

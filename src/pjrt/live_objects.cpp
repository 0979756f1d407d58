// The counters behind live_objects(). They need no destructor, so objects freed while the process
// exits still find them.
#include "pjrt/live_objects.h"

namespace torch_xla::pjrt {

LiveCounters& live_counters() {
  static constinit LiveCounters counters;
  return counters;
}

LiveObjects live_objects() {
  const LiveCounters& counters = live_counters();
  return {counters.clients.load(std::memory_order_relaxed),
          counters.buffers.load(std::memory_order_relaxed),
          counters.executables.load(std::memory_order_relaxed),
          counters.events.load(std::memory_order_relaxed)};
}

}  // namespace torch_xla::pjrt

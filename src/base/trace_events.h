// What happened when, for a profile: spans of time on named lines (threads, devices). Nothing is
// kept while tracing is off, which costs one relaxed load. Every timed metric records its spans
// here too
// (`Metric::record`), so that compilations and transfers need no calls of their own.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace torch_xla::base {

struct TraceEvent {
  std::string name;
  std::string line;           // where it happened: "thread 4711 (python)", "xla:0"
  std::string detail;         // may be empty
  std::int64_t start_ns = 0;  // since the epoch
  std::int64_t duration_ns = 0;
};

namespace detail {
inline std::atomic<bool> tracing_is_on{false};
}

inline bool tracing_is_on() { return detail::tracing_is_on.load(std::memory_order_relaxed); }
inline constexpr std::size_t kMaxTraceEvents = 2'000'000;
// At most `max_events` are kept, the first ones. Throws an Error if tracing is on already.
void start_tracing(std::size_t max_events = kMaxTraceEvents);
// What happened since, in the order in which it ended. Throws an Error if tracing is off.
std::vector<TraceEvent> stop_tracing();

// Keeps the event if tracing is on. An empty line stands for the calling thread.
void add_trace_event(TraceEvent event);

}  // namespace torch_xla::base

// The buffer of events.
#include "base/trace_events.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace torch_xla::base {
namespace {

struct Buffer {
  std::mutex mutex;
  // Both under mutex.
  std::vector<TraceEvent> events;
  std::size_t max_events = 0;
};

Buffer& buffer() {
  static auto* const instance = new Buffer();
  return *instance;
}

std::string this_thread_name() {
  std::array<char, 32> name{};
  pthread_getname_np(pthread_self(), name.data(), name.size());
  return str("thread ", ::syscall(SYS_gettid), " (", name.data(), ")");
}

}  // namespace

void start_tracing(std::size_t max_events) {
  const std::lock_guard lock(buffer().mutex);
  check(!tracing_is_on(), "start_trace: a trace is being taken already; call stop_trace first");
  buffer().events.clear();
  buffer().max_events = max_events;
  detail::tracing_is_on.store(true);
}

std::vector<TraceEvent> stop_tracing() {
  const std::lock_guard lock(buffer().mutex);
  check(tracing_is_on(), "stop_trace: no trace is being taken; call start_trace first");
  detail::tracing_is_on.store(false);
  return std::exchange(buffer().events, {});
}

void add_trace_event(TraceEvent event) {
  if (!tracing_is_on()) return;
  if (event.line.empty()) event.line = this_thread_name();
  const std::lock_guard lock(buffer().mutex);
  if (tracing_is_on() && buffer().events.size() < buffer().max_events) {
    buffer().events.push_back(std::move(event));
  }
}

}  // namespace torch_xla::base

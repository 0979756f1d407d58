// The queue of launches by itself: what its thread survives.
#include <algorithm>
#include <new>
#include <optional>
#include <stdexcept>

#include "base/trace_events.h"
#include "check.h"
#include "pjrt/event.h"
#include "runtime/launch_queue.h"

namespace torch_xla::runtime {
namespace {

TEST(test_a_launch_that_throws_is_given_up_and_the_next_one_runs) {
  LaunchQueue queue("CPU:0");
  int num_run = 0;
  queue.submit(queue.reserve(), []() -> std::vector<pjrt::Event> { throw std::bad_alloc(); });
  queue.submit(queue.reserve(),
               []() -> std::vector<pjrt::Event> { throw std::runtime_error("lost"); });
  queue.submit(queue.reserve(), [&]() -> std::vector<pjrt::Event> {
    ++num_run;
    return std::vector<pjrt::Event>();
  });
  queue.wait_idle();
  EXPECT_EQ(num_run, 1);
}

TEST(test_what_was_waited_for_is_in_the_profile) {
  LaunchQueue queue("CPU:0");
  for (int i = 0; i < 2000; ++i) {
    base::start_tracing();
    queue.submit(queue.reserve(), [] { return std::vector<pjrt::Event>(); });
    queue.wait_idle();
    const std::vector<base::TraceEvent> events = base::stop_tracing();
    EXPECT_EQ(std::ranges::count(events, "CPU:0", &base::TraceEvent::line), 1);
  }
}

}  // namespace
}  // namespace torch_xla::runtime

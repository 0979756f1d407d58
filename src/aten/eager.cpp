// Groups as in content-defined chunking: a group ends behind an operation whose key says so, so
// that the groups of a loop's second turn are those of its first, wherever a read cut them before.
#include "aten/eager.h"

#include <chrono>
#include <utility>

#include "aten/blocking.h"
#include "aten/errors.h"
#include "base/metrics.h"
#include "base/settings.h"
#include "runtime/capture.h"
#include "runtime/executor.h"

namespace torch_xla::aten {
namespace {

constexpr std::uint64_t kMinOperations = 8;
constexpr std::uint64_t kMaxOperations = 128;
// One in so many operations ends a group.
constexpr std::uint64_t kSpacing = 4;

// Since this thread's last launch. Two threads that record on one device launch each other's
// operations; both go on counting.
thread_local std::uint64_t num_recorded = 0;

std::atomic<bool> is_on_in_process{false};
thread_local std::optional<bool> mode_here;
thread_local bool is_suspended_here = false;

void launch(runtime::Device& device) {
  static base::Metric& compile_time = base::metric("EagerOpCompileTime");
  static base::Metric& execute_time = base::metric("EagerOpExecuteTime");
  const std::int64_t num_compiled = runtime::computation_stats().compiled;
  const auto start = std::chrono::steady_clock::now();
  runtime::sync(device, /*wait=*/false, {}, runtime::RunKind::kEager);
  const std::chrono::nanoseconds elapsed = std::chrono::steady_clock::now() - start;
  const bool was_compiled = runtime::computation_stats().compiled > num_compiled;
  (was_compiled ? compile_time : execute_time).record(static_cast<double>(elapsed.count()));
}

}  // namespace

void set_eager_mode(bool is_on) {
  if (mode_here) {
    set_thread_eager_mode(is_on);
    return;
  }
  const bool was_on = is_on_in_process.exchange(is_on);
  num_eager_modes += int{is_on} - int{was_on};
}

std::optional<bool> set_thread_eager_mode(std::optional<bool> is_on) {
  num_eager_modes += int{is_on.value_or(false)} - int{mode_here.value_or(false)};
  return std::exchange(mode_here, is_on);
}

bool suspend_eager_mode(bool is_suspended) {
  return std::exchange(is_suspended_here, is_suspended);
}

bool is_eager() { return !is_suspended_here && mode_here.value_or(is_on_in_process.load()); }

void run_eagerly(runtime::Device& device, const graph::Entry& entry) {
  if (!is_eager() || device.captures().is_any()) return;
  ++num_recorded;
  const bool ends_group = base::settings().use_eager_debug_mode() ||
                          (num_recorded >= kMinOperations && entry.key.lo % kSpacing == 0);
  if (!ends_group && num_recorded < kMaxOperations) return;
  num_recorded = 0;
  blocking([&] { translating([&] { launch(device); }); });
}

}  // namespace torch_xla::aten

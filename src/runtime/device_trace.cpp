// One recording at a time, as plugins allow.
#include "runtime/device_trace.h"

#include <memory>
#include <mutex>

#include "pjrt/client.h"
#include "pjrt/profiler.h"
#include "runtime/client.h"

namespace torch_xla::runtime {
namespace {

struct Recording {
  std::mutex mutex;
  std::unique_ptr<pjrt::Profiler> profiler;  // under mutex
};

Recording& recording() {
  static auto* const instance = new Recording();
  return *instance;
}

}  // namespace

void start_device_trace() {
  if (!is_initialized()) return;
  const std::lock_guard lock(recording().mutex);
  std::unique_ptr<pjrt::Profiler> profiler =
      pjrt::Profiler::create(client().pjrt_client().plugin());
  if (profiler == nullptr) return;
  profiler->start();
  recording().profiler = std::move(profiler);
}

std::string stop_device_trace() {
  const std::lock_guard lock(recording().mutex);
  const std::unique_ptr<pjrt::Profiler> profiler = std::move(recording().profiler);
  if (profiler == nullptr) return "";
  profiler->stop();
  return profiler->collect();
}

}  // namespace torch_xla::runtime

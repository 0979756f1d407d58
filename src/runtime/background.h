// Work that nobody waits for when the process ends: it may take minutes, and can't be stopped. What
// it uses must not be destroyed meanwhile, so a process that ends with some of it ends at once
// (`shutdown`).
#pragma once

#include <pthread.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

namespace torch_xla::runtime {

// Such work goes on while one of these lives.
class BackgroundWork {
 public:
  BackgroundWork();
  ~BackgroundWork();
  BackgroundWork(const BackgroundWork&) = delete;
  BackgroundWork& operator=(const BackgroundWork&) = delete;

  static std::int64_t count();
};

// Calls and destroys `job` on a thread of its own, which costs a thousandth of what the smallest
// compilation takes; on this one if there are no threads to be had. The job must not throw.
template <typename Job>
void run_in_background(Job job) {
  const auto work = std::make_shared<const BackgroundWork>();
  const auto kept = std::make_shared<std::optional<Job>>(std::move(job));
  const auto run = [work, kept] {
    (**kept)();
    kept->reset();
  };
  try {
    std::thread([run] {
      pthread_setname_np(pthread_self(), "xla-background");
      run();
    }).detach();
  } catch (const std::system_error&) {
    run();
  }
}

}  // namespace torch_xla::runtime

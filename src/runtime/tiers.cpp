// One thread at a time, which ends with the last job.
#include "runtime/tiers.h"

#include <utility>

#include "runtime/background.h"

namespace torch_xla::runtime {

void FullCompilations::add(std::function<void()> job) {
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->jobs.push_back(std::move(job));
    if (std::exchange(queue_->is_running, true)) return;
  }
  run_in_background([queue = queue_] {
    while (true) {
      std::function<void()> next;
      {
        const std::lock_guard lock(queue->mutex);
        if (queue->jobs.empty()) {
          queue->is_running = false;
          return;
        }
        next = std::move(queue->jobs.front());
        queue->jobs.pop_front();
      }
      next();
    }
  });
}

void FullCompilations::clear() {
  std::deque<std::function<void()>> dropped;
  {
    const std::lock_guard lock(queue_->mutex);
    dropped.swap(queue_->jobs);
  }
}

}  // namespace torch_xla::runtime

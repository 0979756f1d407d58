// Compiling twice: a new program quickly, so that its first launch soon begins, and one that goes
// on being launched once more with all of the compiler's optimizations, beside the launches. Next:
// `programs.cpp`, which puts the second executable in the place of the first, and
// `platform_options.h` for the options of each.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace torch_xla::runtime {

// How a program is compiled.
enum class Tier {
  kOnly,    // with all optimizations, while someone waits
  kFirst,   // quickly, while someone waits
  kSecond,  // with all optimizations, in the background
};

// Of a program that was compiled quickly: how many launches it takes until it is compiled once
// more. What is launched once or twice, as the first steps of a training whose state is still to
// come, is not worth it.
inline constexpr int kQuickLaunches = 3;

// Thread-safe.
class QuickProgram {
 public:
  // `compile_fully` is called once, must not block for long and must not throw.
  explicit QuickProgram(std::function<void()> compile_fully)
      : compile_fully_(std::move(compile_fully)) {}

  void count_launch() {
    if (num_launches_.fetch_add(1) + 1 == kQuickLaunches) std::exchange(compile_fully_, nullptr)();
  }

 private:
  std::atomic<int> num_launches_{0};
  std::function<void()> compile_fully_;  // of the one launch that calls it
};

// Jobs that run one after the other in the background: as many compilations at once as programs
// begin to be launched often would leave the launches no core. Thread-safe.
class FullCompilations {
 public:
  // The job must not throw.
  void add(std::function<void()> job);
  // Drops what has not begun.
  void clear();

 private:
  struct Queue {
    std::mutex mutex;
    std::deque<std::function<void()>> jobs;  // under mutex
    bool is_running = false;                 // under mutex
  };

  // Outlasts this object, whose owner a job may be the last to hold.
  const std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
};

}  // namespace torch_xla::runtime

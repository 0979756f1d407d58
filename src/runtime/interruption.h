// How a thread that waits learns that its user wants it back. This library knows neither signals
// nor a language: the bindings say which threads may be interrupted and look for what interrupts
// them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

#include "pjrt/event.h"

namespace torch_xla::runtime {

struct InterruptionHooks {
  // Whether the calling thread's waits may be interrupted. Called by every wait: cheap.
  bool (*is_interruptible)() = nullptr;
  // Called several times a second by such a thread while it waits, holding no lock. What it throws
  // ends the wait and reaches the wait's caller as it is.
  void (*check)() = nullptr;
  // Called by any thread after a wait of some length. It need not return: a thread that was left
  // behind by a process which exits has nowhere to go.
  void (*after_wait)() = nullptr;
};

// Once, before any thread waits; tests may do so again between waits.
void set_interruption_hooks(InterruptionHooks hooks);

bool is_interruptible();
void check_interruption();
void after_wait();
// How often a check has thrown.
std::uint64_t num_interruptions();

inline constexpr std::chrono::milliseconds kInterruptionInterval{100};

// As `condition.wait(lock, is_over)`; what `check` throws leaves the lock released.
template <typename IsOver>
void wait_interruptibly(std::condition_variable& condition, std::unique_lock<std::mutex>& lock,
                        const IsOver& is_over) {
  if (!is_interruptible()) return condition.wait(lock, is_over);
  while (!condition.wait_for(lock, kInterruptionInterval, is_over)) {
    lock.unlock();
    check_interruption();
    lock.lock();
  }
}

// Something that happens once.
class Occurrence {
 public:
  void set();
  void wait_interruptibly();

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool is_set_ = false;  // under mutex_
};

// As `event.await()`.
void await_interruptibly(const pjrt::Event& event);

}  // namespace torch_xla::runtime

// Waits for the device, and what a user is told of those that take long: a program that never ends,
// or a plugin that hangs, would else be a silent process.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>

#include "pjrt/event.h"
#include "runtime/interruption.h"

namespace torch_xla::runtime {

// While it lives, the calling thread waits. When that has taken XLA_WAIT_WARNING seconds, a warning
// says so, once, and the counter `SlowWait` counts it; the wait goes on. Make one only where a
// thread really has to wait, holding no lock that `what` takes.
class WatchedWait {
 public:
  // `what` completes "a thread has waited 60 s for ...". It is called if the wait is long, on
  // another thread, before this object has been destroyed.
  explicit WatchedWait(std::function<std::string()> what);
  // In place of that warning, `tell` is called when the wait has taken `limit`: once, on another
  // thread, which all waits of the process share.
  WatchedWait(std::chrono::milliseconds limit, std::function<void()> tell);
  ~WatchedWait();
  WatchedWait(const WatchedWait&) = delete;
  WatchedWait& operator=(const WatchedWait&) = delete;

 private:
  struct Watch;
  using Time = std::chrono::steady_clock::time_point;
  std::function<void()> tell_;
  std::chrono::milliseconds limit_;
  // Under the watch's mutex.
  bool is_listed_ = false;
  std::multimap<Time, WatchedWait*>::iterator place_;
};

// As `event.await()`, watched unless the event is ready. Not interruptible: for what uses a
// caller's memory until it has ended.
template <typename What>
void await_watched(const pjrt::Event& event, const What& what) {
  if (event.is_ready()) return event.await();
  const WatchedWait watched(what);
  event.await();
}

// The same, interruptible.
template <typename What>
void await_watched_interruptibly(const pjrt::Event& event, const What& what) {
  if (event.is_ready()) return event.await();
  const WatchedWait watched(what);
  await_interruptibly(event);
}

}  // namespace torch_xla::runtime

// One thread for all waits of the process. It starts with the first of them and sleeps until one is
// due; those that begin meanwhile wake it only if they are due before.
#include "runtime/watched_wait.h"

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/settings.h"

namespace torch_xla::runtime {

struct WatchedWait::Watch {
  std::mutex mutex;
  std::condition_variable is_due_before;
  // All below are under `mutex`.
  std::multimap<Time, WatchedWait*> waits;  // by when they are due, until they were told of
  Time wakes_at = Time::max();
  bool has_thread = false;

  // Never destroyed: the thread lasts as long as the process.
  static Watch& of_process() {
    static Watch& watch = *new Watch;
    return watch;
  }

  void run();
};

void WatchedWait::Watch::run() {
  std::unique_lock lock(mutex);
  while (true) {
    if (waits.empty()) {
      wakes_at = Time::max();
      is_due_before.wait(lock);
      continue;
    }
    const auto first = waits.begin();
    if (std::chrono::steady_clock::now() < first->first) {
      wakes_at = first->first;
      is_due_before.wait_until(lock, wakes_at);
      continue;
    }
    WatchedWait& wait = *first->second;
    waits.erase(first);
    wait.is_listed_ = false;
    try {
      wait.tell_();
    } catch (const std::exception&) {
      // Memory has ended: it goes on waiting unseen.
    }
  }
}

WatchedWait::WatchedWait(std::function<std::string()> what)
    : WatchedWait(
          std::chrono::seconds(base::settings().wait_warning()),
          [what = std::move(what), limit = base::settings().wait_warning()] {
            static base::Counter& slow = base::counter("SlowWait");
            slow.add();
            base::warn(base::str("a thread has waited ", limit, " s for ", what(),
                                 ", and goes on waiting (XLA_WAIT_WARNING=0 silences this)"));
          }) {}

WatchedWait::WatchedWait(std::chrono::milliseconds limit, std::function<void()> tell)
    : tell_(std::move(tell)), limit_(limit) {
  if (limit_.count() <= 0) return;
  const Time due = std::chrono::steady_clock::now() + limit_;
  Watch& watch = Watch::of_process();
  const std::lock_guard lock(watch.mutex);
  if (!watch.has_thread) {
    try {
      std::thread([&watch] { watch.run(); }).detach();
      watch.has_thread = true;
    } catch (const std::system_error&) {
      return;  // without threads to be had it waits unwatched
    }
  }
  place_ = watch.waits.emplace(due, this);
  is_listed_ = true;
  if (due < watch.wakes_at) watch.is_due_before.notify_one();
}

WatchedWait::~WatchedWait() {
  if (limit_.count() > 0) {
    Watch& watch = Watch::of_process();
    const std::lock_guard lock(watch.mutex);
    if (is_listed_) watch.waits.erase(place_);
  }
  after_wait();
}

}  // namespace torch_xla::runtime

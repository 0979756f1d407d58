// The queue's thread takes places in order, waits until each is submitted, and calls it.
#include "runtime/launch_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/metrics.h"
#include "base/settings.h"
#include "base/trace_events.h"
#include "runtime/observe.h"

namespace torch_xla::runtime {

struct LaunchQueue::Place::Slot {
  // Under the queue's mutex: no longer awaited; without `start` the place was given up.
  bool is_settled = false;
  Start start;
  std::string name;
  std::uint64_t number = 0;  // how many places were reserved before
};

namespace {

using Time = std::chrono::steady_clock::time_point;

Time now() { return std::chrono::steady_clock::now(); }

}  // namespace

struct LaunchQueue::State : std::enable_shared_from_this<State> {
  std::mutex mutex;
  std::condition_variable submitted;  // the first slot was settled, or the queue is closing
  std::condition_variable finished;   // a launch has been executed
  // All below are under `mutex`.
  std::deque<std::shared_ptr<Place::Slot>> slots;
  std::uint64_t num_reserved = 0;
  // Launches end in any order: which of those since `first_unfinished` have.
  std::uint64_t first_unfinished = 0;
  std::deque<bool> is_finished;
  bool is_closing = false;
  std::thread thread;
  Time last_finish;
  std::string line;

  void run();
  // Calls `finish` when the work of the slot's launch is done.
  void watch(const pjrt::Event& event, const std::shared_ptr<Place::Slot>& slot, Time start);
  void trace(const std::string& name, double seconds) const;
  void finish(const Place::Slot& slot, std::optional<Time> start);
};

void LaunchQueue::State::run() {
  std::unique_lock lock(mutex);
  while (true) {
    submitted.wait(lock, [&] { return slots.empty() ? is_closing : slots.front()->is_settled; });
    if (slots.empty()) return;
    const std::shared_ptr<Place::Slot> slot = std::move(slots.front());
    slots.pop_front();
    lock.unlock();
    const Time start = now();
    std::optional<pjrt::Event> event;
    if (slot->start) event = slot->start();
    slot->start = nullptr;
    if (event.has_value()) {
      watch(*event, slot, start);
    } else {
      finish(*slot, std::nullopt);
    }
    lock.lock();
  }
}

void LaunchQueue::State::trace(const std::string& name, double seconds) const {
  const auto end = std::chrono::system_clock::now().time_since_epoch();
  const auto end_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(end).count();
  const auto duration = static_cast<std::int64_t>(seconds * 1e9);
  base::add_trace_event({name.empty() ? "execute" : name, line, "", end_ns - duration, duration});
}

void LaunchQueue::State::watch(const pjrt::Event& event, const std::shared_ptr<Place::Slot>& slot,
                               Time start) {
  try {
    event.on_ready(
        [state = shared_from_this(), slot, start](const auto&) { state->finish(*slot, start); });
  } catch (const base::Error&) {
    // A plugin without callbacks, or a broken event: nothing can be overlapped then.
    try {
      event.await();
    } catch (const base::Error&) {
      // The outputs report it.
    }
    finish(*slot, start);
  }
}

void LaunchQueue::State::finish(const Place::Slot& slot, std::optional<Time> start) {
  static base::Metric& time = base::metric("ExecuteTime");
  double seconds = 0;
  {
    const std::lock_guard lock(mutex);
    if (start.has_value()) {
      // What was launched while its predecessor ran has not run meanwhile.
      const Time end = now();
      const std::chrono::nanoseconds elapsed = end - std::max(*start, last_finish);
      last_finish = end;
      time.record(static_cast<double>(elapsed.count()));
      seconds = std::chrono::duration<double>(elapsed).count();
    }
    is_finished[slot.number - first_unfinished] = true;
    while (!is_finished.empty() && is_finished.front()) {
      is_finished.pop_front();
      ++first_unfinished;
    }
  }
  finished.notify_all();
  if (base::tracing_is_on()) [[unlikely]]
    trace(slot.name, seconds);
  observe_execution_time(seconds);
}

LaunchQueue::Place& LaunchQueue::Place::operator=(Place&& other) noexcept {
  release();
  queue_ = std::exchange(other.queue_, nullptr);
  slot_ = std::move(other.slot_);
  return *this;
}

void LaunchQueue::Place::release() noexcept {
  if (slot_ == nullptr) return;
  {
    const std::lock_guard lock(queue_->state_->mutex);
    slot_->is_settled = true;
  }
  queue_->state_->submitted.notify_one();
  slot_ = nullptr;
}

LaunchQueue::LaunchQueue(std::string line) : state_(std::make_shared<State>()) {
  state_->line = std::move(line);
}

void LaunchQueue::close() {
  wait_idle();
  std::thread thread;
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_closing = true;
    thread = std::move(state_->thread);
  }
  state_->submitted.notify_one();
  if (thread.joinable()) thread.join();
}

LaunchQueue::Place LaunchQueue::reserve() {
  Place place;
  place.queue_ = this;
  place.slot_ = std::make_shared<Place::Slot>();
  const std::lock_guard lock(state_->mutex);
  base::check(!state_->is_closing, "the xla device was shut down");
  if (!state_->thread.joinable()) {
    state_->thread = std::thread([state = state_] { state->run(); });
  }
  state_->slots.push_back(place.slot_);
  place.slot_->number = state_->num_reserved++;
  state_->is_finished.push_back(false);
  return place;
}

void LaunchQueue::submit(Place place, Start start, std::string name) {
  const auto limit = static_cast<std::uint64_t>(
      std::max<std::int64_t>(base::settings().max_inflight_launches(), 1));
  {
    std::unique_lock lock(state_->mutex);
    state_->finished.wait(lock,
                          [&] { return place.slot_->number < state_->first_unfinished + limit; });
  }
  place.slot_->start = std::move(start);
  place.slot_->name = std::move(name);
  place.release();
}

void LaunchQueue::wait_idle() {
  std::unique_lock lock(state_->mutex);
  const std::uint64_t goal = state_->num_reserved;
  state_->finished.wait(lock, [&] { return state_->first_unfinished >= goal; });
}

}  // namespace torch_xla::runtime

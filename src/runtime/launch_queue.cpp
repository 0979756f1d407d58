// The queue's thread takes places in order, waits until each is submitted, and calls it. Neither it
// nor a thread that waits for launches is woken for each of them: to switch to it, and to fill the
// caches anew for it, takes the time of a small program.
#include "runtime/launch_queue.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <new>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/kept_blocks.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/settings.h"
#include "base/trace_events.h"
#include "runtime/interruption.h"
#include "runtime/observe.h"
#include "runtime/watched_wait.h"

namespace torch_xla::runtime {

struct LaunchQueue::Place::Slot {
  // Under the queue's mutex: no longer awaited; without `start` the place was given up.
  bool is_settled = false;
  Start start;
  std::string name;
  std::uint64_t number = 0;  // how many places were reserved before
  // Of the devices that it was launched on, how many have not executed it.
  std::atomic<std::size_t> num_running{0};
  std::uint64_t interruptions = num_interruptions();
};

namespace {

using Time = std::chrono::steady_clock::time_point;

constexpr std::uint64_t kNoGoal = std::numeric_limits<std::uint64_t>::max();
// Of programs that take longer, so many are unfinished at most; of short ones as many as take this
// long, within the user's limit.
constexpr std::uint64_t kMaxLongLaunches = 8;
constexpr double kSecondsAhead = 0.1;
// The plugin has as many as take this long, between these bounds, and gets further ones when half
// of them are left. Each holds its results and its working memory from then on, and XLA's CPU
// plugin runs a program of milliseconds faster when fewer wait behind it.
constexpr double kSecondsWithPlugin = 0.01;
constexpr double kMinWithPlugin = 2;
constexpr double kMaxWithPlugin = 16;
// After so much of it, memory that was kept for the next launch goes back.
constexpr std::chrono::seconds kIdleTime(2);

Time now() { return std::chrono::steady_clock::now(); }

// For what is only told: not worth a program when memory ends.
template <typename Function>
void attempt(const Function& function) noexcept {
  try {
    function();
  } catch (const std::exception&) {
    // Then it is not told.
  }
}

}  // namespace

struct LaunchQueue::State : std::enable_shared_from_this<State> {
  std::mutex mutex;
  std::condition_variable submitted;  // the first slot was settled, or the queue is closing
  std::condition_variable has_room;   // the plugin has `refill_at` launches left
  std::condition_variable finished;   // a launch has been executed
  // All below are under `mutex`.
  std::deque<std::shared_ptr<Place::Slot>> slots;
  std::uint64_t num_reserved = 0;
  // Launches end in any order: which of those since `first_unfinished` have.
  std::uint64_t first_unfinished = 0;
  std::deque<bool> is_finished;
  std::deque<std::shared_ptr<Place::Slot>> launched;  // or about to be, and not yet forgotten
  std::uint64_t num_with_plugin = 0;
  std::uint64_t refill_at = 0;        // how many the plugin has left when it gets further ones
  std::uint64_t next_goal = kNoGoal;  // the least that is awaited of `first_unfinished`
  bool is_closing = false;
  std::thread thread;
  Time last_finish;
  double mean_seconds = 0;  // of the last launches
  std::string line;

  void run();
  // How many launches may be unfinished.
  std::uint64_t limit() const;
  // Blocks until the first slot is settled, or the queue is closing.
  void await_submitted(std::unique_lock<std::mutex>& lock);
  // Blocks while the plugin has enough.
  void await_room(std::unique_lock<std::mutex>& lock);
  // Blocks, interruptibly, until the launches before number `goal` have been executed.
  void await(std::unique_lock<std::mutex>& lock, std::uint64_t goal);
  // Destroys what launches that have been executed still hold.
  void forget_finished(std::unique_lock<std::mutex>& lock);
  // Calls `finish` when the work of the slot's launch is done, on every device.
  void watch(const std::vector<pjrt::Event>& events, const std::shared_ptr<Place::Slot>& slot,
             Time start);
  void finish_one(Place::Slot& slot, Time start) noexcept;
  void trace(const std::string& name, double seconds) const;
  void finish(const Place::Slot& slot, std::optional<Time> start) noexcept;
};

// Where memory ends, of what is thrown here nothing leaves the thread: the process would end.
void LaunchQueue::State::run() {
  std::unique_lock lock(mutex);
  while (true) {
    await_room(lock);
    await_submitted(lock);
    if (slots.empty()) return;
    // Else its owner is still at the compiler, and is left behind.
    const bool is_settled = slots.front()->is_settled;
    ++num_with_plugin;
    const std::shared_ptr<Place::Slot> slot = std::move(slots.front());
    slots.pop_front();
    try {
      launched.push_back(slot);
    } catch (const std::bad_alloc&) {
      // The callback, which has it too, lets go of it then.
    }
    forget_finished(lock);
    lock.unlock();
    base::kept_blocks().keep();
    const Time start = now();
    std::vector<pjrt::Event> events;
    try {
      if (is_settled && slot->start) events = slot->start();
    } catch (const std::exception& error) {
      attempt(
          [&] { base::warn(base::str("a launch on ", line, " was given up: ", error.what())); });
    }
    if (events.empty()) {
      finish(*slot, std::nullopt);
    } else {
      watch(events, slot, start);
    }
    lock.lock();
  }
}

std::uint64_t LaunchQueue::State::limit() const {
  const auto most = static_cast<std::uint64_t>(
      std::max<std::int64_t>(base::settings().max_inflight_launches(), 1));
  const std::uint64_t least = std::min(most, kMaxLongLaunches);
  if (mean_seconds <= 0) return least;
  const double ahead = std::min(kSecondsAhead / mean_seconds, static_cast<double>(most));
  return std::max(static_cast<std::uint64_t>(ahead), least);
}

void LaunchQueue::State::await_submitted(std::unique_lock<std::mutex>& lock) {
  const auto is_over = [&] { return is_closing || (!slots.empty() && slots.front()->is_settled); };
  while (!submitted.wait_for(lock, kIdleTime, is_over)) {
    if (first_unfinished < num_reserved) continue;
    lock.unlock();
    base::kept_blocks().let_go();
    lock.lock();
    submitted.wait(lock, is_over);
  }
}

void LaunchQueue::State::await_room(std::unique_lock<std::mutex>& lock) {
  const double enough = kSecondsWithPlugin / std::max(mean_seconds, 1e-9);
  const auto most = static_cast<std::uint64_t>(std::clamp(enough, kMinWithPlugin, kMaxWithPlugin));
  if (num_with_plugin < most) return;
  refill_at = most / 2;
  has_room.wait(lock, [&] { return num_with_plugin <= refill_at; });
}

void LaunchQueue::State::await(std::unique_lock<std::mutex>& lock, std::uint64_t goal) {
  if (first_unfinished >= goal) return;
  const WatchedWait watched([this] { return base::str("the launches of ", line); });
  wait_interruptibly(finished, lock, [&] {
    if (first_unfinished >= goal) return true;
    next_goal = std::min(next_goal, goal);
    return false;
  });
}

void LaunchQueue::State::forget_finished(std::unique_lock<std::mutex>& lock) {
  while (!launched.empty() && launched.front()->number < first_unfinished) {
    Start forgotten = std::move(launched.front()->start);
    launched.pop_front();
    lock.unlock();
    forgotten = nullptr;
    lock.lock();
  }
}

void LaunchQueue::State::trace(const std::string& name, double seconds) const {
  const auto end = std::chrono::system_clock::now().time_since_epoch();
  const auto end_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(end).count();
  const auto duration = static_cast<std::int64_t>(seconds * 1e9);
  base::add_trace_event({name.empty() ? "execute" : name, line, "", end_ns - duration, duration});
}

void LaunchQueue::State::watch(const std::vector<pjrt::Event>& events,
                               const std::shared_ptr<Place::Slot>& slot, Time start) {
  slot->num_running.store(events.size(), std::memory_order_relaxed);
  for (const pjrt::Event& event : events) {
    try {
      event.on_ready([state = shared_from_this(), slot, start](const auto&) {
        state->finish_one(*slot, start);
      });
    } catch (const std::exception&) {
      // A plugin without callbacks, or a broken event: nothing can be overlapped then.
      try {
        event.await();
      } catch (const std::exception&) {
        // The outputs report it.
      }
      finish_one(*slot, start);
    }
  }
}

void LaunchQueue::State::finish_one(Place::Slot& slot, Time start) noexcept {
  if (slot.num_running.fetch_sub(1, std::memory_order_acq_rel) == 1) finish(slot, start);
}

void LaunchQueue::State::finish(const Place::Slot& slot, std::optional<Time> start) noexcept {
  double seconds = 0;
  bool is_awaited = false;
  bool makes_room = false;
  {
    const std::lock_guard lock(mutex);
    makes_room = --num_with_plugin == refill_at;
    if (start.has_value()) {
      // What was launched while its predecessor ran has not run meanwhile.
      const Time end = now();
      const std::chrono::nanoseconds elapsed = end - std::max(*start, last_finish);
      last_finish = end;
      attempt([&] {
        static base::Metric& time = base::metric("ExecuteTime");
        time.record(static_cast<double>(elapsed.count()));
      });
      seconds = std::chrono::duration<double>(elapsed).count();
      mean_seconds += (seconds - mean_seconds) / static_cast<double>(kMaxLongLaunches);
    }
    // Who waits for the launch may end the profile then.
    attempt([&] {
      if (base::tracing_is_on()) [[unlikely]]
        trace(slot.name, seconds);
    });
    is_finished[slot.number - first_unfinished] = true;
    while (!is_finished.empty() && is_finished.front()) {
      is_finished.pop_front();
      ++first_unfinished;
    }
    is_awaited = first_unfinished >= next_goal;
    if (is_awaited) next_goal = kNoGoal;
  }
  if (makes_room) has_room.notify_one();
  if (is_awaited) finished.notify_all();
  attempt([&] { observe_execution_time(seconds); });
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
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_closing = true;
  }
  state_->submitted.notify_one();
  wait_idle();
  std::thread thread;
  {
    const std::lock_guard lock(state_->mutex);
    thread = std::move(state_->thread);
  }
  if (thread.joinable()) thread.join();
}

bool LaunchQueue::runs_what_was_interrupted() const {
  const std::lock_guard lock(state_->mutex);
  for (const std::shared_ptr<Place::Slot>& slot : state_->launched) {
    if (slot->number != state_->first_unfinished) continue;
    return slot->interruptions < num_interruptions();
  }
  return false;
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
  // Before this waits: an interruption must not take the launch with it.
  std::unique_lock lock(state_->mutex);
  const std::shared_ptr<Place::Slot> slot = std::move(place.slot_);
  slot->start = std::move(start);
  slot->name = std::move(name);
  slot->is_settled = true;
  const std::uint64_t limit = state_->limit();
  const bool is_full = slot->number >= state_->first_unfinished + limit;
  lock.unlock();
  state_->submitted.notify_one();
  if (!is_full) return;
  // Until half of them are done: the next steps are then recorded in a row, which on a busy machine
  // takes half the time of as many that find their caches cold.
  lock.lock();
  state_->await(lock, slot->number - std::max<std::uint64_t>(limit / 2, 1) + 1);
}

void LaunchQueue::wait_idle() {
  std::unique_lock lock(state_->mutex);
  state_->await(lock, state_->num_reserved);
  state_->forget_finished(lock);
}

}  // namespace torch_xla::runtime

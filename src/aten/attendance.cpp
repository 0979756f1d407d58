// A member that is at a place has set a key of its own in the group's store. Whoever asks the store
// is a thread that nobody has to wait for: c10d has no limit for most of what a store is asked.
#include "aten/attendance.h"

#include <algorithm>
#include <condition_variable>
#include <future>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/settings.h"
#include "base/shape.h"

namespace torch_xla::aten {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kAnswerLimit{2000};
constexpr milliseconds kPollInterval{50};
// Whoever is in an exchange for so long says so to the others. Who warns gives them that time.
constexpr milliseconds kLong{2500};
constexpr const char* kWaiting = "waiting";

// On a thread that nobody waits for longer than the limit: nothing if it takes longer, or fails.
template <typename Function>
auto bounded(milliseconds limit, Function function) -> std::optional<decltype(function())> {
  try {
    std::packaged_task<decltype(function())()> task(std::move(function));
    auto answer = task.get_future();
    std::thread(std::move(task)).detach();
    if (answer.wait_for(limit) != std::future_status::ready) return std::nullopt;
    return answer.get();
  } catch (const std::exception&) {  // the store has gone, or there are no threads
    return std::nullopt;
  }
}

std::string key_of(const Exchange& exchange, const std::string& place, std::size_t rank) {
  return base::str(place, "/", exchange.number, "/", rank);
}

void announce(const Exchange& exchange, const std::string& place) {
  exchange.store->set(key_of(exchange, place, exchange.place), "here");
}

// Appends the places, from `first` on, of the keys that are not set. Asks for many at a time.
void append_unset(c10d::Store& store, std::span<const std::string> keys, std::size_t first,
                  std::vector<std::size_t>& unset) {
  if (store.check({keys.begin(), keys.end()})) return;
  if (keys.size() == 1) return unset.push_back(first);
  const std::size_t half = keys.size() / 2;
  append_unset(store, keys.first(half), first, unset);
  append_unset(store, keys.subspan(half), first + half, unset);
}

std::vector<std::int64_t> ask(const Exchange& exchange, const std::string& place,
                              milliseconds grace) {
  announce(exchange, place);
  std::vector<std::string> keys;
  for (std::size_t rank = 0; rank < exchange.members->size(); ++rank) {
    keys.push_back(key_of(exchange, place, rank));
  }
  const auto deadline = steady_clock::now() + grace;
  while (!exchange.store->check(keys) && steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kPollInterval);
  }
  std::vector<std::size_t> unset;
  append_unset(*exchange.store, keys, 0, unset);
  std::vector<std::int64_t> absent;
  for (const std::size_t rank : unset) absent.push_back((*exchange.members)[rank]);
  return absent;
}

std::string spoken(const std::optional<std::vector<std::int64_t>>& absent) {
  if (!absent.has_value()) return "the job's store does not answer who has not come";
  if (absent->empty()) return "to which all have come";
  return base::str("to which rank ", joined(*absent), " has not come");
}

}  // namespace

std::string joined(const std::vector<std::int64_t>& ranks) {
  std::string text;
  for (const std::int64_t rank : ranks) text += base::str(text.empty() ? "" : ", ", rank);
  return text;
}

std::optional<std::vector<std::int64_t>> absent_members(const Exchange& exchange,
                                                        const std::string& place,
                                                        milliseconds grace) {
  return bounded(grace + kAnswerLimit, [=] { return ask(exchange, place, grace); });
}

struct WatchedExchange::Progress {
  explicit Progress(const Exchange& of) : exchange(of) {}

  std::mutex mutex;
  std::condition_variable ended;
  bool has_ended = false;  // under mutex
  const Exchange exchange;

  // Whether it ends before that.
  bool ends_by(steady_clock::time_point time) {
    std::unique_lock lock(mutex);
    return ended.wait_until(lock, time, [this] { return has_ended; });
  }

  void warn(std::chrono::seconds patience) {
    const auto absent = absent_members(exchange, kWaiting, kLong + std::chrono::seconds(1));
    if (ends_by(steady_clock::now())) return;
    static base::Counter& slow = base::counter("SlowExchange");
    slow.add();
    base::warn(base::str("a thread has waited ", patience.count(), " s for ", exchange.op,
                         " of ranks ", base::to_string(*exchange.members), ", ", spoken(absent),
                         ", and goes on waiting (XLA_WAIT_WARNING=0 silences this)"));
  }

  // On a thread of its own, from the time on when the exchange is a long one.
  void follow(steady_clock::time_point warned_at, std::chrono::seconds patience) {
    bounded(kAnswerLimit, [watched = exchange] {
      announce(watched, kWaiting);
      return true;
    });
    if (!ends_by(warned_at)) warn(patience);
    {
      std::unique_lock lock(mutex);
      ended.wait(lock, [this] { return has_ended; });
    }
    bounded(kAnswerLimit, [watched = exchange] {
      return watched.store->deleteKey(key_of(watched, kWaiting, watched.place));
    });
  }
};

WatchedExchange::WatchedExchange(const Exchange& exchange) {
  const std::chrono::seconds patience(base::settings().wait_warning());
  if (patience.count() <= 0) return;
  progress_ = std::make_shared<Progress>(exchange);
  const milliseconds after = std::min<milliseconds>(kLong, patience / 2);
  const auto warned_at = steady_clock::now() + patience;
  wait_.emplace(after, [progress = progress_, warned_at, patience] {
    std::thread([=] {
      try {
        progress->follow(warned_at, patience);
      } catch (const std::exception&) {
        // Memory has ended: it goes on waiting unseen.
      }
    }).detach();
  });
}

WatchedExchange::~WatchedExchange() {
  if (progress_ == nullptr) return;
  wait_.reset();
  const std::lock_guard lock(progress_->mutex);
  progress_->has_ended = true;
  progress_->ended.notify_all();
}

namespace {

// After an exchange that failed: which members have not failed in it too, a moment later. They have
// ended, or are elsewhere in their program.
std::string describe_missing(const Exchange& exchange) {
  const auto missing = absent_members(exchange, "failed", std::chrono::seconds(2));
  if (!missing.has_value() || missing->empty()) return {};
  return base::str("; rank ", joined(*missing), " did not come: it has ended, or is elsewhere");
}

}  // namespace

void watch(const Exchange& exchange, const std::function<void()>& function) {
  try {
    std::optional<WatchedExchange> watched;
    if (exchange.is_of_all) watched.emplace(exchange);
    function();
  } catch (const base::Error&) {
    throw;
  } catch (const std::exception& error) {
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    base::fail(base::ErrorKind::kRuntime, exchange.op, " of ranks ",
               base::to_string(*exchange.members), ": ",
               torch_error != nullptr ? torch_error->what_without_backtrace() : error.what(),
               exchange.is_of_all ? describe_missing(exchange) : "");
  }
}

}  // namespace torch_xla::aten

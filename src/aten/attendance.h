// Who of a group has come to an exchange: members say so to each other by the group's store, when
// one of them waits for long or has failed.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/watched_wait.h"

namespace torch_xla::aten {

// An exchange of this process: the `number`-th of its group, on each member alike.
struct Exchange {
  c10::intrusive_ptr<c10d::Store> store;                     // the group's
  std::size_t place = 0;                                     // of this member among the members
  std::shared_ptr<const std::vector<std::int64_t>> members;  // their ranks in the job
  std::string op;
  bool is_of_all = true;  // the members
  std::int64_t number = 0;
};

// Says that this member has come to `place` ("waiting", "failed") in the exchange, and returns the
// ranks in the job of those that have not said so when `grace` has passed; none as soon as all
// have. Blocks for two seconds more than that at most: nothing is returned when the store does not
// answer. Does not throw.
std::optional<std::vector<std::int64_t>> absent_members(const Exchange& exchange,
                                                        const std::string& place,
                                                        std::chrono::milliseconds grace);

// "1, 3".
std::string joined(const std::vector<std::int64_t>& ranks);

// While it lives, the calling thread is in the exchange. When that has taken XLA_WAIT_WARNING
// seconds, a warning names the members that have not come, once. The store is asked in exchanges of
// seconds alone, on a thread of its own.
class WatchedExchange {
 public:
  explicit WatchedExchange(const Exchange& exchange);
  ~WatchedExchange();
  WatchedExchange(const WatchedExchange&) = delete;
  WatchedExchange& operator=(const WatchedExchange&) = delete;

 private:
  struct Progress;
  std::shared_ptr<Progress> progress_;  // with the thread that asks, which may outlive this
  std::optional<runtime::WatchedWait> wait_;
};

// Runs `function`, which may wait for others in the exchange. What it throws says which that was,
// and who has not come to it.
void watch(const Exchange& exchange, const std::function<void()>& function);

}  // namespace torch_xla::aten

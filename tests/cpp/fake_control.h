// What tests control of the fake plugin, and what they may count.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "pjrt_c_api.h"

namespace fake {

struct Status {
  PJRT_Error_Code code;
  std::string message;
};

struct Control {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, Status> failures;
  std::map<std::string, int> hanging;  // with how many calls still pass
  std::map<std::string, int> waiting;
  std::map<std::string, int> calls;
  std::map<std::string, int> live;
  bool is_async = false;
  bool mismatches_pass = false;
  int releases = 0;  // how often tests let go of all that hangs

  void count_live(const char* kind, int change) {
    const std::lock_guard lock(mutex);
    live[kind] += change;
  }
  // Counts the call, blocks while it is to hang, and then says whether it is to fail.
  std::optional<Status> enter(const std::string& call) {
    std::unique_lock lock(mutex);
    ++calls[call];
    const auto passes = [&] {
      const auto found = hanging.find(call);
      if (found == hanging.end()) return true;
      if (found->second == 0) return false;
      --found->second;
      return true;
    };
    ++waiting[call];
    changed.wait(lock, passes);
    --waiting[call];
    const auto failure = failures.find(call);
    return failure != failures.end() ? std::optional(failure->second) : std::nullopt;
  }
};

// Hidden, because the linker would merge the state of all loaded copies of the library into one.
__attribute__((visibility("hidden"))) inline Control& control() {
  static auto& instance = *new Control;
  return instance;
}

[[noreturn]] inline void fail(PJRT_Error_Code code, std::string message) {
  throw Status{code, std::move(message)};
}

[[noreturn]] inline void fail_argument(std::string message) {
  fail(PJRT_Error_Code_INVALID_ARGUMENT, std::move(message));
}

}  // namespace fake

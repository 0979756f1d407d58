// Where the launches of several devices meet: each brings something and gets what all have brought.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "fake_control.h"
#include "fake_values.h"

namespace fake {

// What one device brings: its values, and in words what it believes to take part in.
struct Contribution {
  std::string what;
  std::vector<Value> values;
};

class Meetings {
 public:
  using Contributions = std::map<int, Contribution>;  // by member

  // Blocks until `size` members have come to the meeting `key`, each under its own number. Throws
  // DEADLINE_EXCEEDED if the test lets go of it first, and INVALID_ARGUMENT if the members do not
  // take part in the same, unless the test wants that to pass.
  std::shared_ptr<const Contributions> meet(const std::string& key, std::size_t size, int member,
                                            Contribution own) {
    std::unique_lock lock(control().mutex);
    std::shared_ptr<Contributions>& entered = open_[key];
    if (entered == nullptr) entered = std::make_shared<Contributions>();
    const std::shared_ptr<Contributions> meeting = entered;
    if (!meeting->emplace(member, std::move(own)).second) {
      fail(PJRT_Error_Code_INTERNAL, "device " + std::to_string(member) + " meets itself");
    }
    if (meeting->size() == size) {
      open_.erase(key);
      if (!agree(*meeting)) ++control().calls["Mismatch"];
      control().changed.notify_all();
    } else {
      await(lock, key, *meeting, size);
    }
    if (!agree(*meeting) && !control().mismatches_pass) {
      fail_argument("collectives that differ have met: " + describe(*meeting));
    }
    return meeting;
  }

 private:
  void await(std::unique_lock<std::mutex>& lock, const std::string& key,
             const Contributions& meeting, std::size_t size) {
    const int releases = control().releases;
    ++control().waiting["Meeting"];
    control().changed.wait(
        lock, [&] { return meeting.size() == size || control().releases != releases; });
    --control().waiting["Meeting"];
    if (meeting.size() == size) return;
    const auto found = open_.find(key);
    if (found != open_.end() && found->second.get() == &meeting) open_.erase(found);
    fail(PJRT_Error_Code_DEADLINE_EXCEEDED,
         "of " + std::to_string(size) +
             " devices that must meet only these came: " + describe(meeting));
  }

  static bool agree(const Contributions& meeting) {
    for (const auto& [member, contribution] : meeting) {
      if (contribution.what != meeting.begin()->second.what) return false;
    }
    return true;
  }

  static std::string describe(const Contributions& meeting) {
    std::string result;
    for (const auto& [member, contribution] : meeting) {
      result +=
          (result.empty() ? "" : "; ") + contribution.what + " on device " + std::to_string(member);
    }
    return result;
  }

  std::map<std::string, std::shared_ptr<Contributions>> open_;  // guarded by control().mutex
};

}  // namespace fake

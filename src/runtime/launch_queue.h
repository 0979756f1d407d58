// The order in which a device's programs are launched, and the thread that launches them. A launch
// may block (a cheap program runs inline, queues fill up), so it happens neither under a lock nor
// on the thread that records.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "pjrt/event.h"

namespace torch_xla::runtime {

// First in, first out, in the order of `reserve`. All methods are thread-safe.
class LaunchQueue {
 public:
  // Launches; returns the events of its completion, one for each device it runs on, or none when it
  // failed. Must not throw. It is destroyed after the launch has been executed: before a later one,
  // or by who waits for it.
  using Start = std::function<std::vector<pjrt::Event>()>;

  // A place in the queue. Places behind it wait until it is submitted or destroyed.
  class Place {
   public:
    Place() = default;
    Place(Place&&) noexcept = default;
    Place& operator=(Place&& other) noexcept;
    ~Place() { release(); }

   private:
    friend class LaunchQueue;
    struct Slot;
    void release() noexcept;
    LaunchQueue* queue_ = nullptr;
    std::shared_ptr<Slot> slot_;
  };

  // `line` is what a trace calls the queue's device.
  explicit LaunchQueue(std::string line = {});
  ~LaunchQueue() { close(); }
  LaunchQueue(const LaunchQueue&) = delete;
  LaunchQueue& operator=(const LaunchQueue&) = delete;

  // Never blocks. Taken under the recording lock: what is launched later may depend on it. Throws
  // when the queue is closed.
  Place reserve();
  // Fills in the place; `start` is called on the queue's thread when its turn has come. Then blocks
  // while as many launches before it as XLA_MAX_INFLIGHT_LAUNCHES are unfinished: hold no lock.
  // `name` is what a trace calls the launch. All waits are interruptible, and what was submitted
  // stays so.
  void submit(Place place, Start start, std::string name = {});
  // Blocks until everything reserved so far has been executed, well or not.
  void wait_idle();
  // Waits for what was submitted and ends the thread. Nothing can be reserved after; places that
  // were reserved and not submitted are given up. May be called again after an interruption.
  void close();
  // Whether the launch that is waited for first was there before the last interruption.
  bool runs_what_was_interrupted() const;

 private:
  struct State;
  std::shared_ptr<State>
      state_;  // shared with the completion callbacks, which run on plugin threads
};

}  // namespace torch_xla::runtime

// An array on a device: what a leaf of the graph holds. It has a shape, a sharding, and a buffer on
// each of the devices that its `Device` stands for. It exists before its value does: a barrier
// makes the arrays of its results at once, and the launch that computes them fills them in later.
// Next: `sharding.h` for how it lies, `launch_queue.h` for how launches run, `executor.h` for who
// makes them, `array_host.cpp` for the ways from and to the host.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/sharding.h"
#include "graph/node.h"
#include "graph/walk.h"
#include "pjrt/buffer.h"
#include "pjrt/device.h"

namespace torch_xla::runtime {

class ArrayList;
class Device;
struct Origin;
using OriginPtr = std::shared_ptr<const Origin>;

// What an error of asynchronous work says about the program that failed. Shared by its outputs.
struct LaunchDescription {
  std::string program;  // "graph 1f0c..., 120 operations"
  std::string where;    // the user's line of the barrier or read, or empty
  std::size_t num_outputs = 0;
  std::size_t num_donated = 0;  // inputs whose memory was handed over
  std::size_t num_kept = 0;     // after a failure: inputs to be replaced that are as before
  bool can_run_again = false;   // after a failure: nothing has run, so a read may try (origin.h)
};
using LaunchDescriptionPtr = std::shared_ptr<const LaunchDescription>;

// A copy to the host that has been started. It writes to the destination until it has ended.
class HostCopy {
 public:
  HostCopy() = default;
  HostCopy(HostCopy&&) noexcept = default;
  HostCopy& operator=(HostCopy&&) = delete;
  ~HostCopy();
  // Blocks until it has ended, well or not; throws pjrt::Error. Not interruptible.
  void await();

 private:
  friend class Array;
  // What can't be copied to its place in one piece.
  struct Part {
    std::vector<char> bytes;
    base::Shape local_shape;
    base::Slice slice;
  };
  void await_events();

  const class Array* array_ = nullptr;
  void* destination_ = nullptr;
  std::vector<pjrt::Event> events_;
  std::vector<Part> parts_;
};

// Where a failed array would have come from: which of the results of what.
struct ResultOf {
  OriginPtr of;  // null if it can't be computed
  graph::Source root;
};

// Thread-safe. Pending until its launch has started, then launched (the buffer exists, its value
// may be on its way) or failed; a launched one never changes after that. No method holds a lock
// while it waits. What throws the error of a failed array has first given the device's tensors back
// what they were before (`recovery.h`), for which it takes the recording lock. Once the error has
// been thrown, whoever waits for the value computes it if that can be (`origin.h`).
class Array final : public graph::Data {
 public:
  // Whole on each of the device's devices, unless it says otherwise.
  static std::shared_ptr<Array> make_pending(Device& device, base::Shape shape);
  static std::shared_ptr<Array> make_pending(Device& device, base::Shape shape,
                                             const base::Sharding* sharding);
  // For a transfer; a buffer for each device.
  static std::shared_ptr<Array> make_launched(Device& device, std::vector<pjrt::Buffer> buffers,
                                              base::Shape shape, const base::Sharding* sharding);
  // Of the host's memory, dense and row-major: each device gets its part. With `copy_during_call`
  // the memory is free when this returns; else it must stay as it is until `wait_ready` has.
  static std::shared_ptr<Array> upload(Device& device, const void* data, base::Shape shape,
                                       const base::Sharding* sharding,
                                       bool copy_during_call = true);
  ~Array() override;

  Device& device() const { return *device_; }
  // Null on a device that is one device.
  const base::Sharding* sharding() const { return sharding_; }
  // Of all its buffers.
  std::int64_t num_bytes() const;
  // Whether the devices of this process hold all of it, so that it can be read.
  bool is_complete() const;

  // The user's line that made it, as far as it is known. Set before other threads see the array.
  void set_location(graph::Location location) {
    location_.store(location, std::memory_order_relaxed);
  }
  graph::Location location() const { return location_.load(std::memory_order_relaxed); }

  // Blocks until the buffer exists; throws if the launch failed. Both waits are interruptible.
  void wait_launched();
  // Blocks until the value exists; throws if it could not be computed.
  void wait_ready();
  // True when the value exists or never will. Never blocks.
  bool is_ready() const;
  bool is_pending() const { return state_.load(std::memory_order_acquire) <= kKeeping; }
  // True when its launch could not be started.
  bool is_failed() const { return state_.load(std::memory_order_acquire) == kFailed; }
  // Why; null unless it failed. To look is not to report it.
  std::exception_ptr error() const { return is_failed() ? error_ : nullptr; }
  // What computes it, if it failed and that can be.
  ResultOf origin() const;
  // Its error has been thrown, if it failed: from now on it is computed when it is waited for.
  void set_raised() { is_raised_.store(true); }
  bool can_be_revived() const { return is_failed() && is_raised_.load() && origin().of != nullptr; }
  // A failed array takes the value of another one, which is launched and nobody else's.
  void become(Array& computed);
  // Blocks until it has been launched or has failed; returns the error.
  std::exception_ptr await_launch() const;
  // The memory, after `wait_launched`: a buffer on each device, in their order. Valid as long as
  // the array. Of an array with room behind its elements a copy without, for which this may block.
  const std::vector<pjrt::Buffer>& buffers() const;
  // What its memory has room for, at least its shape: its elements come first along each dimension.
  // The results of bounded programs (ops/bounded.h) have room. After `wait_launched`.
  base::Shape memory_shape() const { return {shape().dtype, room_.empty() ? shape().dims : room_}; }
  bool has_room() const { return !room_.empty(); }
  // The memory as it is.
  const std::vector<pjrt::Buffer>& memory() const { return buffers_; }
  // Another copy of the value, with that room, on a device that is one device. After
  // `wait_launched`. May block.
  pjrt::Buffer copy_with_room(const base::Dims& room) const;
  // Starts to put the value together in `destination`, dense and row-major, which must hold
  // `shape().num_bytes()`. After `wait_ready`. Throws pjrt::Error.
  HostCopy download(void* destination) const;

  // The user wants programs to reuse its memory although tensors hold it (`donors_are_used`).
  void set_donor(bool is_donor) { is_donor_.store(is_donor); }
  bool is_donor() const { return is_donor_.load(); }
  // The next launch that may reuse its memory does, whoever holds it.
  void give_away() { is_given_away_.store(true); }
  void take_back() { is_given_away_.store(false); }
  bool is_given_away() const { return is_given_away_.load(); }
  // A launch has taken its memory for a result, where it counts from now on.
  void set_taken();

  // What a launch passes to the plugin for its device in this place, with its room; a donation
  // takes the memory away.
  pjrt::Buffer* launch_argument(std::size_t place) { return &buffers_[place]; }

  // Once, by whoever was to make the value. `room` is empty if there is none behind it.
  void set_launched(std::vector<pjrt::Buffer> buffers, LaunchDescriptionPtr launch,
                    base::Dims room = {});
  void set_failed(std::exception_ptr error, ResultOf origin = {});
  // As `upload` of a pending array, with the memory copied during the call.
  void set_uploaded(const void* data);

  // What the alias with this number stood for before it stood for this array, which keeps it until
  // it has been launched. Nothing is kept of an array that has been.
  void add_replaced(std::uint64_t alias, graph::DataPtr before);
  // That, or null; it is kept no longer.
  graph::DataPtr take_replaced(std::uint64_t alias);

  // Throws `error`, which the plugin reported about this array, as the error of its program.
  [[noreturn]] void raise(const pjrt::Error& error) const;

 private:
  friend class ArrayList;
  // A pending array keeps what it replaces in the second of these states.
  enum State : int { kPending, kKeeping, kLaunched, kFailed };

  Array(Device& device, base::Shape shape, const base::Sharding* sharding);
  bool holds_memory() const;
  const std::vector<pjrt::Buffer>& buffers_without_room() const;
  void await_state() const;
  void await_value() const;    // of one that has been launched
  int set_state(State state);  // gives the state before
  // Its type, device and line, for messages.
  std::string description() const;

  Device* device_;
  const base::Sharding* sharding_;
  std::atomic<graph::Location> location_{0};  // lists of what is alive read it at any time
  std::atomic<bool> is_donor_{false};
  std::atomic<bool> is_given_away_{false};
  std::atomic<bool> is_taken_{false};
  // Somebody waits interruptibly for the launch.
  mutable std::atomic<bool> is_awaited_{false};
  std::atomic<int> state_{kPending};
  // Written before `state_` leaves kPending, read after.
  std::vector<pjrt::Buffer> buffers_;
  base::Dims room_;  // if it isn't the shape's
  LaunchDescriptionPtr launch_;
  std::exception_ptr error_;
  ResultOf origin_;  // under the mutex of what is replaced
  std::atomic<bool> is_raised_{false};
  // Of an array with room, once someone asked: under a mutex of array_host.cpp.
  mutable std::vector<pjrt::Buffer> without_room_;
  // By the numbers of aliases, under a mutex of array.cpp.
  std::vector<std::pair<std::uint64_t, graph::DataPtr>> replaced_;
  // In the device's list of arrays, under its mutex.
  Array* previous_ = nullptr;
  Array* next_ = nullptr;
};
using ArrayPtr = std::shared_ptr<Array>;

// Null for null, and for what stands for an array in a function that is being captured.
Array* as_array(const graph::DataPtr& data);

// The error that all outputs of a failed launch report: of the kind of `error`, naming the program
// and what was lost.
std::exception_ptr launch_error(const LaunchDescription& launch, const std::exception_ptr& error);

// What fills the device's memory, as lines of text, for an error about it.
std::string describe_memory(Device& device);
// The error, and if memory ran out what it is full of.
std::exception_ptr with_memory(Device& device, const base::Error& error);

// An array in memory.
struct LiveArray {
  base::Shape shape;
  std::int64_t num_bytes = 0;
  // The line that made it ("train.py:12"), else that of the barrier or read that computed it.
  std::string where;
};

// The arrays of one device: how much memory they take, and what a shutdown frees although users
// still hold it. A pending array takes none yet. Thread-safe.
class ArrayList {
 public:
  // Of all arrays in memory, now and at most so far.
  std::int64_t num_bytes() const { return num_bytes_.load(std::memory_order_relaxed); }
  std::int64_t peak_num_bytes() const { return peak_num_bytes_.load(std::memory_order_relaxed); }
  void reset_peak() { peak_num_bytes_.store(num_bytes()); }
  // The largest first.
  std::vector<LiveArray> list();

  void count(std::int64_t num_bytes);
  void add(Array& array);
  void remove(Array& array);
  // Copies every array, which must be on the first of the devices, to the others. No one may use an
  // array meanwhile. Throws base::Error if one is still to be computed.
  void spread(const std::vector<pjrt::Device*>& devices, const base::Sharding* whole);
  // Makes every array a failed one with `error`. No one may use an array meanwhile.
  void release_all(const std::exception_ptr& error);

 private:
  std::mutex mutex_;
  Array* first_ = nullptr;  // under mutex_
  std::atomic<std::int64_t> num_bytes_{0};
  std::atomic<std::int64_t> peak_num_bytes_{0};
};

}  // namespace torch_xla::runtime

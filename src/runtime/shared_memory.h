// Memory that a device and host code use in place, where the device's memory is the host's: arrays
// shown to the host, and host memory shown as arrays. What dlpack needs.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>

#include "pjrt/buffer.h"
#include "runtime/array.h"

namespace torch_xla::runtime {

class SharedMemory;

// What is shared of one device's arrays. Thread-safe.
class SharedMemories {
 public:
  // Before the arrays' memory is given back at a shutdown.
  void end_all();

 private:
  friend class SharedMemory;
  std::mutex mutex_;
  std::set<SharedMemory*> all_;  // under mutex_
};

// True if arrays of the device lie in host memory, and in one piece.
bool shares_host_memory(Device& device);

// An array's memory. While this lives it stays where it is, and no program writes to it. A shutdown
// ends all of them: the memory is gone then.
class SharedMemory {
 public:
  // Blocks until the value is there; throws if it could not be computed.
  explicit SharedMemory(ArrayPtr array);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  void* data() const { return data_; }

 private:
  friend class SharedMemories;

  SharedMemories& list() const;

  ArrayPtr array_;
  std::unique_ptr<pjrt::ExternalReference>
      reference_;  // null after the end; under the list's mutex
  void* data_ = nullptr;
};

// An array of the host's memory, dense and row-major, which must stay as it is until `on_delete` is
// called, on any thread. Null if the plugin can't use it where it lies.
ArrayPtr adopt_memory(Device& device, void* data, base::Shape shape,
                      std::function<void()> on_delete);

}  // namespace torch_xla::runtime

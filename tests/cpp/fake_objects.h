// What the fake plugin (fake_plugin.cpp) is made of: streams of work, device memory, and the
// objects behind the opaque types of the C API.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fake_compile_options.h"
#include "fake_control.h"
#include "fake_meetings.h"
#include "fake_program.h"
#include "pjrt_c_api.h"

namespace fake {

enum class Kind { kClient, kBuffer, kExecutable, kEvent, kError };

constexpr const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::kClient: return "client";
    case Kind::kBuffer: return "buffer";
    case Kind::kExecutable: return "executable";
    case Kind::kEvent: return "event";
    case Kind::kError: return "error";
  }
  return "";
}

// Counts an object of a C type while it exists.
template <Kind kKind>
struct Counted {
  Counted() { control().count_live(name_of(kKind), 1); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() { control().count_live(name_of(kKind), -1); }
};

}  // namespace fake

// ---- The objects behind the C API's opaque types.

struct PJRT_Error : fake::Counted<fake::Kind::kError> {
  explicit PJRT_Error(fake::Status the_status) : status(std::move(the_status)) {}
  fake::Status status;
};

namespace fake {

// The end of some work: waited for, or called back about. Shared by events and buffers.
class Completion {
 public:
  void complete(std::optional<Status> error) {
    std::vector<std::function<void()>> callbacks;
    {
      const std::lock_guard lock(mutex_);
      error_ = std::move(error);
      is_done_ = true;
      callbacks.swap(callbacks_);
    }
    done_.notify_all();
    for (const auto& callback : callbacks) callback();
  }
  std::optional<Status> wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return is_done_; });
    return error_;
  }
  bool is_done() {
    const std::lock_guard lock(mutex_);
    return is_done_;
  }
  void then(std::function<void()> callback) {
    {
      const std::lock_guard lock(mutex_);
      if (!is_done_) {
        callbacks_.push_back(std::move(callback));
        return;
      }
    }
    callback();
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  bool is_done_ = false;
  std::optional<Status> error_;
  std::vector<std::function<void()>> callbacks_;
};

inline std::shared_ptr<Completion> completed(std::optional<Status> error = std::nullopt) {
  auto completion = std::make_shared<Completion>();
  completion->complete(std::move(error));
  return completion;
}

// Work in order, on a thread of its own or inside add().
class Stream {
 public:
  explicit Stream(bool is_async) {
    if (is_async) thread_ = std::thread([this] { run(); });
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (!thread_.joinable()) return;
    add([this] { is_stopping_ = true; });
    thread_.join();
  }
  void add(std::function<void()> task) {
    if (!thread_.joinable()) {
      task();
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    added_.notify_one();
  }

 private:
  void run() {
    while (!is_stopping_) {
      std::unique_lock lock(mutex_);
      added_.wait(lock, [&] { return !tasks_.empty(); });
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::function<void()>> tasks_;
  bool is_stopping_ = false;  // only touched by the thread
  std::thread thread_;
};

// Memory of a device: our own, or borrowed from the caller until `release`.
struct Storage {
  Storage(std::atomic<std::int64_t>& the_counter, std::size_t size)
      : counter(the_counter), own(size), data(own.data()) {
    counter += static_cast<std::int64_t>(own.size());
  }
  Storage(std::atomic<std::int64_t>& the_counter, void* borrowed, std::function<void()> on_release)
      : counter(the_counter), data(static_cast<char*>(borrowed)), release(std::move(on_release)) {}
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage() {
    counter -= static_cast<std::int64_t>(own.size());
    if (release) release();
  }

  std::atomic<std::int64_t>& counter;
  fake::Bytes own;
  char* data;
  std::function<void()> release;
};

}  // namespace fake

struct PJRT_Event : fake::Counted<fake::Kind::kEvent> {
  explicit PJRT_Event(std::shared_ptr<fake::Completion> c) : completion(std::move(c)) {}
  std::shared_ptr<fake::Completion> completion;
};

struct PJRT_Memory {
  PJRT_Device* device = nullptr;
};

struct PJRT_DeviceDescription {
  int id = 0;
  int process_index = 0;
  std::string text;
};

struct PJRT_Device {
  PJRT_Device(int id, int process_index, bool is_async) : stream(is_async) {
    description.id = id;
    description.process_index = process_index;
    description.text = "FakeDevice(id=" + std::to_string(id) + ")";
    memory.device = this;
  }
  PJRT_DeviceDescription description;
  PJRT_Memory memory;
  PJRT_Memory* memories[1] = {&memory};
  std::atomic<std::int64_t> bytes_in_use{0};
  fake::Stream stream;  // last: its thread uses the rest
};

struct PJRT_Client : fake::Counted<fake::Kind::kClient> {
  std::string platform_version = "fake 1.0";
  int process_index = 0;
  std::shared_ptr<fake::Meetings> meetings;  // before the devices, whose threads use it
  std::vector<std::unique_ptr<PJRT_Device>> owned;
  std::vector<PJRT_Device*> devices;
  std::vector<PJRT_Device*> addressable_devices;

  bool owns(const PJRT_Device* device) const {
    return device->description.process_index == process_index;
  }
};

struct PJRT_Buffer : fake::Counted<fake::Kind::kBuffer> {
  PJRT_Device* device = nullptr;
  fake::ArrayType type;
  std::shared_ptr<fake::Completion> ready;
  std::mutex mutex;
  std::shared_ptr<fake::Storage> storage;  // guarded by mutex; null: deleted
  int external_references = 0;             // guarded by mutex
  // Of a donated buffer: the launch that takes it has begun. Guarded by mutex.
  std::shared_ptr<fake::Completion> taken;

  std::shared_ptr<fake::Storage> live_storage() {
    const std::lock_guard lock(mutex);
    if (storage == nullptr) fake::fail_argument("Buffer has been deleted or donated.");
    return storage;
  }
  void drop() {
    std::shared_ptr<fake::Storage> dropped;  // freed outside the lock: it may call back
    const std::lock_guard lock(mutex);
    dropped.swap(storage);
  }
  void donate(std::shared_ptr<fake::Completion> launch_has_begun) {
    drop();
    const std::lock_guard lock(mutex);
    taken = std::move(launch_has_begun);
  }
  // Like XLA's CPU plugin, blocks until the donation is complete.
  void wait_taken() {
    std::unique_lock lock(mutex);
    const std::shared_ptr<fake::Completion> awaited = taken;
    lock.unlock();
    if (awaited != nullptr) awaited->wait();
  }
};

// A program compiled for some devices. Sharded, its parameters and results are divided among the
// partitions.
namespace fake {
struct Compiled {
  std::shared_ptr<const Program> program;
  CompileOptions options;
  std::string serialized_options;

  Part parameter_part(std::size_t i, int partition) const {
    return part(program->parameters()[i], program->parameter_shardings()[i], partition);
  }
  Part result_part(std::size_t i, int partition) const {
    return part(program->results()[i], program->result_shardings()[i], partition);
  }

 private:
  Part part(const ArrayType& type, const Sharding& sharding, int partition) const {
    return part_of(type, options.use_spmd_partitioning ? sharding : Sharding{}, partition);
  }
};
}  // namespace fake

struct PJRT_Executable : fake::Counted<fake::Kind::kExecutable>, fake::Compiled {
  std::string fingerprint;
  std::vector<PJRT_Buffer_Type> output_types;
  std::vector<std::int64_t> output_dims;
  std::vector<std::size_t> output_ranks;
  PJRT_NamedValue cost[1];
};

struct PJRT_LoadedExecutable : fake::Counted<fake::Kind::kExecutable>, fake::Compiled {
  PJRT_Client* client = nullptr;
  std::vector<PJRT_Device*> devices;  // [replica][partition]; of a portable one the first
  std::vector<PJRT_Device*> addressable_devices;
};

struct PJRT_SerializedExecutable {
  std::string bytes;
};

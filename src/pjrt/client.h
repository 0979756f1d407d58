// A client: the connection to a plugin's devices, which compiles programs and makes buffers.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"
#include "pjrt/buffer.h"
#include "pjrt/compile_options.h"
#include "pjrt/device.h"
#include "pjrt/executable.h"
#include "pjrt/named_value.h"
#include "pjrt/plugin.h"

struct PJRT_Client;

namespace torch_xla::pjrt {

// Where the processes of one multi-process client meet. The callbacks are called from threads of
// the plugin, several at once. They may throw: an Error keeps its code, anything else is INTERNAL.
struct KeyValueStore {
  // Waits for the key at most `timeout`, then throws Error with DEADLINE_EXCEEDED.
  std::function<std::string(std::string_view key, std::chrono::milliseconds timeout)> get;
  // nullopt if the key is not there yet. May be empty: some plugins never call it.
  std::function<std::optional<std::string>(std::string_view key)> try_get;
  std::function<void(std::string_view key, std::string_view value)> put;
};

// How long the plugin may look at the caller's memory in buffer_from_host_buffer.
enum class HostBufferSemantics {
  // Only during the call.
  kImmutableOnlyDuringCall,
  // Until `done` is called, which is when the transfer is complete.
  kImmutableUntilTransferCompletes,
  // As long as the buffer lives, if the device can use host memory in place (a CPU can, when the
  // data lies at a 64-byte boundary); `done` is called when it no longer does.
  kImmutableZeroCopy,
  // The same, and programs may write to the memory, when the buffer is donated.
  kMutableZeroCopy,
};

// Shared: buffers and executables keep their client alive. All methods are thread-safe. Destroyed,
// it waits for the work under way, so the last reference must not be released on a thread of the
// plugin.
class Client : public std::enable_shared_from_this<Client> {
 public:
  // Throws Error if the plugin cannot start, or does not know an option. `store` is needed by
  // clients that span processes and lives as long as the client.
  static std::shared_ptr<Client> create(std::shared_ptr<const Plugin> plugin,
                                        const NamedValues& options = {},
                                        std::optional<KeyValueStore> store = std::nullopt);
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  ~Client();

  const Plugin& plugin() const { return *plugin_; }
  std::string platform_name() const;
  std::string platform_version() const;
  // Which of the processes that share the client's devices this is; 0 for a single one.
  int process_index() const;

  // All devices, those of other processes too.
  const std::vector<Device*>& devices() const { return devices_; }
  // The devices that this process can use, in the plugin's order.
  const std::vector<Device*>& addressable_devices() const { return addressable_devices_; }
  // The device with that id. Throws base::Error if there is none.
  Device* lookup_device(int id) const;
  // Device ids for a launch, [replica][partition] in row-major order.
  std::vector<int> default_device_assignment(int num_replicas, int num_partitions) const;

  // Compiles a StableHLO module given as text (or bytecode). Blocks while compiling.
  std::unique_ptr<Executable> compile(std::string_view program, const CompileOptions& options);
  // Loads what Executable::serialize gave, in a client of the same plugin version and platform.
  // Without options, those that it was compiled with hold.
  std::unique_ptr<Executable> deserialize(
      std::string_view serialized, const std::optional<CompileOptions>& options = std::nullopt);

  // Copies (or borrows, see HostBufferSemantics) an array into the memory of `device`.
  // `byte_strides` may be empty: dense, row-major. `done` may be empty; else it is called exactly
  // once, also when this throws, when the caller's memory is no longer needed: on this thread or on
  // one of the plugin's. It must not throw, block, or release the last reference to the client.
  Buffer buffer_from_host_buffer(const void* data, base::DType dtype,
                                 std::span<const std::int64_t> dims,
                                 std::span<const std::int64_t> byte_strides, Device* device,
                                 HostBufferSemantics semantics, std::function<void()> done = {});
  // A buffer over memory of the device that someone else owns, dense and row-major. `on_delete` is
  // called once, when the buffer no longer needs it, under the same rules as `done` above; it is
  // not called if this throws. `stream` is the platform's stream that produces the data, or 0.
  Buffer create_view_of_device_buffer(void* data, base::DType dtype,
                                      std::span<const std::int64_t> dims, Device* device,
                                      std::function<void()> on_delete, std::intptr_t stream = 0);

  const PJRT_Api* api() const { return plugin_->api(); }
  // The Device that stands for a plugin's device.
  Device* find_device(PJRT_Device* device) const;

 private:
  Client(std::shared_ptr<const Plugin> plugin, std::unique_ptr<KeyValueStore> store);
  void start(const NamedValues& options);
  void list_devices();

  std::shared_ptr<const Plugin> plugin_;
  std::unique_ptr<KeyValueStore> store_;
  PJRT_Client* client_ = nullptr;
  std::vector<std::unique_ptr<Device>> owned_devices_;
  std::vector<Device*> devices_;
  std::vector<Device*> addressable_devices_;
};

}  // namespace torch_xla::pjrt

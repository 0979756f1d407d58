// One device of a client: its identity and what it says of its memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pjrt/named_value.h"

struct PJRT_Api;
struct PJRT_Device;
struct PJRT_DeviceDescription;

namespace torch_xla::pjrt {

class Client;

// Bytes, unless the name says otherwise. Absent: the plugin does not say.
struct MemoryStats {
  std::int64_t bytes_in_use = 0;
  std::optional<std::int64_t> peak_bytes_in_use;
  std::optional<std::int64_t> num_allocs;
  std::optional<std::int64_t> largest_alloc_size;
  std::optional<std::int64_t> bytes_limit;
  std::optional<std::int64_t> bytes_reserved;
  std::optional<std::int64_t> peak_bytes_reserved;
  std::optional<std::int64_t> bytes_reservable_limit;
  std::optional<std::int64_t> largest_free_block_bytes;
  std::optional<std::int64_t> pool_bytes;
  std::optional<std::int64_t> peak_pool_bytes;
};

// Owned by its client and as long-lived. Immutable, hence thread-safe.
class Device {
 public:
  Device(Client& client, PJRT_Device* device, bool is_addressable);
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  Client& client() const { return *client_; }
  // Unique among the devices of all processes.
  int id() const { return id_; }
  // True if this client can send work to it; false for the devices of other processes.
  bool is_addressable() const { return is_addressable_; }
  int process_index() const;
  // The hardware's number for it, such as the CUDA ordinal; -1 if it has none.
  int local_hardware_id() const;
  // What sort of device it is: "cpu", "NVIDIA H100".
  std::string kind() const;
  std::string debug_string() const;
  // Short, for users: "CpuDevice(id=0)".
  std::string to_string() const;
  NamedValues attributes() const;
  // nullopt if the plugin does not keep such statistics.
  std::optional<MemoryStats> memory_stats() const;
  // The kind of memory in which buffers are made: "device", "unpinned_host".
  std::string default_memory_kind() const;
  // The kinds of all memories the device can reach.
  std::vector<std::string> memory_kinds() const;

  PJRT_Device* c_device() const { return device_; }

 private:
  const PJRT_Api* api() const;

  Client* client_;
  PJRT_Device* device_;
  PJRT_DeviceDescription* description_;
  int id_;
  bool is_addressable_;
};

}  // namespace torch_xla::pjrt

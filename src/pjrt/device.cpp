// What a device says of itself. Each method is one call to the plugin.
#include "pjrt/device.h"

#include "pjrt/api.h"
#include "pjrt/client.h"

namespace torch_xla::pjrt {
namespace {

PJRT_DeviceDescription* description_of(const PJRT_Api* api, PJRT_Device* device) {
  auto args = PJRT_MAKE(PJRT_Device_GetDescription_Args);
  args.device = device;
  PJRT_CALL(api, PJRT_Device_GetDescription, args);
  return args.device_description;
}

int id_of(const PJRT_Api* api, PJRT_DeviceDescription* description) {
  auto args = PJRT_MAKE(PJRT_DeviceDescription_Id_Args);
  args.device_description = description;
  PJRT_CALL(api, PJRT_DeviceDescription_Id, args);
  return args.id;
}

std::string kind_of(const PJRT_Api* api, PJRT_Memory* memory) {
  auto args = PJRT_MAKE(PJRT_Memory_Kind_Args);
  args.memory = memory;
  PJRT_CALL(api, PJRT_Memory_Kind, args);
  return std::string(args.kind, args.kind_size);
}

std::optional<std::int64_t> if_set(std::int64_t value, bool is_set) {
  return is_set ? std::optional(value) : std::nullopt;
}

}  // namespace

Device::Device(Client& client, PJRT_Device* device, bool is_addressable)
    : client_(&client),
      device_(device),
      description_(description_of(client.api(), device)),
      id_(id_of(client.api(), description_)),
      is_addressable_(is_addressable) {}

const PJRT_Api* Device::api() const { return client_->api(); }

int Device::process_index() const {
  auto args = PJRT_MAKE(PJRT_DeviceDescription_ProcessIndex_Args);
  args.device_description = description_;
  PJRT_CALL(api(), PJRT_DeviceDescription_ProcessIndex, args);
  return args.process_index;
}

int Device::local_hardware_id() const {
  auto args = PJRT_MAKE(PJRT_Device_LocalHardwareId_Args);
  args.device = device_;
  PJRT_CALL(api(), PJRT_Device_LocalHardwareId, args);
  return args.local_hardware_id;
}

std::string Device::kind() const {
  auto args = PJRT_MAKE(PJRT_DeviceDescription_Kind_Args);
  args.device_description = description_;
  PJRT_CALL(api(), PJRT_DeviceDescription_Kind, args);
  return std::string(args.device_kind, args.device_kind_size);
}

std::string Device::debug_string() const {
  auto args = PJRT_MAKE(PJRT_DeviceDescription_DebugString_Args);
  args.device_description = description_;
  PJRT_CALL(api(), PJRT_DeviceDescription_DebugString, args);
  return std::string(args.debug_string, args.debug_string_size);
}

std::string Device::to_string() const {
  auto args = PJRT_MAKE(PJRT_DeviceDescription_ToString_Args);
  args.device_description = description_;
  PJRT_CALL(api(), PJRT_DeviceDescription_ToString, args);
  return std::string(args.to_string, args.to_string_size);
}

NamedValues Device::attributes() const {
  auto args = PJRT_MAKE(PJRT_DeviceDescription_Attributes_Args);
  args.device_description = description_;
  PJRT_CALL(api(), PJRT_DeviceDescription_Attributes, args);
  return from_named_values(args.attributes, args.num_attributes);
}

std::optional<MemoryStats> Device::memory_stats() const {
  auto args = PJRT_MAKE(PJRT_Device_MemoryStats_Args);
  args.device = device_;
  try {
    PJRT_CALL(api(), PJRT_Device_MemoryStats, args);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kUnimplemented) return std::nullopt;
    throw;
  }
  MemoryStats stats;
  stats.bytes_in_use = args.bytes_in_use;
  stats.peak_bytes_in_use = if_set(args.peak_bytes_in_use, args.peak_bytes_in_use_is_set);
  stats.num_allocs = if_set(args.num_allocs, args.num_allocs_is_set);
  stats.largest_alloc_size = if_set(args.largest_alloc_size, args.largest_alloc_size_is_set);
  stats.bytes_limit = if_set(args.bytes_limit, args.bytes_limit_is_set);
  stats.bytes_reserved = if_set(args.bytes_reserved, args.bytes_reserved_is_set);
  stats.peak_bytes_reserved = if_set(args.peak_bytes_reserved, args.peak_bytes_reserved_is_set);
  stats.bytes_reservable_limit =
      if_set(args.bytes_reservable_limit, args.bytes_reservable_limit_is_set);
  stats.largest_free_block_bytes =
      if_set(args.largest_free_block_bytes, args.largest_free_block_bytes_is_set);
  stats.pool_bytes = if_set(args.pool_bytes, args.pool_bytes_is_set);
  stats.peak_pool_bytes = if_set(args.peak_pool_bytes, args.peak_pool_bytes_is_set);
  return stats;
}

std::string Device::default_memory_kind() const {
  auto args = PJRT_MAKE(PJRT_Device_DefaultMemory_Args);
  args.device = device_;
  PJRT_CALL(api(), PJRT_Device_DefaultMemory, args);
  return kind_of(api(), args.memory);
}

std::vector<std::string> Device::memory_kinds() const {
  auto args = PJRT_MAKE(PJRT_Device_AddressableMemories_Args);
  args.device = device_;
  PJRT_CALL(api(), PJRT_Device_AddressableMemories, args);
  std::vector<std::string> kinds;
  for (std::size_t i = 0; i < args.num_memories; ++i) {
    kinds.push_back(kind_of(api(), args.memories[i]));
  }
  return kinds;
}

}  // namespace torch_xla::pjrt

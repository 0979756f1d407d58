// Reads kinds, attributes and memory statistics of devices.
#include "runtime/device_info.h"

#include <optional>

#include "pjrt/device.h"
#include "pjrt/live_objects.h"
#include "runtime/client.h"
#include "runtime/kept_arguments.h"

namespace torch_xla::runtime {

std::string device_kind(int ordinal) { return device(ordinal).any_pjrt_device().kind(); }

std::map<std::string, DeviceAttribute> device_attributes(int ordinal) {
  return device(ordinal).any_pjrt_device().attributes();
}

std::map<std::string, std::int64_t> memory_stats(int ordinal) {
  forget_arguments(device(ordinal));
  std::map<std::string, std::int64_t> out;
  const auto add = [&out](const char* name, const std::optional<std::int64_t>& value) {
    if (value.has_value()) out[name] += *value;
  };
  for (const pjrt::Device* const device : runtime::device(ordinal).pjrt_devices()) {
    const std::optional<pjrt::MemoryStats> stats = device->memory_stats();
    if (!stats.has_value()) return {};
    add("bytes_in_use", stats->bytes_in_use);
    add("peak_bytes_in_use", stats->peak_bytes_in_use);
    add("num_allocs", stats->num_allocs);
    add("largest_alloc_size", stats->largest_alloc_size);
    add("bytes_limit", stats->bytes_limit);
    add("bytes_reserved", stats->bytes_reserved);
    add("peak_bytes_reserved", stats->peak_bytes_reserved);
    add("bytes_reservable_limit", stats->bytes_reservable_limit);
    add("largest_free_block_bytes", stats->largest_free_block_bytes);
    add("pool_bytes", stats->pool_bytes);
    add("peak_pool_bytes", stats->peak_pool_bytes);
  }
  return out;
}

std::int64_t live_plugin_objects() { return pjrt::live_objects().total(); }

}  // namespace torch_xla::runtime

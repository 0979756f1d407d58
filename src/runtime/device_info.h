// What the plugin says of its devices, in plain types, for users and their tools.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace torch_xla::runtime {

using DeviceAttribute =
    std::variant<std::string, bool, std::int64_t, float, std::vector<std::int64_t>>;

// All create the client, and throw if there is no device `xla:ordinal`.

// What the hardware calls itself: "cpu", "NVIDIA H100".
std::string device_kind(int ordinal);
std::map<std::string, DeviceAttribute> device_attributes(int ordinal);
// Bytes and counts by name, of all devices behind it together, `bytes_in_use` always among them;
// empty if the plugin keeps none.
std::map<std::string, std::int64_t> memory_stats(int ordinal);

// How many clients, buffers, executables and events of plugins this process holds. Makes no client.
std::int64_t live_plugin_objects();

}  // namespace torch_xla::runtime

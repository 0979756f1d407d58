// What the fake plugin reads of XLA's CompileOptionsProto: how many devices a program is for, and
// which, and the names of XLA's flags.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fake {

struct CompileOptions {
  int num_replicas = 1;
  int num_partitions = 1;
  bool is_portable = false;
  bool use_spmd_partitioning = false;
  std::vector<int> device_assignment;  // [replica][partition]; empty: the first devices
  std::vector<std::string> flags = {};

  int num_devices() const { return num_replicas * num_partitions; }
};

// The fields of a serialized protobuf, in order.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view bytes) : bytes_(bytes) {}

  // False at the end. Then `number` is the field's, and `integer` or `content` what it holds.
  bool next() {
    if (bytes_.empty()) return false;
    const std::uint64_t tag = varint();
    number = static_cast<int>(tag >> 3);
    switch (tag & 7) {
      case 0: integer = varint(); return true;
      case 1: take(8); return true;
      case 2: content = take(varint()); return true;
      case 5: take(4); return true;
      default: throw std::runtime_error("fake plugin: malformed compile options");
    }
  }
  // The integers of a packed field.
  static std::vector<int> integers(std::string_view content) {
    ProtoReader reader(content);
    std::vector<int> result;
    while (!reader.bytes_.empty()) result.push_back(static_cast<int>(reader.varint()));
    return result;
  }

  int number = 0;
  std::uint64_t integer = 0;
  std::string_view content;

 private:
  std::string_view take(std::size_t size) {
    if (size > bytes_.size()) throw std::runtime_error("fake plugin: malformed compile options");
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  std::uint64_t varint() {
    std::uint64_t result = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      if (shift < 64) result |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) break;
    }
    return result;
  }

  std::string_view bytes_;
};

// DeviceAssignmentProto lists, for each partition, the devices of its replicas.
inline std::vector<int> parse_device_assignment(std::string_view bytes) {
  std::vector<std::vector<int>> by_partition;
  for (ProtoReader field(bytes); field.next();) {
    if (field.number != 3) continue;
    for (ProtoReader computation(field.content); computation.next();) {
      by_partition.push_back(ProtoReader::integers(computation.content));
    }
  }
  std::vector<int> result;
  const std::size_t num_replicas = by_partition.empty() ? 0 : by_partition.front().size();
  for (std::size_t replica = 0; replica < num_replicas; ++replica) {
    for (const std::vector<int>& devices : by_partition) result.push_back(devices.at(replica));
  }
  return result;
}

inline CompileOptions parse_compile_options(std::string_view bytes) {
  CompileOptions result;
  for (ProtoReader option(bytes); option.next();) {
    if (option.number == 4) result.is_portable = option.integer != 0;
    if (option.number == 7) {
      for (ProtoReader flag(option.content); flag.next();) {
        if (flag.number == 1) result.flags.emplace_back(flag.content);
      }
    }
    if (option.number != 3) continue;
    for (ProtoReader build(option.content); build.next();) {
      if (build.number == 4) result.num_replicas = static_cast<int>(build.integer);
      if (build.number == 5) result.num_partitions = static_cast<int>(build.integer);
      if (build.number == 6) result.use_spmd_partitioning = build.integer != 0;
      if (build.number == 9) result.device_assignment = parse_device_assignment(build.content);
    }
  }
  return result;
}

}  // namespace fake

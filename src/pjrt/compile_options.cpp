// Writes CompileOptionsProto by hand: a dozen fields do not justify a protobuf dependency. Field
// numbers are XLA's (xla/pjrt/proto/compile_options.proto and xla/xla_data.proto).
#include "pjrt/compile_options.h"

#include <cstring>
#include <string_view>

#include "base/error.h"

namespace torch_xla::pjrt {
namespace {

// Appends protobuf fields to a message. Integers and bools are varints; strings and nested messages
// are length-delimited.
class ProtoWriter {
 public:
  void add_varint(int field, std::uint64_t value) {
    append_varint(static_cast<std::uint64_t>(field) << 3);
    append_varint(value);
  }
  void add_bytes(int field, std::string_view bytes) {
    append_varint(static_cast<std::uint64_t>(field) << 3 | 2);
    append_varint(bytes.size());
    bytes_.append(bytes);
  }
  void add_double(int field, double value) {
    append_varint(static_cast<std::uint64_t>(field) << 3 | 1);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    for (int shift = 0; shift < 64; shift += 8) {
      bytes_.push_back(static_cast<char>(bits >> shift & 0xff));
    }
  }
  void append_varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

std::string device_assignment_proto(const CompileOptions& options) {
  ProtoWriter out;
  out.add_varint(1, options.num_replicas);
  out.add_varint(2, options.num_partitions);
  for (int partition = 0; partition < options.num_partitions; ++partition) {
    ProtoWriter ids;
    for (int replica = 0; replica < options.num_replicas; ++replica) {
      ids.append_varint(options.device_assignment[replica * options.num_partitions + partition]);
    }
    ProtoWriter computation;
    computation.add_bytes(1, ids.bytes());
    out.add_bytes(3, computation.bytes());
  }
  return out.bytes();
}

std::string executable_build_options_proto(const CompileOptions& options) {
  ProtoWriter out;
  out.add_varint(1, static_cast<std::uint64_t>(std::int64_t{options.device_ordinal}));
  out.add_varint(4, options.num_replicas);
  out.add_varint(5, options.num_partitions);
  if (options.use_spmd_partitioning) out.add_varint(6, 1);
  if (!options.device_assignment.empty()) out.add_bytes(9, device_assignment_proto(options));
  if (options.use_shardy_partitioner) out.add_varint(19, 1);
  return out.bytes();
}

std::string option_override_proto(const OptionOverride& value) {
  ProtoWriter out;
  if (const auto* text = std::get_if<std::string>(&value)) {
    out.add_bytes(1, *text);
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    out.add_varint(2, *flag ? 1 : 0);
  } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    out.add_varint(3, static_cast<std::uint64_t>(*integer));
  } else {
    out.add_double(4, std::get<double>(value));
  }
  return out.bytes();
}

}  // namespace

std::string CompileOptions::serialize() const {
  base::check(num_replicas > 0 && num_partitions > 0,
              "compile: the numbers of replicas and partitions must be positive, got ",
              num_replicas, " and ", num_partitions);
  const auto num_devices = static_cast<std::size_t>(num_replicas) * num_partitions;
  base::check(device_assignment.empty() || device_assignment.size() == num_devices,
              "compile: the device assignment must have num_replicas * num_partitions = ",
              num_devices, " devices, got ", device_assignment.size());
  ProtoWriter out;
  out.add_bytes(3, executable_build_options_proto(*this));
  if (portable) out.add_varint(4, 1);
  for (const auto& [name, value] : env_option_overrides) {
    ProtoWriter entry;
    entry.add_bytes(1, name);
    entry.add_bytes(2, option_override_proto(value));
    out.add_bytes(7, entry.bytes());
  }
  return out.bytes();
}

}  // namespace torch_xla::pjrt

// What a program is compiled for, and XLA's flags for this one compilation.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace torch_xla::pjrt {

using OptionOverride = std::variant<std::string, bool, std::int64_t, double>;

struct CompileOptions {
  int num_replicas = 1;
  int num_partitions = 1;
  // The device that the program is compiled for; -1: the plugin chooses.
  int device_ordinal = -1;
  // The executable runs on the device that each launch names. For single-device programs.
  bool portable = false;
  bool use_spmd_partitioning = false;
  bool use_shardy_partitioner = false;
  // Device ids [replica][partition] in row-major order; empty: the plugin chooses.
  std::vector<int> device_assignment;
  // XLA's flags by name, without dashes: {"xla_cpu_enable_fast_math", false}.
  std::map<std::string, OptionOverride> env_option_overrides;

  // The bytes of XLA's CompileOptionsProto. Equal options give equal bytes, so they may be part of
  // a key. Throws base::Error if the assignment does not have num_replicas * num_partitions
  // devices.
  std::string serialize() const;
};

}  // namespace torch_xla::pjrt

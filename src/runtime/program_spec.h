// What tells one executable from another. The cache in memory and the one on disk know programs by
// the same key, made here and nowhere else.
#pragma once

#include <span>
#include <vector>

#include "base/hash.h"
#include "base/sharding.h"
#include "ops/lower.h"
#include "ops/target.h"

namespace torch_xla::runtime {

// On which devices a program runs.
struct Placement {
  // Over how many devices each replica is partitioned.
  int num_partitions = 1;
  // The plugin's numbers of the devices, [replica][partition]; empty: one device, any.
  std::vector<int> device_assignment = {};

  // Whether each launch may name another device.
  bool is_portable() const { return device_assignment.empty(); }
  // Of those that run in one launch.
  int num_replicas() const {
    return is_portable() ? 1 : static_cast<int>(device_assignment.size()) / num_partitions;
  }
  friend bool operator==(const Placement&, const Placement&) = default;
};

struct ProgramSpec {
  // What it computes: the graph's key, as the walk gives it, or that of a module's text.
  base::Hash128 program = {};
  // `compile_options_key`: all settings and flags that decide what the compiler makes of it.
  base::Hash128 options = {};
  std::span<const ops::Donation> donations = {};
  // One for each, or empty if none has a sharding.
  std::vector<const base::Sharding*> inputs = {};
  std::vector<const base::Sharding*> results = {};
  Placement placement = {};
  // Of the graph's collectives, if they are the plugin's. Else calls of the host find their groups
  // by the names that the graph has for them, hence its key.
  ops::ReplicaGroups replica_groups = {};
  // Whether it may be compiled quickly first (tiers.h). Part of the key, so that who asks for all
  // optimizations, as for results that are the same in each run, gets them.
  bool may_be_quick = false;
};

// Specs that differ in anything have different keys. The same in every process.
base::Hash128 key_of(const ProgramSpec& spec);

}  // namespace torch_xla::runtime

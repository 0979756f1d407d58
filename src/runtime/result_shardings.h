// How the results of a partitioned program lie on its devices. The plugin has no call that tells
// what the partitioner chose, so each result is given a sharding before: what the user said of its
// memory; else that of the array it replaces, so that memory stays as it is from step to step; else
// that of a neighbour along pointwise operations, in either direction: a gradient lies as the
// parameter that it is added to. What nothing is known of is whole on each device.
#pragma once

#include <cstdint>
#include <vector>

#include "base/sharding.h"
#include "graph/walk.h"

namespace torch_xla::runtime {

class Device;

// Of one trace, under the device's recording lock, in the same hold as the walk.
class ResultShardings {
 public:
  // Reads what is known from the trace and the device's live memory.
  ResultShardings(Device& device, const graph::Trace& trace);

  // Of an output of a step.
  const base::Sharding* of(std::uint32_t step, std::uint32_t output) const;
  const base::Sharding* of(const graph::Source& source) const {
    return of(source.index, source.output);
  }

 private:
  void read_constraints();
  void read_memory();
  void read_leaves();
  void spread();
  bool spread_over(std::uint32_t step);
  bool spread_over_view(std::uint32_t step, const graph::Source& source);
  void set(std::uint32_t step, std::uint32_t output, const base::Sharding* sharding);
  const base::Shape& shape_of(std::uint32_t step, std::uint32_t output) const;

  Device& device_;
  const graph::Trace& trace_;
  bool is_any_split_ = false;
  std::vector<std::size_t> first_output_;              // of each step
  std::vector<const base::Sharding*> shardings_;       // of all outputs; null: not known
  std::vector<const base::Sharding*> leaf_shardings_;  // null where whole
};

}  // namespace torch_xla::runtime

// Whether the program that this thread lowers is partitioned over several devices: what these meet
// in must be operations that XLA's collectives know.
#pragma once

namespace torch_xla::ops {

class PartitionedScope {
 public:
  explicit PartitionedScope(bool is_partitioned);
  ~PartitionedScope();
  PartitionedScope(const PartitionedScope&) = delete;
  PartitionedScope& operator=(const PartitionedScope&) = delete;

 private:
  const bool before_;
};
bool is_partitioned();

}  // namespace torch_xla::ops

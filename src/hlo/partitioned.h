// Whether the program that this thread writes is partitioned over several devices: what these meet
// in must be operations that XLA's collectives know, and some operations its partitioner knows in
// one form alone.
#pragma once

#include <span>

#include "base/sharding.h"
#include "hlo/builder.h"

namespace torch_xla::hlo {

// XLA has two, and a program says how values lie on a mesh in the words of one.
enum class Partitioner { kShardy, kGspmd };

// While it lives, programs of this thread are partitioned over the mesh of a sharding that leaves
// arrays whole, which must live as long; null: over none.
class PartitionedScope {
 public:
  explicit PartitionedScope(const base::Sharding* whole,
                            Partitioner partitioner = Partitioner::kShardy);
  ~PartitionedScope();
  PartitionedScope(const PartitionedScope&) = delete;
  PartitionedScope& operator=(const PartitionedScope&) = delete;

 private:
  const base::Sharding* const before_;
  const Partitioner partitioner_before_;
};
bool is_partitioned();
// Over how many devices; 1 if it is not.
std::int64_t num_partitions();

// The value, of which each device has all elements along these dimensions; how the others lie is
// left to the partitioner. Changes nothing in a program for one device.
Value whole_along(Value operand, const Dims& dims);

// What `body`, which uses no values from outside, makes of the operands: each device computes it
// from all elements by itself. For what the partitioner can't divide, in a program that is
// partitioned.
Values on_each_device(const Values& operands, std::span<const Type> results, const Region& body);

}  // namespace torch_xla::hlo

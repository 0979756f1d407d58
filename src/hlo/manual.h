// Values of which each device has one of its own, in programs that are partitioned over a mesh
// (ops_sharding.cpp).
#pragma once

#include "base/sharding.h"
#include "hlo/builder.h"

namespace torch_xla::hlo {

// What each device holds of the operand, which the sharding splits into equal parts, as a value of
// that size. Each device goes on with its own; the partitioner takes it for the same on all, so
// that operations on it exchange nothing. Throws base::Error if the parts would not be equal.
Value full_to_shard(Value operand, const base::Sharding& sharding);
// The other way: the devices' values are the parts of one of `dims`.
Value shard_to_full(Value operand, const base::Sharding& sharding, const Dims& dims);

}  // namespace torch_xla::hlo

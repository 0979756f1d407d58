// What programs are lowered for. `runtime` makes it, in one place (runtime/target.h).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"
#include "hlo/builder.h"
#include "hlo/partitioned.h"

namespace torch_xla::ops {

// Of each group that a program's collectives name, its members as numbers of the program's
// replicas; each replica is in one row, and its place there is its place in its group.
using ReplicaGroups = std::map<std::string, std::vector<base::Dims>>;

struct Target {
  std::string_view platform = {};  // "cpu", "cuda", ...
  bool has_host_kernels = false;   // programs may call PyTorch's CPU kernels
  // Their products in half precision are faster than those in float32: the CPU has instructions.
  bool has_bfloat16_products = false;
  bool has_float16_products = false;
  // Operations carry the user's lines, as far as nodes know them. The program computes the same.
  bool has_locations = false;
  // The program leaves this process: the numbers that travel with nodes are constants, and what the
  // user marked as one operation becomes one (ops/composite.h).
  bool is_exported = false;
  // Collectives are StableHLO's, among these; null: calls of the host.
  const ReplicaGroups* replica_groups = nullptr;
  // Of programs over several devices.
  hlo::Partitioner partitioner = hlo::Partitioner::kShardy;
  // Of products of matrices and of convolutions.
  hlo::Precision precision = hlo::Precision::kDefault;

  bool has_products_of(base::DType half) const {
    return half == base::DType::kBFloat16 ? has_bfloat16_products
                                          : half == base::DType::kFloat16 && has_float16_products;
  }
};

}  // namespace torch_xla::ops

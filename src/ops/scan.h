// Inclusive scans along a dimension, by doubling: log2(size) steps over the whole array, each
// combining every element with the one 2^k before it.
#pragma once

#include <functional>

#include "ops/registry.h"

namespace torch_xla::ops {

// Combines the arrays of an earlier stretch with those of the stretch right after it; associative.
using Combine = std::function<hlo::Values(const hlo::Values& earlier, const hlo::Values& later)>;

// Element i of each result combines the elements 0 to i of the inputs, which have one shape.
// `identities` are 0-dim and must be what `combine` ignores as the earlier operand.
hlo::Values scan(hlo::Values inputs, const hlo::Values& identities, std::int64_t dim,
                 const Combine& combine);

}  // namespace torch_xla::ops

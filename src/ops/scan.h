// Inclusive scans along a dimension, in the form that XLA has a fast rule for: a window as long as
// the dimension, padded at its front.
#pragma once

#include "ops/registry.h"

namespace torch_xla::ops {

// Element i of each result combines the elements 0 to i of the inputs, which have one shape.
// `identities` are 0-dim. `combine` takes one element of each input, then another of each; it must
// be associative and commutative.
hlo::Values scan(const hlo::Values& inputs, const hlo::Values& identities, std::int64_t dim,
                 const hlo::Region& combine);

}  // namespace torch_xla::ops

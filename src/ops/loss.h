// The `reduction` argument of losses.
#pragma once

#include "ops/registry.h"

namespace torch_xla::ops {

enum Reduction : std::int64_t { kNone = 0, kMean = 1, kSum = 2 };

// The losses as they are, their mean or their sum.
Value reduce_losses(const Context& context, Value losses, std::int64_t reduction);

// The gradient that reaches each of the losses, whose sizes are `dims`: `grad_output` is one per
// loss or one for all.
Value gradient_of_losses(Value grad_output, const Dims& dims, std::int64_t reduction);

}  // namespace torch_xla::ops

// Updates of a value's elements that XLA does in the value's own memory, without a copy of the
// rest. Its CPU compiler does some of them wrong (docs/dev/in_place_updates.md has a program):
// every update of a slice goes through here.
#pragma once

#include "hlo/builder.h"

namespace torch_xla::hlo {

// `operand` with `update` in the place of the elements from `start_indices` on. `starts` are these
// indices where they are known.
Value update_slice(Value operand, Value update, const Values& start_indices,
                   const Dims* starts = nullptr);

// The first `num_results` of `operands` as they are, opaque to all of XLA's passes: nothing is
// moved across, fused, or merged with an equal computation. With `shares_memory` they need no copy,
// unless an operand is used elsewhere too.
Values hidden(const Values& operands, std::size_t num_results, bool shares_memory);

}  // namespace torch_xla::hlo

// Windows that slide over an operand, as reduce_window, select_and_scatter and convolution have
// them. Internal to src/hlo.
#pragma once

#include <string_view>

#include "hlo/ops.h"

namespace torch_xla::hlo {

// `window` with its empty members filled in, checked for an operand of `rank` dimensions.
Window require_window(std::string_view op, const Window& window, std::int64_t rank);

// How many times the window fits, per dimension. `window` must be filled in.
Dims window_counts(const Dims& operand, const Window& window);

}  // namespace torch_xla::hlo

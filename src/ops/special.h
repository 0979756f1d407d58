// Series of which the special functions are made.
#pragma once

#include <span>

#include "ops/registry.h"

namespace torch_xla::ops {

// sum c[k] T_k(t) for t in [-1, 1].
Value chebyshev_series(Value t, std::span<const double> coefficients);

}  // namespace torch_xla::ops

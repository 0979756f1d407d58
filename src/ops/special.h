// What the special functions are made of, and others use.
#pragma once

#include <span>

#include "ops/registry.h"

namespace torch_xla::ops {

// sum c[k] T_k(t) for t in [-1, 1].
Value chebyshev_series(Value t, std::span<const double> coefficients);

// The modified Bessel function of the first kind and order 0, of float32 or float64.
Value bessel_i0(Value x);

}  // namespace torch_xla::ops

// Which dtypes numbers are counted in: PyTorch's kernels leave out masks and float8.
#pragma once

#include "base/dtype.h"

namespace torch_xla::ops {

inline bool can_count(base::DType dtype) {
  if (base::is_floating(dtype)) return base::size_bytes(dtype) > 1;
  return base::is_integral(dtype) && dtype != base::DType::kBool;
}

}  // namespace torch_xla::ops

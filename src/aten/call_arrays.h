// The arrays of a call of a host kernel.
#pragma once

#include <cstdint>

#include "runtime/host_kernels.h"

namespace torch_xla::aten {

inline std::int64_t count_of(const pjrt::CustomCallArray& array) {
  std::int64_t count = 1;
  for (const std::int64_t size : array.dims) count *= size;
  return count;
}

template <typename T>
T* data_of(const pjrt::CustomCallArray& array) {
  return static_cast<T*>(array.data);
}

}  // namespace torch_xla::aten

// The arrays of a call of a host kernel.
#pragma once

#include <array>
#include <cstdint>

#include "base/error.h"
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

// Calls `body` with a value of the type by which elements of the array are moved: it is as large.
template <typename Body>
void with_element_of(const pjrt::CustomCallArray& array, const Body& body) {
  switch (base::size_bytes(array.dtype)) {
    case 1: return body(std::uint8_t());
    case 2: return body(std::uint16_t());
    case 4: return body(std::uint32_t());
    case 8: return body(std::uint64_t());
    case 16: return body(std::array<std::uint64_t, 2>());
    default: base::internal_check(false, "no host kernel moves elements of the dtype");
  }
}

}  // namespace torch_xla::aten

// Sums of rows of half precision in float32, which are rounded once.
#pragma once

#include <cstdint>

namespace torch_xla::rows {

// The bits of a number.
enum class Float16 : std::uint16_t {};
enum class BFloat16 : std::uint16_t {};

// Of `count` numbers each.
template <typename T>
struct HalfRows {
  void (*widen)(float* to, const T* from, std::int64_t count);
  void (*add)(float* to, const T* from, std::int64_t count);
  // To the nearest, and of two to the even one.
  void (*round)(T* to, const float* from, std::int64_t count);
};

// half_rows.cpp is compiled for several processors.
namespace baseline {
template <typename T>
const HalfRows<T>& half_rows();
}
namespace avx2 {
template <typename T>
const HalfRows<T>& half_rows();
}

// Those of this processor.
template <typename T>
const HalfRows<T>& half_rows();

}  // namespace torch_xla::rows

// Rows of numbers, several at a time.
//
// What is compiled for several processors (cmake/layers.cmake) includes this, and stands in the
// namespace TORCH_XLA_ROWS like it: no function of one may be taken for that of another.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#ifndef TORCH_XLA_ROWS
#define TORCH_XLA_ROWS baseline
#endif

namespace torch_xla::rows::TORCH_XLA_ROWS {

#ifdef __AVX2__
inline constexpr std::int64_t kBytes = 32;
#else
inline constexpr std::int64_t kBytes = 16;
#endif

// As many numbers as the processor computes with at a time.
template <typename T>
struct Lanes {
  using Type [[gnu::vector_size(kBytes)]] = T;
  static constexpr std::int64_t kCount = kBytes / sizeof(T);
};

// One number or several lanes of them.
template <typename V, typename T>
V load(const T* from) {
  V value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <typename V, typename T>
void store(T* to, const V& value) {
  std::memcpy(to, &value, sizeof value);
}

template <typename T>
T total_of(const typename Lanes<T>::Type& lanes) {
  T total = 0;
  for (std::int64_t lane = 0; lane < Lanes<T>::kCount; ++lane) total += lanes[lane];
  return total;
}

// Calls `body` with the places of a row, and whether lanes or one number begin there.
template <typename T, typename Body>
void for_row(std::int64_t size, const Body& body) {
  std::int64_t i = 0;
  for (; i + Lanes<T>::kCount <= size; i += Lanes<T>::kCount) {
    body.template operator()<typename Lanes<T>::Type>(i);
  }
  for (; i < size; ++i) body.template operator()<T>(i);
}

// The sum over a row of what `at` gives for its places, in several parts, so that additions need
// not wait for each other and rounding errors stay small.
template <typename T, typename At>
T sum_of(std::int64_t size, const At& at) {
  using V = typename Lanes<T>::Type;
  constexpr std::int64_t kParts = 4;
  std::array<V, kParts> sums = {};
  std::int64_t i = 0;
  for (; i + kParts * Lanes<T>::kCount <= size; i += kParts * Lanes<T>::kCount) {
    for (std::int64_t part = 0; part < kParts; ++part) {
      sums[static_cast<std::size_t>(part)] +=
          at.template operator()<V>(i + part * Lanes<T>::kCount);
    }
  }
  T total = total_of<T>((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < size; ++i) total += at.template operator()<T>(i);
  return total;
}

}  // namespace torch_xla::rows::TORCH_XLA_ROWS

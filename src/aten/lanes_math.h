// Functions of several float32 numbers at a time, to a few units in the last place.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace torch_xla::aten {

using Floats [[gnu::vector_size(16)]] = float;
using Ints [[gnu::vector_size(16)]] = std::int32_t;

// e^x = 2^n e^r with |r| <= ln(2) / 2, of which eight terms of its series are enough. Beyond what
// float32 holds it is the last number that does.
inline Floats exp_of(Floats x) {
  constexpr float kRound = 0x1.8p23F;         // a sum with it has no bits behind the point
  constexpr float kLog2E = 0x1.715476p0F;     // 1 / ln(2)
  constexpr float kLn2High = 0x1.62e4p-1F;    // its products with n are exact
  constexpr float kLn2Low = 0x1.7f7d1cp-20F;  // the rest of ln(2)
  const Floats most = Floats{} + 88.0F;
  x = x > most ? most : x;
  x = x < -87.0F ? Floats{} - 87.0F : x;
  const Floats rounded = x * kLog2E + kRound;
  const Floats n = rounded - kRound;
  const Floats r = x - n * kLn2High - n * kLn2Low;
  Floats sum = Floats{} + 1.0F / 5040;
  for (const float term : {1.0F / 720, 1.0F / 120, 1.0F / 24, 1.0F / 6, 1.0F / 2, 1.0F, 1.0F}) {
    sum = sum * r + term;
  }
  const Ints power = std::bit_cast<Ints>(rounded) - std::bit_cast<std::int32_t>(kRound);
  return sum * std::bit_cast<Floats>((power + 127) << 23);
}

inline Floats sigmoid_of(Floats x) { return 1.0F / (1.0F + exp_of(-x)); }

// (e^2x - 1) / (e^2x + 1), and near 0, where that cancels, its series.
inline Floats tanh_of(Floats x) {
  const Floats square = x * x;
  Floats sum = Floats{} + 62.0F / 2835;
  for (const float term : {-17.0F / 315, 2.0F / 15, -1.0F / 3, 1.0F}) sum = sum * square + term;
  return square < 0.0625F ? x * sum : 1.0F - 2.0F / (1.0F + exp_of(x * 2.0F));
}

// Calls `body(i, count)` for places of a row: `count` numbers from `i` on are to be computed.
template <typename Body>
void for_lanes(std::int64_t size, const Body& body) {
  constexpr std::int64_t kCount = sizeof(Floats) / sizeof(float);
  std::int64_t i = 0;
  for (; i + kCount <= size; i += kCount) body(i, kCount);
  if (i < size) body(i, size - i);
}

inline Floats load(const float* from, std::int64_t count) {
  Floats value = {};
  if (count * sizeof(float) == sizeof value) {
    std::memcpy(&value, from, sizeof value);
  } else {
    std::memcpy(&value, from, static_cast<std::size_t>(count) * sizeof(float));
  }
  return value;
}
inline void store(float* to, const Floats& value, std::int64_t count) {
  if (count * sizeof(float) == sizeof value) {
    std::memcpy(to, &value, sizeof value);
  } else {
    std::memcpy(to, &value, static_cast<std::size_t>(count) * sizeof(float));
  }
}

}  // namespace torch_xla::aten

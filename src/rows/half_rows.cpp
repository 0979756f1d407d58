// Compiled once for each namespace of lanes.h.
#include "rows/half_rows.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <bit>

#include "rows/lanes.h"

namespace torch_xla::rows::TORCH_XLA_ROWS {
namespace {

constexpr std::int64_t kCount = Lanes<float>::kCount;
using Floats = Lanes<float>::Type;
using Bits = Lanes<std::uint32_t>::Type;
using Halves [[gnu::vector_size(kBytes / 2)]] = std::uint16_t;

// A bfloat16 is the first half of a float32.
Floats widened(const BFloat16* from) {
  return std::bit_cast<Floats>(__builtin_convertvector(load<Halves>(from), Bits) << 16);
}
void store_rounded(BFloat16* to, Floats value) {
  const Bits bits = std::bit_cast<Bits>(value);
  const Bits rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  constexpr std::uint32_t kNan = 0x7fc0;
  store(to, __builtin_convertvector(value == value ? rounded : Bits{} + kNan, Halves));
}

#ifdef __F16C__
Floats widened(const Float16* from) { return _mm256_cvtph_ps(load<__m128i>(from)); }
void store_rounded(Float16* to, Floats value) {
  store(to, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}
#else
Floats widened(const Float16* from) {
  Floats value;
  for (std::int64_t i = 0; i < kCount; ++i) value[i] = load<_Float16>(from + i);
  return value;
}
void store_rounded(Float16* to, Floats value) {
  for (std::int64_t i = 0; i < kCount; ++i) store(to + i, static_cast<_Float16>(value[i]));
}
#endif

// Calls `body` with places in both for as many numbers as there are lanes. Those that are left over
// at the end are copied to where there is room for as many, and what came of them back.
template <typename To, typename From, typename Body>
void for_lanes(To* to, const From* from, std::int64_t count, const Body& body) {
  std::int64_t i = 0;
  for (; i + kCount <= count; i += kCount) body(to + i, from + i);
  if (i == count) return;
  std::array<To, kCount> last_to = {};
  std::array<From, kCount> last_from = {};
  std::copy(to + i, to + count, last_to.begin());
  std::copy(from + i, from + count, last_from.begin());
  body(last_to.data(), last_from.data());
  std::copy_n(last_to.begin(), count - i, to + i);
}

template <typename T>
void widen(float* to, const T* from, std::int64_t count) {
  for_lanes(to, from, count, [](float* t, const T* f) { store(t, widened(f)); });
}

template <typename T>
void add(float* to, const T* from, std::int64_t count) {
  for_lanes(to, from, count,
            [](float* t, const T* f) { store(t, Floats(load<Floats>(t) + widened(f))); });
}

template <typename T>
void round(T* to, const float* from, std::int64_t count) {
  for_lanes(to, from, count, [](T* t, const float* f) { store_rounded(t, load<Floats>(f)); });
}

}  // namespace

template <typename T>
const HalfRows<T>& half_rows() {
  static constexpr HalfRows<T> kRows = {widen<T>, add<T>, round<T>};
  return kRows;
}

template const HalfRows<Float16>& half_rows();
template const HalfRows<BFloat16>& half_rows();

}  // namespace torch_xla::rows::TORCH_XLA_ROWS

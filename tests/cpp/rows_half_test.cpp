// Rows of half precision: every number of theirs, and what lies around the middle of two.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "check.h"
#include "rows/half_rows.h"

namespace torch_xla::rows {
namespace {

// The number that bits stand for, by the definition of the formats.
double value_of(std::uint32_t bits, int exponent_bits, int fraction_bits) {
  const std::uint32_t most = (1U << exponent_bits) - 1;
  const std::uint32_t exponent = bits >> fraction_bits & most;
  const double fraction =
      std::ldexp(static_cast<double>(bits & ((1U << fraction_bits) - 1)), -fraction_bits);
  const int bias = static_cast<int>(most / 2);
  double value = exponent == 0 ? std::ldexp(fraction, 1 - bias)
                               : std::ldexp(1 + fraction, static_cast<int>(exponent) - bias);
  if (exponent == most) {
    value = fraction == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  }
  return (bits >> (exponent_bits + fraction_bits)) == 0 ? value : -value;
}
double value_of(Float16 half) { return value_of(static_cast<std::uint32_t>(half), 5, 10); }
double value_of(BFloat16 half) { return value_of(static_cast<std::uint32_t>(half), 8, 7); }

// All numbers that are not NaN: neighbours in order, those below 0 behind the others.
template <typename T>
std::vector<T> all_numbers() {
  std::vector<T> numbers;
  for (std::uint32_t bits = 0; bits < 1U << 16; ++bits) {
    if (!std::isnan(value_of(static_cast<T>(bits)))) numbers.push_back(static_cast<T>(bits));
  }
  return numbers;
}

template <typename T>
std::vector<T> rounded(const HalfRows<T>& functions, const std::vector<float>& values) {
  std::vector<T> halves(values.size());
  functions.round(halves.data(), values.data(), static_cast<std::int64_t>(values.size()));
  return halves;
}

template <typename T>
void check_widening(const HalfRows<T>& functions) {
  const std::vector<T> halves = all_numbers<T>();
  const auto count = static_cast<std::int64_t>(halves.size());
  std::vector<float> wide(halves.size());
  functions.widen(wide.data(), halves.data(), count);
  EXPECT(rounded(functions, wide) == halves);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    EXPECT_EQ(static_cast<double>(wide[i]), value_of(halves[i]));
  }
  functions.add(wide.data(), halves.data(), count);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    EXPECT_EQ(wide[i], static_cast<float>(2 * value_of(halves[i])));
  }
}

// Between two neighbours the nearer one; in the middle the one whose last bit is 0.
template <typename T>
void check_rounding(const HalfRows<T>& functions) {
  const std::vector<T> halves = all_numbers<T>();
  std::vector<float> values;
  std::vector<T> expected;
  for (std::size_t i = 0; i + 1 < halves.size(); ++i) {
    const double left = value_of(halves[i]);
    const double right = value_of(halves[i + 1]);
    if (!std::isfinite(left) || !std::isfinite(right)) continue;
    const auto middle = static_cast<float>((left + right) / 2);
    const bool is_even = static_cast<std::uint32_t>(halves[i]) % 2 == 0;
    values.insert(values.end(), {middle, std::nextafter(middle, static_cast<float>(left)),
                                 std::nextafter(middle, static_cast<float>(right))});
    expected.insert(expected.end(),
                    {is_even ? halves[i] : halves[i + 1], halves[i], halves[i + 1]});
  }
  EXPECT(rounded(functions, values) == expected);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<T> odd = rounded(
      functions, {nan, -nan, std::bit_cast<float>(0x7fffffffU), std::numeric_limits<float>::max()});
  for (int i = 0; i < 3; ++i) EXPECT(std::isnan(value_of(odd[static_cast<std::size_t>(i)])));
  EXPECT(std::isinf(value_of(odd[3])));
}

// Nothing behind a row is written.
template <typename T>
void check_sizes(const HalfRows<T>& functions) {
  const std::vector<T> halves = all_numbers<T>();
  for (std::int64_t count = 0; count <= 35; ++count) {
    std::vector<float> wide(40, -1);
    functions.widen(wide.data(), halves.data() + 100, count);
    functions.add(wide.data(), halves.data() + 100, count);
    std::vector<T> out(40, T{7});
    functions.round(out.data(), wide.data(), count);
    for (std::int64_t i = 0; i < 40; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double twice = 2 * value_of(halves[at + 100]);
      EXPECT_EQ(static_cast<double>(wide[at]), i < count ? twice : -1);
      EXPECT_EQ(value_of(out[at]), i < count ? twice : value_of(T{7}));
    }
  }
}

template <typename T>
void check_all(const HalfRows<T>& functions) {
  check_widening(functions);
  check_rounding(functions);
  check_sizes(functions);
}

TEST(rows_of_halves_are_added_everywhere) {
  check_all(baseline::half_rows<Float16>());
  check_all(baseline::half_rows<BFloat16>());
}

TEST(rows_of_halves_are_added_by_avx2) {
#ifdef TORCH_XLA_AVX2_ROWS
  if (&half_rows<Float16>() != &avx2::half_rows<Float16>()) {
    throw testing::Unsupported{"a processor with AVX2"};
  }
  check_all(avx2::half_rows<Float16>());
  check_all(avx2::half_rows<BFloat16>());
#else
  throw testing::Unsupported{"a build for x86-64"};
#endif
}

}  // namespace
}  // namespace torch_xla::rows

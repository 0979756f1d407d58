// The row functions of each processor against the same sums one after the other, in float64.
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "check.h"
#include "rows/normalization_rows.h"

namespace torch_xla::rows {
namespace {

constexpr std::int64_t kRows = 5;
constexpr double kEps = 1e-5;

// Numbers that are neither small nor around 0, and of no pattern that lanes could hide.
template <typename T>
std::vector<T> numbers(std::int64_t count, int seed) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<T>(std::sin(1.7 * static_cast<double>(i) + seed) + 0.25 * seed));
  }
  return values;
}

template <typename T>
void expect_close(const std::vector<T>& left, const std::vector<double>& right,
                  const std::string& what) {
  EXPECT_EQ(left.size(), right.size());
  const double most = sizeof(T) == sizeof(float) ? 1e-4 : 1e-12;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const double off = std::abs(static_cast<double>(left[i]) - right[i]);
    if (off > most * (1 + std::abs(right[i]))) {
      EXPECT_EQ(what + " at " + std::to_string(i) + ": " + std::to_string(left[i]),
                std::to_string(right[i]));
      return;
    }
  }
}

// One row after the other, with nothing of what is tested.
struct Expected {
  std::vector<double> out;
  std::vector<double> means;
  std::vector<double> rstds;
};

template <typename T>
Expected normalized(const std::vector<T>& x, std::int64_t size) {
  Expected expected;
  for (std::int64_t r = 0; r < kRows; ++r) {
    double mean = 0;
    double variance = 0;
    const auto at = [&](std::int64_t i) {
      return static_cast<double>(x[static_cast<std::size_t>(r * size + i)]);
    };
    for (std::int64_t i = 0; i < size; ++i) mean += at(i) / static_cast<double>(size);
    for (std::int64_t i = 0; i < size; ++i) {
      variance += (at(i) - mean) * (at(i) - mean) / static_cast<double>(size);
    }
    expected.means.push_back(mean);
    expected.rstds.push_back(1 / std::sqrt(variance + kEps));
    for (std::int64_t i = 0; i < size; ++i) {
      expected.out.push_back((at(i) - mean) * expected.rstds.back());
    }
  }
  return expected;
}

template <typename T>
struct Buffers {
  std::vector<T> x;
  std::vector<T> out;
  std::vector<T> means = std::vector<T>(kRows);
  std::vector<T> rstds = std::vector<T>(kRows);

  explicit Buffers(std::int64_t size)
      : x(numbers<T>(kRows * size, 1)), out(static_cast<std::size_t>(kRows * size)) {}
  Normalized<T> rows(std::int64_t size) {
    return {.input = x.data(),
            .out = out.data(),
            .means = means.data(),
            .rstds = rstds.data(),
            .size = size,
            .eps = static_cast<T>(kEps)};
  }
};

template <typename T>
void check_layer_norm(const NormalizationRows<T>& functions, std::int64_t size, bool has_weight,
                      bool has_bias) {
  Buffers<T> buffers(size);
  const std::vector<T> weight = numbers<T>(size, 2);
  const std::vector<T> bias = numbers<T>(size, 3);
  Normalized<T> rows = buffers.rows(size);
  if (has_weight) rows.weight = weight.data();
  if (has_bias) rows.bias = bias.data();
  functions.layer_norm(rows, 0, 2);
  functions.layer_norm(rows, 2, kRows);
  Expected expected = normalized(buffers.x, size);
  for (std::size_t i = 0; i < expected.out.size(); ++i) {
    const std::size_t place = i % static_cast<std::size_t>(size);
    if (has_weight) expected.out[i] *= static_cast<double>(weight[place]);
    if (has_bias) expected.out[i] += static_cast<double>(bias[place]);
  }
  expect_close(buffers.out, expected.out, "layer_norm of " + std::to_string(size));
  expect_close(buffers.means, expected.means, "means of " + std::to_string(size));
  expect_close(buffers.rstds, expected.rstds, "rstds of " + std::to_string(size));
}

template <typename T>
void check_rms_norm(const NormalizationRows<T>& functions, std::int64_t size) {
  Buffers<T> buffers(size);
  Normalized<T> rows = buffers.rows(size);
  rows.means = nullptr;
  functions.layer_norm(rows, 0, kRows);
  std::vector<double> expected;
  for (std::size_t start = 0; start < buffers.x.size(); start += static_cast<std::size_t>(size)) {
    const std::span row(buffers.x.data() + start, static_cast<std::size_t>(size));
    double squares = 0;
    for (const T x : row) squares += static_cast<double>(x) * static_cast<double>(x);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(size) + kEps);
    for (const T x : row) expected.push_back(static_cast<double>(x) * rstd);
  }
  expect_close(buffers.out, expected, "rms_norm of " + std::to_string(size));
}

// Two groups of channels of `space` elements.
template <typename T>
void check_group_norm(const NormalizationRows<T>& functions, std::int64_t space) {
  constexpr std::int64_t kGroups = 2;
  constexpr std::int64_t kChannels = 3;
  const std::int64_t size = kChannels * space;
  Buffers<T> buffers(size);
  const std::vector<T> weight = numbers<T>(kGroups * kChannels, 2);
  const std::vector<T> bias = numbers<T>(kGroups * kChannels, 3);
  Normalized<T> rows = buffers.rows(size);
  rows.weight = weight.data();
  rows.bias = bias.data();
  rows.groups = kGroups;
  rows.space = space;
  functions.group_norm(rows, 0, kRows);
  Expected expected = normalized(buffers.x, size);
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t i = 0; i < size; ++i) {
      const auto channel = static_cast<std::size_t>(r % kGroups * kChannels + i / space);
      double& element = expected.out[static_cast<std::size_t>(r * size + i)];
      element = element * static_cast<double>(weight[channel]) + static_cast<double>(bias[channel]);
    }
  }
  expect_close(buffers.out, expected.out, "group_norm of " + std::to_string(space));
}

template <typename T>
void check_layer_norm_backward(const NormalizationRows<T>& functions, std::int64_t size,
                               bool has_weight) {
  const std::vector<T> x = numbers<T>(kRows * size, 1);
  const std::vector<T> grad = numbers<T>(kRows * size, 4);
  const std::vector<T> weight = numbers<T>(size, 2);
  const Expected forward = normalized(x, size);
  const std::vector<T> means(forward.means.begin(), forward.means.end());
  const std::vector<T> rstds(forward.rstds.begin(), forward.rstds.end());
  std::vector<T> out(x.size());
  std::vector<T> sums(static_cast<std::size_t>(2 * size));
  const NormalizedGradient<T> rows = {.grad = grad.data(),
                                      .input = x.data(),
                                      .means = means.data(),
                                      .rstds = rstds.data(),
                                      .weight = has_weight ? weight.data() : nullptr,
                                      .out = out.data(),
                                      .size = size};
  functions.layer_norm_backward(rows, 0, 3, sums.data(), sums.data() + size);
  functions.layer_norm_backward(rows, 3, kRows, sums.data(), sums.data() + size);
  std::vector<double> expected(x.size());
  std::vector<double> expected_sums(sums.size());
  for (std::size_t r = 0; r < kRows; ++r) {
    const auto count = static_cast<std::size_t>(size);
    const auto own = [&](std::size_t i) {
      return static_cast<double>(grad[r * count + i]) *
             (has_weight ? static_cast<double>(weight[i]) : 1.0);
    };
    double mean = 0;
    double product = 0;
    for (std::size_t i = 0; i < count; ++i) {
      mean += own(i) / static_cast<double>(size);
      product += own(i) * forward.out[r * count + i] / static_cast<double>(size);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t place = r * count + i;
      expected[place] = (own(i) - mean - forward.out[place] * product) * forward.rstds[r];
      expected_sums[i] += static_cast<double>(grad[place]) * forward.out[place];
      expected_sums[count + i] += static_cast<double>(grad[place]);
    }
  }
  expect_close(out, expected, "gradient of " + std::to_string(size));
  expect_close(sums, expected_sums, "gradients of weight and bias of " + std::to_string(size));
}

// Of all sizes around the lanes' and parts' of a row.
template <typename T>
void check_all(const NormalizationRows<T>& functions) {
  for (std::int64_t size = 1; size <= 70; ++size) {
    check_layer_norm(functions, size, size % 2 == 0, size % 3 == 0);
    check_group_norm(functions, size);
    check_rms_norm(functions, size);
    check_layer_norm_backward(functions, size, size % 2 == 0);
  }
}

TEST(rows_are_normalized_everywhere) {
  check_all(baseline::normalization_rows<float>());
  check_all(baseline::normalization_rows<double>());
}

TEST(rows_are_normalized_by_avx2) {
#ifdef TORCH_XLA_AVX2_ROWS
  if (!base::has_cpu_feature("avx2") || !base::has_cpu_feature("fma") ||
      !base::has_cpu_feature("f16c")) {
    throw testing::Unsupported{"a processor with AVX2"};
  }
  check_all(avx2::normalization_rows<float>());
  check_all(avx2::normalization_rows<double>());
  EXPECT(&normalization_rows<float>() == &avx2::normalization_rows<float>());
  EXPECT(&normalization_rows<double>() == &avx2::normalization_rows<double>());
#else
  throw testing::Unsupported{"a build for x86-64"};
#endif
}

TEST(a_gradient_of_the_input_need_not_be_asked_for) {
  const std::vector<float> x = numbers<float>(6, 1);
  const std::vector<float> moments = {0.5F, 2.0F};
  std::vector<float> sums(6);
  normalization_rows<float>().layer_norm_backward({.grad = x.data(),
                                                   .input = x.data(),
                                                   .means = moments.data(),
                                                   .rstds = moments.data(),
                                                   .size = 3},
                                                  0, 2, sums.data(), sums.data() + 3);
  EXPECT_EQ(sums[3], x[0] + x[3]);
}

}  // namespace
}  // namespace torch_xla::rows

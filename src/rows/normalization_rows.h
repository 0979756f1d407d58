// Layer normalization with its gradients, and group normalization, row by row: a pass over memory
// each, where XLA's CPU backend goes over the rows again for each sum.
#pragma once

#include <cstdint>

namespace torch_xla::rows {

// Rows of `size` elements, of which each gets a mean and a reciprocal of its standard deviation.
template <typename T>
struct Normalized {
  const T* input = nullptr;
  const T* weight = nullptr;  // or nothing, as `bias`
  const T* bias = nullptr;
  T* out = nullptr;
  T* means = nullptr;  // or nothing: then by their root mean squares
  T* rstds = nullptr;
  std::int64_t size = 0;
  T eps = 0;
  // Of group normalization: a row is one of `groups` of an image's channels of `space` elements,
  // with a weight and a bias for each channel.
  std::int64_t groups = 1;
  std::int64_t space = 1;
};

template <typename T>
struct NormalizedGradient {
  const T* grad = nullptr;
  const T* input = nullptr;
  const T* means = nullptr;
  const T* rstds = nullptr;
  const T* weight = nullptr;  // or nothing
  T* out = nullptr;           // or nothing
  std::int64_t size = 0;
};

// Of the rows from `begin` to `end`.
template <typename T>
struct NormalizationRows {
  void (*layer_norm)(const Normalized<T>&, std::int64_t begin, std::int64_t end);
  void (*group_norm)(const Normalized<T>&, std::int64_t begin, std::int64_t end);
  // Adds what they give to the gradients of weight and bias, of `size` elements each.
  void (*layer_norm_backward)(const NormalizedGradient<T>&, std::int64_t begin, std::int64_t end,
                              T* grad_weight, T* grad_bias);
};

// normalization_rows.cpp is compiled for several processors.
namespace baseline {
template <typename T>
const NormalizationRows<T>& normalization_rows();
}
namespace avx2 {
template <typename T>
const NormalizationRows<T>& normalization_rows();
}

// Those of this processor.
template <typename T>
const NormalizationRows<T>& normalization_rows();

}  // namespace torch_xla::rows

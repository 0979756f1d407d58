// Compiled once for each namespace of lanes.h.
#include "rows/normalization_rows.h"

#include <cmath>
#include <type_traits>

#include "rows/lanes.h"

namespace torch_xla::rows::TORCH_XLA_ROWS {
namespace {

template <typename T>
struct Moments {
  T mean;
  T rstd;
};

template <typename T>
T mean_of(const T* row, std::int64_t size) {
  const T sum = sum_of<T>(size, [=]<typename V>(std::int64_t i) { return load<V>(row + i); });
  return sum / static_cast<T>(size);
}

template <typename T>
Moments<T> moments_about(T mean, const T* row, std::int64_t size, T eps) {
  const T squares = sum_of<T>(size, [=]<typename V>(std::int64_t i) -> V {
    const V off = load<V>(row + i) - mean;
    return off * off;
  });
  return {mean, 1 / std::sqrt(squares / static_cast<T>(size) + eps)};
}

// The moments of row `r`, which are kept.
template <typename T>
Moments<T> kept_moments(const Normalized<T>& rows, std::int64_t r) {
  const T* const row = rows.input + r * rows.size;
  const T mean = rows.means != nullptr ? mean_of(row, rows.size) : T(0);
  const Moments<T> moments = moments_about(mean, row, rows.size, rows.eps);
  if (rows.means != nullptr) rows.means[r] = mean;
  rows.rstds[r] = moments.rstd;
  return moments;
}

template <typename T>
void layer_norm(const Normalized<T>& rows, std::int64_t begin, std::int64_t end) {
  for (std::int64_t r = begin; r < end; ++r) {
    const Moments<T> moments = kept_moments(rows, r);
    const auto body = [x = rows.input + r * rows.size, y = rows.out + r * rows.size,
                       w = rows.weight, b = rows.bias, moments]<typename V>(std::int64_t i) {
      V value = (load<V>(x + i) - moments.mean) * moments.rstd;
      if (w != nullptr) value *= load<V>(w + i);
      if (b != nullptr) value += load<V>(b + i);
      store(y + i, value);
    };
    for_row<T>(rows.size, body);
  }
}

template <typename T>
void group_norm(const Normalized<T>& rows, std::int64_t begin, std::int64_t end) {
  const std::int64_t channels = rows.size / rows.space;
  for (std::int64_t r = begin; r < end; ++r) {
    const Moments<T> moments = kept_moments(rows, r);
    for (std::int64_t d = 0; d < channels; ++d) {
      const std::int64_t channel = r % rows.groups * channels + d;
      const T weight = rows.weight != nullptr ? rows.weight[channel] : T(1);
      const T bias = rows.bias != nullptr ? rows.bias[channel] : T(0);
      const T scale = moments.rstd * weight;
      const T shift = bias - moments.mean * scale;
      const std::int64_t start = r * rows.size + d * rows.space;
      for_row<T>(rows.space,
                 [=, x = rows.input + start, y = rows.out + start]<typename V>(std::int64_t i) {
                   store(y + i, V(load<V>(x + i) * scale + shift));
                 });
    }
  }
}

// The two sums over a row that its gradient needs.
template <typename T>
struct GradientSums {
  using Wide = typename Lanes<T>::Type;
  Wide lanes[2] = {};
  T rest[2] = {};

  template <typename V>
  void add(const V& own, const V& product) {
    if constexpr (std::is_same_v<V, T>) {
      rest[0] += own;
      rest[1] += product;
    } else {
      lanes[0] += own;
      lanes[1] += product;
    }
  }
  T mean(int which, std::int64_t size) const {
    return (total_of<T>(lanes[which]) + rest[which]) / static_cast<T>(size);
  }
};

template <typename T>
void gradient_of_row(const NormalizedGradient<T>& rows, std::int64_t r, T* grad_weight,
                     T* grad_bias) {
  const T* const g = rows.grad + r * rows.size;
  const T* const x = rows.input + r * rows.size;
  const T mean = rows.means[r];
  const T rstd = rows.rstds[r];
  const auto weighted = [w = rows.weight]<typename V>(std::int64_t i, const V& value) -> V {
    return w != nullptr ? value * load<V>(w + i) : value;
  };
  GradientSums<T> sums;
  for_row<T>(rows.size, [&]<typename V>(std::int64_t i) {
    const V value = load<V>(g + i);
    const V y = (load<V>(x + i) - mean) * rstd;
    const V own = weighted(i, value);
    sums.add(own, V(own * y));
    store(grad_weight + i, V(load<V>(grad_weight + i) + value * y));
    store(grad_bias + i, V(load<V>(grad_bias + i) + value));
  });
  if (rows.out == nullptr) return;
  const T mean_grad = sums.mean(0, rows.size);
  const T mean_product = sums.mean(1, rows.size);
  for_row<T>(rows.size, [=, to = rows.out + r * rows.size]<typename V>(std::int64_t i) {
    const V y = (load<V>(x + i) - mean) * rstd;
    const V own = weighted(i, load<V>(g + i));
    store(to + i, V((own - mean_grad - y * mean_product) * rstd));
  });
}

template <typename T>
void layer_norm_backward(const NormalizedGradient<T>& rows, std::int64_t begin, std::int64_t end,
                         T* grad_weight, T* grad_bias) {
  for (std::int64_t r = begin; r < end; ++r) gradient_of_row(rows, r, grad_weight, grad_bias);
}

}  // namespace

template <typename T>
const NormalizationRows<T>& normalization_rows() {
  static constexpr NormalizationRows<T> kRows = {layer_norm<T>, group_norm<T>,
                                                 layer_norm_backward<T>};
  return kRows;
}

template const NormalizationRows<float>& normalization_rows();
template const NormalizationRows<double>& normalization_rows();

}  // namespace torch_xla::rows::TORCH_XLA_ROWS

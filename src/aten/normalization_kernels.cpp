// Layer normalization with its gradients, and group normalization, as host kernels of our own:
// XLA's CPU backend goes over the rows again for each sum, and PyTorch's kernels can't write where
// they are told to. src/ops/normalization_call.cpp emits the calls.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <vector>

#include "aten/lanes.h"
#include "aten/parallel.h"
#include "runtime/host_kernels.h"

namespace torch_xla::aten {
namespace {

using runtime::HostCall;

// So much is worth another thread.
constexpr std::int64_t kElementsPerThread = 65536;

template <typename T>
struct Moments {
  T mean;
  T rstd;
};

template <typename T>
Moments<T> moments_of(const T* row, std::int64_t size, T eps) {
  const T sum = sum_of<T>(size, [=]<typename V>(std::int64_t i) { return load<V>(row + i); });
  const T mean = sum / static_cast<T>(size);
  const T squares = sum_of<T>(size, [=]<typename V>(std::int64_t i) -> V {
    const V off = load<V>(row + i) - mean;
    return off * off;
  });
  return {mean, 1 / std::sqrt(squares / static_cast<T>(size) + eps)};
}

template <typename T>
struct Forward {
  const HostCall& call;
  const T* input;
  const T* weight = nullptr;
  const T* bias = nullptr;
  T* out;
  T* means;
  T* rstds;
  std::int64_t rows;
  std::int64_t size;
  T eps;

  explicit Forward(const HostCall& given)
      : call(given),
        input(data_of<T>(call.input(0))),
        out(data_of<T>(call.output(0))),
        means(data_of<T>(call.output(1))),
        rstds(data_of<T>(call.output(2))),
        rows(count_of(call.output(1))),
        size(count_of(call.input(0)) / rows),
        eps(static_cast<T>(call.real("eps"))) {
    std::size_t next = 1;
    if (call.integer("has_weight") != 0) weight = data_of<T>(call.input(next++));
    if (call.integer("has_bias") != 0) bias = data_of<T>(call.input(next));
  }

  // Calls `normalize` with the row's number and its moments, which it keeps.
  template <typename Normalize>
  void run(const Normalize& normalize) const {
    in_parallel(call, rows, std::max<std::int64_t>(1, kElementsPerThread / size),
                [&](std::int64_t begin, std::int64_t end) {
                  for (std::int64_t r = begin; r < end; ++r) {
                    const Moments<T> moments = moments_of(input + r * size, size, eps);
                    normalize(r, moments);
                    means[r] = moments.mean;
                    rstds[r] = moments.rstd;
                  }
                });
  }
};

template <typename T>
void layer_norm_of(const HostCall& call) {
  const Forward<T> forward(call);
  forward.run([&](std::int64_t r, const Moments<T>& moments) {
    const auto body = [x = forward.input + r * forward.size, y = forward.out + r * forward.size,
                       w = forward.weight, b = forward.bias, moments]<typename V>(std::int64_t i) {
      V value = (load<V>(x + i) - moments.mean) * moments.rstd;
      if (w != nullptr) value *= load<V>(w + i);
      if (b != nullptr) value += load<V>(b + i);
      store(y + i, value);
    };
    for_row<T>(forward.size, body);
  });
}

// A row is a group of channels, each with a weight and a bias of its own.
template <typename T>
void group_norm_of(const HostCall& call) {
  const Forward<T> forward(call);
  const std::int64_t groups = call.integer("groups");
  const std::int64_t space = call.integer("space");
  const std::int64_t channels = forward.size / space;
  forward.run([&](std::int64_t r, const Moments<T>& moments) {
    for (std::int64_t d = 0; d < channels; ++d) {
      const std::int64_t channel = r % groups * channels + d;
      const T weight = forward.weight != nullptr ? forward.weight[channel] : T(1);
      const T bias = forward.bias != nullptr ? forward.bias[channel] : T(0);
      const T scale = moments.rstd * weight;
      const T shift = bias - moments.mean * scale;
      const std::int64_t start = r * forward.size + d * space;
      for_row<T>(space, [=, x = forward.input + start, y = forward.out + start]<typename V>(
                            std::int64_t i) { store(y + i, V(load<V>(x + i) * scale + shift)); });
    }
  });
}

template <typename T>
struct Backward {
  const T* grad;
  const T* input;
  const T* means;
  const T* rstds;
  const T* weight = nullptr;
  T* out = nullptr;
  std::int64_t size;

  // Adds what the row gives to the gradients of weight and bias.
  void row(std::int64_t r, T* grad_weight, T* grad_bias) const {
    using Wide = typename Lanes<T>::Type;
    const T* const g = grad + r * size;
    const T* const x = input + r * size;
    const T mean = means[r];
    const T rstd = rstds[r];
    const auto weighted = [w = weight]<typename V>(std::int64_t i, const V& value) -> V {
      return w != nullptr ? value * load<V>(w + i) : value;
    };
    std::array<Wide, 2> lanes = {};
    std::array<T, 2> rest = {};
    for_row<T>(size, [&]<typename V>(std::int64_t i) {
      const V value = load<V>(g + i);
      const V y = (load<V>(x + i) - mean) * rstd;
      const V own = weighted(i, value);
      auto& sums = [&]() -> auto& {
        if constexpr (std::is_same_v<V, T>) {
          return rest;
        } else {
          return lanes;
        }
      }();
      sums[0] += own;
      sums[1] += own * y;
      store(grad_weight + i, V(load<V>(grad_weight + i) + value * y));
      store(grad_bias + i, V(load<V>(grad_bias + i) + value));
    });
    if (out == nullptr) return;
    const T mean_grad = (total_of<T>(lanes[0]) + rest[0]) / static_cast<T>(size);
    const T mean_product = (total_of<T>(lanes[1]) + rest[1]) / static_cast<T>(size);
    for_row<T>(size, [=, to = out + r * size]<typename V>(std::int64_t i) {
      const V y = (load<V>(x + i) - mean) * rstd;
      const V own = weighted(i, load<V>(g + i));
      store(to + i, V((own - mean_grad - y * mean_product) * rstd));
    });
  }
};

// The gradients of weight and bias that ranges of rows give. They are added up in the rows' order,
// so that the same threads give the same bits.
template <typename T>
class Partial {
 public:
  void add(std::int64_t begin, std::vector<T> sums) {
    const std::lock_guard lock(mutex_);
    sums_.emplace(begin, std::move(sums));
  }
  void total(T* out, std::int64_t from, std::int64_t size) const {
    std::fill(out, out + size, T(0));
    for (const auto& [begin, sums] : sums_) {
      for (std::int64_t i = 0; i < size; ++i) out[i] += sums[static_cast<std::size_t>(from + i)];
    }
  }

 private:
  std::mutex mutex_;
  std::map<std::int64_t, std::vector<T>> sums_;
};

template <typename T>
void layer_norm_backward_of(const HostCall& call) {
  const std::int64_t rows = count_of(call.input(2));
  Backward<T> backward{.grad = data_of<T>(call.input(0)),
                       .input = data_of<T>(call.input(1)),
                       .means = data_of<T>(call.input(2)),
                       .rstds = data_of<T>(call.input(3)),
                       .size = count_of(call.input(1)) / rows};
  if (call.num_inputs() > 4) backward.weight = data_of<T>(call.input(4));
  const std::span<const std::int64_t> mask = call.integers("mask");
  if (mask[0] != 0) backward.out = data_of<T>(call.output(0));
  Partial<T> partial;
  const std::int64_t size = backward.size;
  in_parallel(call, rows, std::max<std::int64_t>(1, kElementsPerThread / size),
              [&](std::int64_t begin, std::int64_t end) {
                std::vector<T> sums(static_cast<std::size_t>(2 * size));
                for (std::int64_t r = begin; r < end; ++r) {
                  backward.row(r, sums.data(), sums.data() + size);
                }
                partial.add(begin, std::move(sums));
              });
  std::size_t next = mask[0] != 0 ? 1 : 0;
  for (std::int64_t i = 0; i < 2; ++i) {
    if (mask[static_cast<std::size_t>(i) + 1] == 0) continue;
    partial.total(data_of<T>(call.output(next++)), i * size, size);
  }
}

void layer_norm(const HostCall& call) {
  if (call.input(0).dtype == base::DType::kFloat32) return layer_norm_of<float>(call);
  layer_norm_of<double>(call);
}

void group_norm(const HostCall& call) {
  if (call.input(0).dtype == base::DType::kFloat32) return group_norm_of<float>(call);
  group_norm_of<double>(call);
}

void layer_norm_backward(const HostCall& call) {
  if (call.input(0).dtype == base::DType::kFloat32) return layer_norm_backward_of<float>(call);
  layer_norm_backward_of<double>(call);
}

const bool registered = [] {
  runtime::add_host_kernel("torch_xla.group_norm", group_norm);
  runtime::add_host_kernel("torch_xla.layer_norm", layer_norm);
  runtime::add_host_kernel("torch_xla.layer_norm_backward", layer_norm_backward);
  return true;
}();

}  // namespace
}  // namespace torch_xla::aten

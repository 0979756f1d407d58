// Layer normalization with its gradients, and others without, as host kernels of our own
// (rows/normalization_rows.h): PyTorch's can't write where they are told to.
// src/ops/normalization_call.cpp emits the calls.
#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "aten/call_arrays.h"
#include "aten/parallel.h"
#include "rows/normalization_rows.h"

namespace torch_xla::aten {
namespace {

using runtime::HostCall;

// So much is worth another thread.
constexpr std::int64_t kElementsPerThread = 16384;
constexpr std::int64_t kRangesPerThread = 4;

// Root mean squares come without means.
template <typename T>
rows::Normalized<T> rows_of(const HostCall& call) {
  const bool has_means = call.num_outputs() == 3;
  rows::Normalized<T> of = {.input = data_of<T>(call.input(0)),
                            .out = data_of<T>(call.output(0)),
                            .means = has_means ? data_of<T>(call.output(1)) : nullptr,
                            .rstds = data_of<T>(call.output(has_means ? 2 : 1)),
                            .size = count_of(call.input(0)) / count_of(call.output(1)),
                            .eps = static_cast<T>(call.real("eps"))};
  std::size_t next = 1;
  if (call.integer("has_weight") != 0) of.weight = data_of<T>(call.input(next++));
  if (call.integer("has_bias") != 0) of.bias = data_of<T>(call.input(next));
  return of;
}

// Rows of which a thread has enough to do.
std::int64_t grain_of(std::int64_t size) {
  return std::max<std::int64_t>(1, kElementsPerThread / size);
}

template <typename T>
void normalize(const HostCall& call, const rows::Normalized<T>& of,
               decltype(rows::NormalizationRows<T>::layer_norm) rows) {
  in_parallel(
      call, count_of(call.output(1)), grain_of(of.size),
      [&](std::int64_t begin, std::int64_t end) { rows(of, begin, end); }, kRangesPerThread);
}

template <typename T>
void layer_norm_of(const HostCall& call) {
  normalize(call, rows_of<T>(call), rows::normalization_rows<T>().layer_norm);
}

template <typename T>
void group_norm_of(const HostCall& call) {
  rows::Normalized<T> of = rows_of<T>(call);
  of.groups = call.integer("groups");
  of.space = call.integer("space");
  normalize(call, of, rows::normalization_rows<T>().group_norm);
}

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
  const std::int64_t num_rows = count_of(call.input(2));
  rows::NormalizedGradient<T> of = {.grad = data_of<T>(call.input(0)),
                                    .input = data_of<T>(call.input(1)),
                                    .means = data_of<T>(call.input(2)),
                                    .rstds = data_of<T>(call.input(3)),
                                    .size = count_of(call.input(1)) / num_rows};
  if (call.num_inputs() > 4) of.weight = data_of<T>(call.input(4));
  const std::span<const std::int64_t> mask = call.integers("mask");
  if (mask[0] != 0) of.out = data_of<T>(call.output(0));
  Partial<T> partial;
  const std::int64_t size = of.size;
  in_parallel(call, num_rows, grain_of(size), [&](std::int64_t begin, std::int64_t end) {
    std::vector<T> sums(static_cast<std::size_t>(2 * size));
    rows::normalization_rows<T>().layer_norm_backward(of, begin, end, sums.data(),
                                                      sums.data() + size);
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
  runtime::add_host_kernel("torch_xla.rms_norm", layer_norm);
  return true;
}();

}  // namespace
}  // namespace torch_xla::aten

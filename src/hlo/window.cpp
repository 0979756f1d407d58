// The arithmetic of windows, in the specification's terms: dilate, pad, count.
#include "hlo/window.h"

#include "hlo/checks.h"

namespace torch_xla::hlo {
namespace {

void fill(std::string_view op, std::string_view what, Dims& values, std::size_t rank) {
  if (values.empty()) values.assign(rank, 1);
  require_size(op, what, values.size(), static_cast<std::int64_t>(rank));
  for (const std::int64_t value : values) {
    require(value > 0, op, what, " must be positive, got ", Show(values));
  }
}

std::int64_t dilate(std::int64_t size, std::int64_t dilation) {
  return size == 0 ? 0 : (size - 1) * dilation + 1;
}

}  // namespace

Window require_window(std::string_view op, const Window& window, std::int64_t rank) {
  Window w = window;
  const auto n = static_cast<std::size_t>(rank);
  require_size(op, "window dimensions", w.dimensions.size(), rank);
  fill(op, "window dimensions", w.dimensions, n);
  fill(op, "window strides", w.strides, n);
  fill(op, "base dilations", w.base_dilations, n);
  fill(op, "window dilations", w.window_dilations, n);
  if (w.padding.empty()) w.padding.assign(n, {0, 0});
  require_size(op, "padding", w.padding.size(), rank);
  return w;
}

Dims window_counts(const Dims& operand, const Window& window) {
  Dims counts(operand.size());
  for (std::size_t i = 0; i < operand.size(); ++i) {
    const std::int64_t padded = dilate(operand[i], window.base_dilations[i]) +
                                window.padding[i].first + window.padding[i].second;
    const std::int64_t size = dilate(window.dimensions[i], window.window_dilations[i]);
    const bool is_empty = padded <= 0 || size > padded;
    counts[i] = is_empty ? 0 : (padded - size) / window.strides[i] + 1;
  }
  return counts;
}

}  // namespace torch_xla::hlo

// Windows over the spatial (last) dimensions, as all pooling operators describe them, and the parts
// of the pooling family.
#pragma once

#include "ops/registry.h"

namespace torch_xla::ops {

// One number per spatial dimension in each list.
struct PoolWindow {
  Dims kernel;
  Dims stride;
  Dims padding;
  Dims dilation;
  Dims input;   // sizes
  Dims output;  // sizes

  std::size_t rank() const { return kernel.size(); }
  // What the kernel covers along dimension `i`, its gaps included.
  std::int64_t extent(std::size_t i) const { return dilation[i] * (kernel[i] - 1) + 1; }
};

// From a pooling operator's arguments: a list of one stands for all dimensions, an empty stride for
// the kernel's sizes.
PoolWindow pool_window(const Value& input, std::size_t rank, const Dims& kernel, const Dims& stride,
                       const Dims& padding, const Dims& dilation, bool ceil_mode);
// The windows by which adaptive pooling to sizes that divide the input's goes; none if they do not.
std::optional<PoolWindow> even_window(const Value& input, const Dims& output);
// Adaptive pooling's window `i` of `count` over `size` elements is [start, end).
std::int64_t adaptive_start(std::int64_t i, std::int64_t count, std::int64_t size);
std::int64_t adaptive_end(std::int64_t i, std::int64_t count, std::int64_t size);

// `value` taken along `dim` in adaptive pooling's windows: [..., size, ...] to [..., count, longest
// window, ...]. A shorter window repeats its last element; `is_inside`, [count, longest window], is
// false of the repeats. The text does not grow with `count`, which is any number.
struct AdaptiveWindows {
  Value elements;
  Value is_inside;
};
AdaptiveWindows adaptive_windows(Value value, std::int64_t dim, std::int64_t count);

// The sizes before the last `spatial_rank`, then `spatial`.
Dims with_spatial(const Value& value, const Dims& spatial);
// `value` with elements of `fill` around the last dimensions; negative amounts take away.
Value pad_spatial(Value value, Value fill, const hlo::Padding& padding);
// `value` at the last dimensions' positions start, start + stride, ...: `counts` of them.
Value slice_spatial(Value value, const Dims& start, const Dims& stride, const Dims& counts);

void register_max_pooling(Registry& m);
void register_average_pooling(Registry& m);

}  // namespace torch_xla::ops

// The geometry of pooling windows. The operators are in max_pooling.cpp and average_pooling.cpp.
#include "ops/pooling.h"

#include <algorithm>

#include "base/error.h"
#include "ops/expression.h"

namespace torch_xla::ops {
namespace {

Dims expanded(const Dims& list, std::size_t rank, const char* name) {
  if (list.size() == 1) return Dims(rank, list[0]);
  base::check(list.size() == rank, name, " must either be a single int, or a tuple of ", rank,
              " ints");
  return list;
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  return a / b - static_cast<std::int64_t>(a % b != 0 && (a < 0) != (b < 0));
}

std::int64_t output_size(const PoolWindow& w, std::size_t i, bool ceil_mode) {
  const std::int64_t room = w.input[i] + 2 * w.padding[i] - w.extent(i);
  std::int64_t size = floor_divide(room + (ceil_mode ? w.stride[i] - 1 : 0), w.stride[i]) + 1;
  // The last window must start inside the input or its left padding.
  if (ceil_mode && (size - 1) * w.stride[i] >= w.input[i] + w.padding[i]) --size;
  return size;
}

}  // namespace

PoolWindow pool_window(const Value& input, std::size_t rank, const Dims& kernel, const Dims& stride,
                       const Dims& padding, const Dims& dilation, bool ceil_mode) {
  PoolWindow w;
  w.kernel = expanded(kernel, rank, "kernel_size");
  w.stride = stride.empty() ? w.kernel : expanded(stride, rank, "stride");
  w.padding = expanded(padding, rank, "padding");
  w.dilation = expanded(dilation, rank, "dilation");
  base::check(static_cast<std::size_t>(input.rank()) >= rank, "pooling expects ", rank + 1, "D or ",
              rank + 2, "D input, got ", base::to_string(input.dims()));
  w.input = trailing_dims(input.dims(), rank);
  for (std::size_t i = 0; i < rank; ++i) {
    base::check(w.kernel[i] > 0, "kernel size should be greater than zero, but got ",
                base::to_string(w.kernel));
    base::check(w.stride[i] > 0, "stride should not be zero");
    base::check(w.dilation[i] > 0, "dilation should be greater than zero, but got ",
                base::to_string(w.dilation));
    base::check(w.padding[i] >= 0, "pad must be non-negative, but got pad: ", w.padding[i]);
    base::check(w.padding[i] * 2 <= w.extent(i),
                "pad should be at most half of effective kernel size, but got pad=", w.padding[i],
                ", kernel_size=", w.kernel[i], " and dilation=", w.dilation[i]);
    w.output.push_back(output_size(w, i, ceil_mode));
  }
  base::check(*std::min_element(w.output.begin(), w.output.end()) >= 1,
              "Given input size: ", base::to_string(w.input),
              ". Calculated output size: ", base::to_string(w.output),
              ". Output size is too small");
  return w;
}

std::optional<PoolWindow> even_window(const Value& input, const Dims& output) {
  PoolWindow w;
  w.input = trailing_dims(input.dims(), output.size());
  w.output = output;
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (output[i] == 0 || w.input[i] == 0 || w.input[i] % output[i] != 0) return std::nullopt;
    w.kernel.push_back(w.input[i] / output[i]);
  }
  w.stride = w.kernel;
  w.padding.assign(output.size(), 0);
  w.dilation.assign(output.size(), 1);
  return w;
}

std::int64_t adaptive_start(std::int64_t i, std::int64_t count, std::int64_t size) {
  return i * size / count;
}
std::int64_t adaptive_end(std::int64_t i, std::int64_t count, std::int64_t size) {
  return ((i + 1) * size + count - 1) / count;
}

AdaptiveWindows adaptive_windows(Value value, std::int64_t dim, std::int64_t count) {
  const std::int64_t size = value.dim(dim);
  // One more than the least that all have, where windows begin and end inside of elements.
  const std::int64_t longest = (size + count - 1) / count + (size % count == 0 ? 0 : 1);
  const Shape table{DType::kInt64, {count, longest}};
  const Value i = hlo::iota(value.builder(), table, 0);
  const Value t = hlo::iota(value.builder(), table, 1);
  const auto number = [&](std::int64_t n) { return hlo::full(value.builder(), table, n); };
  const Value start = hlo::divide(i * number(size), number(count));
  const Value end = hlo::divide((i + number(1)) * number(size) + number(count - 1), number(count));
  const Value position = start + t;
  const Value indices = hlo::minimum(position, end - number(1));
  hlo::GatherDimensionNumbers numbers;
  Dims slice_sizes = value.dims();
  slice_sizes[static_cast<std::size_t>(dim)] = 1;
  for (std::int64_t d = 0; d < value.rank(); ++d) {
    if (d != dim) numbers.offset_dims.push_back(d < dim ? d : d + 1);
  }
  numbers.collapsed_slice_dims = {dim};
  numbers.start_index_map = {dim};
  numbers.index_vector_dim = 2;
  return {hlo::gather(value, indices, numbers, slice_sizes), less(position, end)};
}

Dims with_spatial(const Value& value, const Dims& spatial) {
  Dims dims = leading_dims(value.dims(), spatial.size());
  dims.insert(dims.end(), spatial.begin(), spatial.end());
  return dims;
}

Value pad_spatial(Value value, Value fill, const hlo::Padding& padding) {
  const std::size_t leading = value.dims().size() - padding.size();
  Dims low(value.dims().size(), 0);
  Dims high = low;
  bool is_needed = false;
  for (std::size_t i = 0; i < padding.size(); ++i) {
    low[leading + i] = padding[i].first;
    high[leading + i] = padding[i].second;
    is_needed = is_needed || padding[i].first != 0 || padding[i].second != 0;
  }
  return is_needed ? hlo::pad(value, fill, low, high) : value;
}

Value slice_spatial(Value value, const Dims& start, const Dims& stride, const Dims& counts) {
  const std::size_t leading = value.dims().size() - start.size();
  Dims begin(value.dims().size(), 0);
  Dims limit = value.dims();
  Dims step(value.dims().size(), 1);
  for (std::size_t i = 0; i < start.size(); ++i) {
    begin[leading + i] = start[i];
    limit[leading + i] = counts[i] == 0 ? start[i] : start[i] + (counts[i] - 1) * stride[i] + 1;
    step[leading + i] = stride[i];
  }
  return hlo::slice(value, begin, limit, step);
}

void register_pooling(Registry& m) {
  register_max_pooling(m);
  register_average_pooling(m);
}

}  // namespace torch_xla::ops

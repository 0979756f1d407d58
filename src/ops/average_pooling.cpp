// Average pooling, regular and adaptive, with gradients. Sums of float16 and bfloat16 are float32.
#include "ops/expression.h"
#include "ops/pooling.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

struct Divisor {
  bool count_include_pad = true;
  std::optional<std::int64_t> override;
};

// How many elements output `o` along dimension `i` counts.
std::int64_t counted(const PoolWindow& w, std::size_t i, std::int64_t o, bool count_include_pad) {
  std::int64_t start = o * w.stride[i] - w.padding[i];
  std::int64_t end = std::min(start + w.kernel[i], w.input[i] + w.padding[i]);
  if (!count_include_pad) {
    start = std::max<std::int64_t>(start, 0);
    end = std::min(end, w.input[i]);
  }
  return end - start;
}

// `sums` [..., output] divided by the numbers of elements: one number where all windows count the
// same, else the product of one list per dimension.
Value divided(Value sums, const PoolWindow& w, const Divisor& divisor) {
  if (divisor.override.has_value()) {
    base::check(*divisor.override != 0, "divisor must be not zero");
    return sums / static_cast<double>(*divisor.override);
  }
  double common = 1;
  Value uneven;
  for (std::size_t i = 0; i < w.rank(); ++i) {
    Dims counts;
    for (std::int64_t o = 0; o < w.output[i]; ++o) {
      counts.push_back(counted(w, i, o, divisor.count_include_pad));
    }
    if (counts == Dims(counts.size(), counts[0])) {
      common *= static_cast<double>(counts[0]);
      continue;
    }
    const Value list = hlo::constant(sums.builder(), {sums.dtype(), {std::ssize(counts)}}, counts);
    const auto dim = static_cast<std::int64_t>(sums.dims().size() - w.rank() + i);
    const Value factor = hlo::broadcast_in_dim(list, sums.dims(), {dim});
    uneven = uneven ? uneven * factor : factor;
  }
  if (!uneven) return sums / common;
  return sums / (common == 1 ? uneven : uneven * common);
}

hlo::Window leading_window(std::size_t leading) {
  hlo::Window window;
  window.dimensions.assign(leading, 1);
  window.strides.assign(leading, 1);
  window.base_dilations.assign(leading, 1);
  window.padding.assign(leading, {0, 0});
  return window;
}

Value window_sums(Value self, const PoolWindow& w) {
  const std::size_t leading = self.dims().size() - w.rank();
  hlo::Window window = leading_window(leading);
  window.base_dilations.clear();
  for (std::size_t i = 0; i < w.rank(); ++i) {
    window.dimensions.push_back(w.kernel[i]);
    window.strides.push_back(w.stride[i]);
    const std::int64_t needed = (w.output[i] - 1) * w.stride[i] + w.kernel[i];
    window.padding.emplace_back(w.padding[i], needed - w.input[i] - w.padding[i]);
  }
  return hlo::reduce_window(self, scalar(self.builder(), self.dtype(), 0), window, hlo::add);
}

// Whether the windows cut the input into blocks, nothing left over.
bool is_partition(const PoolWindow& w) {
  for (std::size_t i = 0; i < w.rank(); ++i) {
    if (w.kernel[i] != w.stride[i] || w.padding[i] != 0 ||
        w.output[i] * w.stride[i] != w.input[i]) {
      return false;
    }
  }
  return true;
}

// The sizes of `value` with each of the last dimensions split into (output, kernel), and where the
// outputs are among them.
struct Blocks {
  Dims dims;
  Dims outputs;
  Dims kernels;
};
Blocks blocks(const Value& value, const PoolWindow& w) {
  Blocks out;
  const std::size_t leading = value.dims().size() - w.rank();
  for (std::size_t i = 0; i < leading; ++i) {
    out.outputs.push_back(static_cast<std::int64_t>(i));
    out.dims.push_back(value.dims()[i]);
  }
  for (std::size_t i = 0; i < w.rank(); ++i) {
    out.outputs.push_back(std::ssize(out.dims));
    out.dims.push_back(w.output[i]);
    out.kernels.push_back(std::ssize(out.dims));
    out.dims.push_back(w.kernel[i]);
  }
  return out;
}

// The adjoint of `window_sums`: every input element gets the gradients of the windows it is in.
Value spread_to_windows(Value grad, Value self, const PoolWindow& w) {
  if (is_partition(w)) {
    const Blocks b = blocks(self, w);
    return hlo::reshape(hlo::broadcast_in_dim(grad, b.dims, b.outputs), self.dims());
  }
  hlo::Window window = leading_window(grad.dims().size() - w.rank());
  for (std::size_t i = 0; i < w.rank(); ++i) {
    window.dimensions.push_back(w.kernel[i]);
    window.strides.push_back(1);
    window.base_dilations.push_back(w.stride[i]);
    const std::int64_t dilated = (w.output[i] - 1) * w.stride[i] + 1;
    const std::int64_t low = w.kernel[i] - 1 - w.padding[i];
    window.padding.emplace_back(low, w.input[i] + w.kernel[i] - 1 - dilated - low);
  }
  return hlo::reduce_window(grad, scalar(grad.builder(), grad.dtype(), 0), window, hlo::add);
}

Value avg_pool(Value self, const PoolWindow& w, const Divisor& divisor) {
  const DType dtype = accumulate_dtype(self.dtype());
  check_implemented(self.dtype() != DType::kBool, w.rank() == 2 ? "avg_pool2d" : "avg_pool3d",
                    dtype);
  const Value input = convert(self, dtype);
  Value sums;
  if (is_partition(w) && base::num_elements(w.output) == 1) {
    const Blocks b = blocks(self, w);
    sums = hlo::reshape(reduce_sum(hlo::reshape(input, b.dims), b.kernels),
                        with_spatial(self, w.output));
  } else {
    sums = window_sums(input, w);
  }
  return convert(divided(sums, w, divisor), self.dtype());
}

Value avg_pool_backward(Value grad_output, Value self, const PoolWindow& w,
                        const Divisor& divisor) {
  const Value grad = convert(grad_output, accumulate_dtype(grad_output.dtype()));
  return convert(spread_to_windows(divided(grad, w, divisor), self, w), self.dtype());
}

template <std::size_t kRank>
Value avg_pool_nd(Value self, Dims kernel_size, Dims stride, Dims padding, bool ceil_mode,
                  bool count_include_pad, std::optional<std::int64_t> divisor_override) {
  const PoolWindow w = pool_window(self, kRank, kernel_size, stride, padding, {1}, ceil_mode);
  return avg_pool(self, w, {count_include_pad, divisor_override});
}

template <std::size_t kRank>
Value avg_pool_nd_backward(Value grad_output, Value self, Dims kernel_size, Dims stride,
                           Dims padding, bool ceil_mode, bool count_include_pad,
                           std::optional<std::int64_t> divisor_override) {
  const PoolWindow w = pool_window(self, kRank, kernel_size, stride, padding, {1}, ceil_mode);
  return avg_pool_backward(grad_output, self, w, {count_include_pad, divisor_override});
}

// ---- Adaptive ----

// With more windows than this they are gathered, so that the text is bounded.
constexpr std::int64_t kMostSlices = 64;

// The sums of adaptive pooling's windows along `dim`. A window of one number is what most are, so
// few of them are slices, each reduced.
Value adaptive_sums(Value value, std::int64_t dim, std::int64_t count) {
  if (count > kMostSlices) {
    const AdaptiveWindows windows = adaptive_windows(value, dim, count);
    const Value is_inside =
        hlo::broadcast_in_dim(windows.is_inside, windows.elements.dims(), {dim, dim + 1});
    return reduce_sum(where(is_inside, windows.elements, 0), {dim + 1});
  }
  const auto d = static_cast<std::size_t>(dim);
  const Dims ones(value.dims().size(), 1);
  hlo::Values parts;
  for (std::int64_t i = 0; i < count; ++i) {
    Dims begin(value.dims().size(), 0);
    Dims limit = value.dims();
    begin[d] = adaptive_start(i, count, value.dim(dim));
    limit[d] = adaptive_end(i, count, value.dim(dim));
    Dims dims = value.dims();
    dims[d] = 1;
    parts.push_back(hlo::reshape(reduce_sum(hlo::slice(value, begin, limit, ones), {dim}), dims));
  }
  return hlo::concatenate(parts, dim);
}

// The lengths of adaptive pooling's windows of `size` elements, along `dim` of the shape.
Value window_lengths(hlo::Builder& builder, const Shape& shape, std::int64_t dim,
                     std::int64_t size) {
  const std::int64_t count = shape.dims[static_cast<std::size_t>(dim)];
  Value list;
  if (count > kMostSlices) {
    const Value i = hlo::iota(builder, {DType::kInt64, {count}}, 0);
    const auto number = [&](std::int64_t n) { return hlo::full_like(i, n); };
    const Value scaled = i * number(size);
    const Value end = hlo::divide(scaled + number(size + count - 1), number(count));
    list = convert(end - hlo::divide(scaled, number(count)), shape.dtype);
  } else {
    Dims lengths;
    for (std::int64_t i = 0; i < count; ++i) {
      lengths.push_back(adaptive_end(i, count, size) - adaptive_start(i, count, size));
    }
    list = hlo::constant(builder, {shape.dtype, {count}}, lengths);
  }
  return hlo::broadcast_in_dim(list, shape.dims, {dim});
}

void check_adaptive(const Value& self, const Dims& output_size, std::int64_t rank) {
  const std::string name = base::str("adaptive_avg_pool", rank, "d");
  base::check(std::ssize(output_size) == rank, name, ": output_size must be ", rank);
  base::check(self.rank() == rank + 1 || self.rank() == rank + 2, name, "(): Expected ", rank + 1,
              "D or ", rank + 2, "D tensor, but got ", base::to_string(self.dims()));
  for (std::int64_t i = 1; i <= rank; ++i) {
    base::check(self.dim(self.rank() - i) > 0, name,
                "(): Expected input to have non-zero size for non-batch dimensions, but input has "
                "sizes ",
                base::to_string(self.dims()), " with dimension ", self.rank() - i, " being empty");
  }
  check_implemented(!base::is_integral(self.dtype()), name, self.dtype());
}

Value adaptive_avg_pool(Value self, const Dims& output_size, std::int64_t rank) {
  check_adaptive(self, output_size, rank);
  const Dims dims = with_spatial(self, output_size);
  if (base::num_elements(dims) == 0) return full(self.builder(), {self.dtype(), dims}, 0);
  if (const std::optional<PoolWindow> w = even_window(self, output_size)) {
    return avg_pool(self, *w, {});
  }
  Value value = convert(self, accumulate_dtype(self.dtype()));
  for (std::size_t i = output_size.size(); i-- > 0;) {
    const auto dim = static_cast<std::int64_t>(dims.size() - output_size.size() + i);
    value = adaptive_sums(value, dim, output_size[i]);
    value = value / window_lengths(self.builder(), value.type(), dim, self.dim(dim));
  }
  return convert(value, self.dtype());
}

// The windows in which one of `size` elements lies follow each other, and are what window that many
// of `count` elements would hold: adaptive pooling is its own transpose.
Value adaptive_avg_pool_backward(Value grad_output, Value self, std::size_t spatial_rank) {
  const Dims output = trailing_dims(grad_output.dims(), spatial_rank);
  if (self.num_elements() == 0 || grad_output.num_elements() == 0) return full_like(self, 0);
  if (const std::optional<PoolWindow> w = even_window(self, output)) {
    return avg_pool_backward(grad_output, self, *w, {});
  }
  Value value = convert(grad_output, accumulate_dtype(grad_output.dtype()));
  for (std::size_t i = 0; i < spatial_rank; ++i) {
    const auto dim = static_cast<std::int64_t>(self.dims().size() - spatial_rank + i);
    value = value / window_lengths(self.builder(), value.type(), dim, self.dim(dim));
    value = adaptive_sums(value, dim, self.dim(dim));
  }
  return convert(value, self.dtype());
}

}  // namespace

void register_average_pooling(Registry& m) {
  m.impl("avg_pool2d", avg_pool_nd<2>);
  m.impl("avg_pool3d", avg_pool_nd<3>);
  m.impl("avg_pool2d_backward", avg_pool_nd_backward<2>);
  m.impl("avg_pool3d_backward", avg_pool_nd_backward<3>);
  m.impl("_adaptive_avg_pool2d",
         [](Value self, Dims output_size) { return adaptive_avg_pool(self, output_size, 2); });
  m.impl("_adaptive_avg_pool3d",
         [](Value self, Dims output_size) { return adaptive_avg_pool(self, output_size, 3); });
  m.impl("_adaptive_avg_pool2d_backward", [](Value grad_output, Value self) {
    return adaptive_avg_pool_backward(grad_output, self, 2);
  });
  m.impl("_adaptive_avg_pool3d_backward", [](Value grad_output, Value self) {
    return adaptive_avg_pool_backward(grad_output, self, 3);
  });
}

}  // namespace torch_xla::ops

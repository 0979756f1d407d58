// Max pooling: regular, adaptive and its inverse, with gradients. Small windows are taken apart
// into strided slices, one per position in the window, because elementwise work on slices is what
// XLA does best on a CPU: there select_and_scatter takes 60 times as long as the gradient below,
// and a reduce_window twice as long as the slices. Values and indices are computed apart, so that a
// program which does not use the indices does not compute them.
#include <limits>
#include <numeric>

#include "ops/expression.h"
#include "ops/pooling.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

// Windows of more elements are reduced by reduce_window, and their gradients scattered.
constexpr std::int64_t kMostSlices = 32;

constexpr std::int64_t kNoIndex = std::numeric_limits<std::int32_t>::max();

struct Pooled {
  Value values;
  Value indices;  // int64, flat in the input's spatial dimensions
};

// int32 does for every plane that fits into memory, and is faster.
DType index_dtype(const Dims& spatial) {
  return base::num_elements(spatial) < kNoIndex ? DType::kInt32 : DType::kInt64;
}

Dims row_major_strides(const Dims& sizes) {
  Dims strides(sizes.size(), 1);
  for (std::size_t i = sizes.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * sizes[i];
  return strides;
}

// Calls `f` with every tuple below `limits`, in row-major order.
template <typename F>
void for_each_position(const Dims& limits, const F& f) {
  Dims position(limits.size(), 0);
  for (std::int64_t n = base::num_elements(limits); n > 0; --n) {
    f(position);
    for (std::size_t i = limits.size(); i-- > 0;) {
      if (++position[i] < limits[i]) break;
      position[i] = 0;
    }
  }
}

// The numbers 0, factor, 2 * factor, ... plus `offset`, but at least `least`, along one dimension.
Value arithmetic_sequence(hlo::Builder& builder, const Shape& shape, std::int64_t dim,
                          std::int64_t factor, std::int64_t offset, std::int64_t least) {
  Value out = hlo::iota(builder, shape, dim);
  if (factor != 1) out = out * static_cast<double>(factor);
  if (offset != 0) out = out + static_cast<double>(offset);
  if (offset < least) out = max(out, static_cast<double>(least));
  return out;
}

// True where `candidate` replaces `best` as the maximum: a NaN does, and nothing replaces it.
Value is_greater(Value candidate, Value best) {
  const Value greater_than = hlo::gt(candidate, best);
  return base::is_floating(candidate.dtype()) ? greater_than | is_nan(candidate) : greater_than;
}

// (value, index) of the greater of two; the lesser index of equal ones.
hlo::Values greater_pair(std::span<const Value> v) {
  const Value is_tie = hlo::eq(v[2], v[0]) & hlo::lt(v[3], v[1]);
  Value takes_new = hlo::gt(v[2], v[0]) | is_tie;
  if (base::is_floating(v[0].dtype())) {
    takes_new = (takes_new | is_nan(v[2])) & ~(is_nan(v[0]) & ~is_nan(v[2]));
  }
  return {hlo::select(takes_new, v[2], v[0]), hlo::select(takes_new, v[3], v[1])};
}

// The flat index of every element of the last dimensions.
Value flat_indices(const Value& value, const Dims& spatial, DType dtype) {
  const Value flat = hlo::iota(value.builder(), {dtype, {base::num_elements(spatial)}}, 0);
  return broadcast_to(hlo::reshape(flat, spatial), value.dims());
}

Value pad_for_windows(Value self, const PoolWindow& w) {
  hlo::Padding padding;
  for (std::size_t i = 0; i < w.rank(); ++i) {
    const std::int64_t needed = (w.output[i] - 1) * w.stride[i] + w.extent(i);
    padding.emplace_back(w.padding[i],
                         std::max<std::int64_t>(needed - w.input[i] - w.padding[i], 0));
  }
  return pad_spatial(self, lowest(self.builder(), self.dtype()), padding);
}

Pooled pool_by_slices(Value self, const PoolWindow& w) {
  const Value padded = pad_for_windows(self, w);
  const DType dtype = index_dtype(w.input);
  const Dims strides = row_major_strides(w.input);
  const Shape index_shape{dtype, with_spatial(self, w.output)};
  hlo::Builder& b = self.builder();
  const auto leading = static_cast<std::int64_t>(index_shape.dims.size() - w.rank());
  // Where the window starts, and its first element inside the input: what is chosen when all is the
  // lowest value.
  Value start = full(b, index_shape, 0);
  Value first = start;
  for (std::size_t i = 0; i < w.rank(); ++i) {
    const std::int64_t dim = leading + static_cast<std::int64_t>(i);
    const auto along = [&](std::int64_t least) {
      return arithmetic_sequence(b, index_shape, dim, w.stride[i], -w.padding[i], least) *
             static_cast<double>(strides[i]);
    };
    start = start + along(-w.padding[i]);
    first = first + along(0);
  }
  Value best;
  Value value;
  Value offset = first - start;
  for_each_position(w.kernel, [&](const Dims& position) {
    Dims at = position;
    std::int64_t flat = 0;
    for (std::size_t i = 0; i < w.rank(); ++i) {
      at[i] *= w.dilation[i];
      flat += at[i] * strides[i];
    }
    const Value slice = slice_spatial(padded, at, w.stride, w.output);
    if (!best) {
      best = value = slice;
      return;
    }
    const Value takes_new = is_greater(slice, best);
    best = hlo::select(takes_new, slice, best);
    value = hlo::maximum(value, slice);
    offset = where(takes_new, static_cast<double>(flat), offset);
  });
  return {value, convert(start + offset, DType::kInt64)};
}

Pooled pool_by_reduce_window(Value self, const PoolWindow& w) {
  const DType dtype = index_dtype(w.input);
  hlo::Builder& b = self.builder();
  const Dims leading(self.dims().size() - w.rank(), 1);
  hlo::Window window;
  const auto with_leading = [&](const Dims& list) {
    Dims out = leading;
    out.insert(out.end(), list.begin(), list.end());
    return out;
  };
  window.dimensions = with_leading(w.kernel);
  window.strides = with_leading(w.stride);
  window.window_dilations = with_leading(w.dilation);
  window.padding.assign(leading.size(), {0, 0});
  for (std::size_t i = 0; i < w.rank(); ++i) {
    const std::int64_t needed = (w.output[i] - 1) * w.stride[i] + w.extent(i);
    window.padding.emplace_back(w.padding[i], needed - w.input[i] - w.padding[i]);
  }
  const Value least = lowest(b, self.dtype());
  const Value values = hlo::reduce_window(self, least, window, hlo::maximum);
  const hlo::Values pairs =
      hlo::reduce_window({self, flat_indices(self, w.input, dtype)},
                         {least, scalar(b, dtype, kNoIndex)}, window, greater_pair);
  return {values, convert(pairs[1], DType::kInt64)};
}

Pooled max_pool(Value self, const PoolWindow& w) {
  check_implemented(self.dtype() != DType::kBool, w.rank() == 2 ? "max_pool2d" : "max_pool3d",
                    self.dtype());
  if (base::num_elements(w.kernel) <= kMostSlices) return pool_by_slices(self, w);
  return pool_by_reduce_window(self, w);
}

// `planes` [N, P] and flat `indices`, `updates` [N, M], brought together by `combine`.
Value scatter_planes(Value planes, Value indices, Value updates, const hlo::BinaryRegion& combine) {
  hlo::ScatterDimensionNumbers numbers;
  numbers.inserted_window_dims = {1};
  numbers.input_batching_dims = {0};
  numbers.scatter_indices_batching_dims = {0};
  numbers.scatter_dims_to_operand_dims = {1};
  numbers.index_vector_dim = 2;
  return hlo::scatter(planes, indices, updates, numbers, combine);
}

// Elements of `source` put at `indices`, flat in the last dimensions, of a zero tensor with `dims`.
Value scatter_spatial(Value source, Value indices, const Dims& dims, std::size_t spatial_rank,
                      const hlo::BinaryRegion& combine) {
  const auto split = [&](const Dims& d) {
    return Dims{base::num_elements(leading_dims(d, spatial_rank)),
                base::num_elements(trailing_dims(d, spatial_rank))};
  };
  if (base::num_elements(dims) == 0) return full(source.builder(), {source.dtype(), dims}, 0);
  const Value planes = full(source.builder(), {source.dtype(), split(dims)}, 0);
  const Dims flat = split(source.dims());
  const Value out =
      scatter_planes(planes, hlo::reshape(indices, flat), hlo::reshape(source, flat), combine);
  return hlo::reshape(out, dims);
}

// ---- The gradient for small windows ----
// Input position q * stride + r gets its gradient from the outputs q - m, where the position t in
// the window has t * dilation - padding = r + m * stride. So the positions with one remainder r are
// sums of shifted, masked gradients without gaps, and the remainders are interleaved at the end.

// (q - m, t) for one dimension: which window position reaches remainder r, with which shift m.
struct Reach {
  std::int64_t position;
  std::int64_t shift;
};

std::vector<Reach> reaches(const PoolWindow& w, std::size_t i, std::int64_t remainder) {
  std::vector<Reach> out;
  for (std::int64_t t = 0; t < w.kernel[i]; ++t) {
    const std::int64_t distance = t * w.dilation[i] - w.padding[i] - remainder;
    if (distance % w.stride[i] == 0) out.push_back({t, distance / w.stride[i]});
  }
  return out;
}

// The gradients by remainder, to one tensor: a last dimension of strides is added for each spatial
// dimension in turn and merged into it.
Value interleaved(const std::vector<Value>& parts, const Dims& strides, std::size_t spatial_rank) {
  std::vector<Value> values = parts;
  for (std::size_t i = spatial_rank; i-- > 0;) {
    const auto stride = static_cast<std::size_t>(strides[i]);
    if (stride == 1) continue;
    std::vector<Value> merged;
    for (std::size_t begin = 0; begin < values.size(); begin += stride) {
      const Dims dims = values[begin].dims();
      const auto at = static_cast<std::int64_t>(dims.size() - spatial_rank + i) + 1;
      Dims separate = dims;
      separate.insert(separate.begin() + at, 1);
      hlo::Values rows;
      for (std::size_t r = 0; r < stride; ++r) {
        rows.push_back(hlo::reshape(values[begin + r], separate));
      }
      Dims joined = dims;
      joined[static_cast<std::size_t>(at) - 1] *= strides[i];
      merged.push_back(hlo::reshape(hlo::concatenate(rows, at), joined));
    }
    values = std::move(merged);
  }
  return values[0];
}

class GradientBySlices {
 public:
  GradientBySlices(Value grad_output, Value indices, const PoolWindow& w)
      : w_(w), strides_(row_major_strides(w.input)) {
    hlo::Builder& b = grad_output.builder();
    const DType dtype = index_dtype(w.input);
    hlo::Padding padding;
    for (std::size_t i = 0; i < w.rank(); ++i) {
      std::int64_t low = 0;
      std::int64_t high = 0;
      counts_.push_back((w.input[i] + w.stride[i] - 1) / w.stride[i]);
      for (std::int64_t r = 0; r < w.stride[i]; ++r) {
        for (const Reach& reach : reaches(w, i, r)) {
          low = std::max(low, reach.shift);
          high = std::max(high, counts_[i] - reach.shift - w.output[i]);
        }
      }
      padding.emplace_back(low, high);
      low_.push_back(low);
    }
    grad_ = pad_spatial(grad_output, scalar(b, grad_output.dtype(), 0), padding);
    indices_ = pad_spatial(convert(indices, dtype), scalar(b, dtype, -1), padding);
    const Shape shape{dtype, with_spatial(grad_output, counts_)};
    base_ = full(b, shape, 0);
    for (std::size_t i = 0; i < w.rank(); ++i) {
      const auto dim = static_cast<std::int64_t>(shape.dims.size() - w.rank() + i);
      base_ = base_ + arithmetic_sequence(b, shape, dim, w.stride[i] * strides_[i], 0, 0);
    }
  }

  Value emit() const {
    std::vector<Value> parts;
    for_each_position(w_.stride, [&](const Dims& remainder) { parts.push_back(part(remainder)); });
    const Value whole = interleaved(parts, w_.stride, w_.rank());
    return slice_spatial(whole, Dims(w_.rank(), 0), Dims(w_.rank(), 1), w_.input);
  }

 private:
  // The gradients of the input positions with these remainders.
  Value part(const Dims& remainder) const {
    std::vector<std::vector<Reach>> along;
    Dims limits;
    std::int64_t flat = 0;
    for (std::size_t i = 0; i < w_.rank(); ++i) {
      along.push_back(reaches(w_, i, remainder[i]));
      limits.push_back(std::ssize(along.back()));
      flat += remainder[i] * strides_[i];
    }
    const Value own_index = flat == 0 ? base_ : base_ + static_cast<double>(flat);
    const Value zero = full(grad_.builder(), {grad_.dtype(), base_.dims()}, 0);
    Value sum;
    for_each_position(limits, [&](const Dims& choice) {
      Dims start = low_;
      for (std::size_t i = 0; i < w_.rank(); ++i) {
        start[i] -= along[i][static_cast<std::size_t>(choice[i])].shift;
      }
      const Dims ones(w_.rank(), 1);
      const Value is_chosen = hlo::eq(slice_spatial(indices_, start, ones, counts_), own_index);
      const Value term = hlo::select(is_chosen, slice_spatial(grad_, start, ones, counts_), zero);
      sum = sum ? sum + term : term;
    });
    return sum ? sum : zero;
  }

  const PoolWindow& w_;
  Dims strides_;  // of the input's flat index
  Dims counts_;   // input positions of one remainder
  Dims low_;      // elements added before grad_output's first
  Value grad_;
  Value indices_;
  Value base_;  // the flat index of the input positions with remainder zero
};

Value max_pool_backward(Value grad_output, Value self, const PoolWindow& w, Value indices) {
  base::check(grad_output.dtype() == self.dtype(), "Expected dtype ",
              scalar_type_name(self.dtype()), " for `gradOutput` but got dtype ",
              scalar_type_name(grad_output.dtype()));
  if (self.num_elements() == 0) return full_like(self, 0);
  const Value grad = convert(grad_output, accumulate_dtype(self.dtype()));
  const bool by_slices =
      base::num_elements(w.kernel) <= kMostSlices && base::num_elements(w.stride) <= kMostSlices;
  const Value out = by_slices ? GradientBySlices(grad, indices, w).emit()
                              : scatter_spatial(grad, indices, self.dims(), w.rank(), hlo::add);
  return convert(out, self.dtype());
}

std::vector<Value> results(const Pooled& pooled) { return {pooled.values, pooled.indices}; }

// ---- Adaptive ----

void check_adaptive(const Value& self, const Dims& output_size, std::int64_t rank) {
  const std::string name = base::str("adaptive_max_pool", rank, "d()");
  base::check(std::ssize(output_size) == rank, name,
              ": internal error: output_size.size() must be ", rank);
  base::check(self.rank() == rank + 1 || self.rank() == rank + 2, name, ": Expected ", rank + 1,
              "D or ", rank + 2, "D tensor, but got: ", base::to_string(self.dims()));
  for (std::int64_t i = 1; i <= rank; ++i) {
    base::check(self.dim(self.rank() - i) > 0, name,
                ": Expected input to have non-zero size for non-batch dimensions, but input has "
                "sizes ",
                base::to_string(self.dims()), " with dimension ", self.rank() - i, " being empty");
  }
  for (const std::int64_t size : output_size) {
    base::check(size >= 0, "Trying to create tensor with negative dimension ", size, ": ",
                base::to_string(output_size));
  }
}

// Dimension by dimension, from the last: the maximum of maxima, its index carried along.
Pooled adaptive_max_pool(Value self, const Dims& output_size) {
  if (const std::optional<PoolWindow> w = even_window(self, output_size)) {
    return max_pool(self, *w);
  }
  const Dims spatial = trailing_dims(self.dims(), output_size.size());
  const Dims dims = with_spatial(self, output_size);
  hlo::Builder& b = self.builder();
  if (base::num_elements(dims) == 0) {
    return {full(b, {self.dtype(), dims}, 0), full(b, {DType::kInt64, dims}, 0)};
  }
  const DType dtype = index_dtype(spatial);
  Value values = self;
  Value indices = flat_indices(self, spatial, dtype);
  for (std::size_t i = output_size.size(); i-- > 0;) {
    const std::int64_t dim = self.rank() - std::ssize(output_size) + static_cast<std::int64_t>(i);
    const hlo::Values pair =
        hlo::reduce({adaptive_windows(values, dim, output_size[i]).elements,
                     adaptive_windows(indices, dim, output_size[i]).elements},
                    {lowest(b, self.dtype()), scalar(b, dtype, kNoIndex)}, {dim + 1}, greater_pair);
    values = pair[0];
    indices = pair[1];
  }
  return {values, convert(indices, DType::kInt64)};
}

Value adaptive_max_pool_backward(Value grad_output, Value self, Value indices,
                                 std::size_t spatial_rank) {
  const Dims output = trailing_dims(grad_output.dims(), spatial_rank);
  if (const std::optional<PoolWindow> w = even_window(self, output)) {
    return max_pool_backward(grad_output, self, *w, indices);
  }
  const Value grad = convert(grad_output, accumulate_dtype(self.dtype()));
  return convert(scatter_spatial(grad, indices, self.dims(), spatial_rank, hlo::add), self.dtype());
}

// ---- Fractional ----

// Where the windows along a dimension of `size` start, int32 [planes, count], from one random
// number in [0, 1) per plane: steps of one of two lengths, in an order that the number decides.
Value fractional_starts(Value samples, std::int64_t size, std::int64_t count, std::int64_t kernel) {
  hlo::Builder& b = samples.builder();
  const Shape shape{samples.dtype(), {samples.dim(0), count}};
  const Value last = full(b, {DType::kInt32, shape.dims}, size - kernel);
  if (count == 1) return last;
  const double alpha = static_cast<double>(size - kernel) / static_cast<double>(count - 1);
  const Value sample = hlo::broadcast_in_dim(samples, shape.dims, {0});
  const Value i = hlo::iota(b, shape, 1);
  const auto truncated = [](Value x) { return convert(x, DType::kInt32); };
  const Value starts = truncated((i + sample) * alpha) - truncated(sample * alpha);
  return hlo::select(equal(i, static_cast<double>(count - 1)), last, starts);
}

// `value` [planes, ..., size, ...] taken along `dim` at `positions` [planes, count, kernel]:
// [planes, ..., count, kernel, ...].
Value planes_taken(Value value, std::int64_t dim, Value positions) {
  hlo::GatherDimensionNumbers numbers;
  Dims slice_sizes = value.dims();
  slice_sizes[0] = 1;
  slice_sizes[static_cast<std::size_t>(dim)] = 1;
  for (std::int64_t i = 1; i < value.rank(); ++i) {
    // The batch dimensions of the result are plane, count and kernel, which have to come first.
    if (i != dim) numbers.offset_dims.push_back(std::ssize(numbers.offset_dims) + 3);
  }
  numbers.collapsed_slice_dims = {dim};
  numbers.operand_batching_dims = {0};
  numbers.start_indices_batching_dims = {0};
  numbers.start_index_map = {dim};
  numbers.index_vector_dim = 3;
  const Value taken = hlo::gather(value, positions, numbers, slice_sizes);
  Dims permutation = {0};
  for (std::int64_t i = 1; i < value.rank(); ++i) {
    if (i == dim) {
      permutation.insert(permutation.end(), {1, 2});
    } else {
      permutation.push_back(i < dim ? i + 2 : i + 1);
    }
  }
  return hlo::transpose(taken, permutation);
}

std::vector<Value> fractional_max_pool(Value self, const Dims& kernel, const Dims& output,
                                       Value random_samples) {
  const std::size_t rank = output.size();
  const Dims spatial = trailing_dims(self.dims(), output.size());
  const Dims dims = with_spatial(self, output);
  hlo::Builder& b = self.builder();
  if (base::num_elements(dims) == 0) {
    return {full(b, {self.dtype(), dims}, 0), full(b, {DType::kInt64, dims}, 0)};
  }
  const std::int64_t planes = self.num_elements() / base::num_elements(spatial);
  Dims flat = spatial;
  flat.insert(flat.begin(), planes);
  // Those of the first planes, of an input without a batch dimension.
  const std::int64_t count = planes * static_cast<std::int64_t>(rank);
  base::check(random_samples.num_elements() >= count, "fractional_max_pool", rank, "d needs ",
              count, " random samples, got ", random_samples.num_elements());
  const Value drawn = hlo::reshape(random_samples, {random_samples.num_elements()});
  const Value samples =
      hlo::reshape(hlo::slice(drawn, {0}, {count}, {1}), {planes, static_cast<std::int64_t>(rank)});
  const DType dtype = index_dtype(spatial);
  Value values = hlo::reshape(self, flat);
  Value indices = flat_indices(values, spatial, dtype);
  for (std::size_t i = rank; i-- > 0;) {
    // In two dimensions the first number is the width's, in three the depth's.
    const auto which = static_cast<std::int64_t>(rank == 2 ? rank - 1 - i : i);
    const Value sample =
        hlo::reshape(hlo::slice(samples, {0, which}, {planes, which + 1}, {1, 1}), {planes});
    const Value starts = fractional_starts(sample, spatial[i], output[i], kernel[i]);
    const Dims window = {planes, output[i], kernel[i]};
    const Value positions =
        hlo::broadcast_in_dim(starts, window, {0, 1}) + hlo::iota(b, {DType::kInt32, window}, 2);
    const auto dim = static_cast<std::int64_t>(i) + 1;
    const hlo::Values pair =
        hlo::reduce({planes_taken(values, dim, positions), planes_taken(indices, dim, positions)},
                    {lowest(b, self.dtype()), scalar(b, dtype, kNoIndex)}, {dim + 1}, greater_pair);
    values = pair[0];
    indices = pair[1];
  }
  return {hlo::reshape(values, dims), hlo::reshape(convert(indices, DType::kInt64), dims)};
}

Value fractional_max_pool_backward(Value grad_output, Value self, Dims, Dims output_size,
                                   Value indices) {
  const Value grad = convert(grad_output, accumulate_dtype(self.dtype()));
  return convert(scatter_spatial(grad, indices, self.dims(), output_size.size(), hlo::add),
                 self.dtype());
}

Value max_unpool(Value self, Value indices, const Dims& output_size) {
  base::check(
      indices.dtype() == DType::kInt64,
      "elements in indices should be type int64 but got: ", scalar_type_name(indices.dtype()));
  base::check(indices.dims() == self.dims(),
              "Expected shape of indices to be same as that of the input tensor (",
              base::to_string(self.dims()),
              ") but got indices tensor with shape: ", base::to_string(indices.dims()));
  return scatter_spatial(self, indices, with_spatial(self, output_size), output_size.size(),
                         [](Value, Value update) { return update; });
}

// Channels count as well.
void check_lengths(Value self) {
  for (std::int64_t d = self.rank() - 4; d < self.rank(); ++d) {
    base::check(self.dim(d) > 0,
                "max_pool3d_with_indices_out_cpu_template(): Expected input's non-batch dimensions "
                "to have positive length, but input has a shape of ",
                base::to_string(self.dims()), " and non-batch dimension ", d, " has length zero!");
  }
}

template <std::size_t kRank>
std::vector<Value> max_pool_with_indices(Value self, Dims kernel_size, Dims stride, Dims padding,
                                         Dims dilation, bool ceil_mode) {
  const PoolWindow w = pool_window(self, kRank, kernel_size, stride, padding, dilation, ceil_mode);
  if (kRank == 3) check_lengths(self);
  return results(max_pool(self, w));
}

template <std::size_t kRank>
Value max_pool_with_indices_backward(Value grad_output, Value self, Dims kernel_size, Dims stride,
                                     Dims padding, Dims dilation, bool ceil_mode, Value indices) {
  const PoolWindow w = pool_window(self, kRank, kernel_size, stride, padding, dilation, ceil_mode);
  return max_pool_backward(grad_output, self, w, indices);
}

}  // namespace

void register_max_pooling(Registry& m) {
  m.impl("max_pool2d_with_indices", max_pool_with_indices<2>);
  m.impl("max_pool3d_with_indices", max_pool_with_indices<3>);
  m.impl("max_pool2d_with_indices_backward", max_pool_with_indices_backward<2>);
  m.impl("max_pool3d_with_indices_backward", max_pool_with_indices_backward<3>);
  m.impl("adaptive_max_pool2d", [](Value self, Dims output_size) {
    check_adaptive(self, output_size, 2);
    return results(adaptive_max_pool(self, output_size));
  });
  m.impl("adaptive_max_pool3d", [](Value self, Dims output_size) {
    check_adaptive(self, output_size, 3);
    return results(adaptive_max_pool(self, output_size));
  });
  m.impl("adaptive_max_pool2d_backward", [](Value grad_output, Value self, Value indices) {
    return adaptive_max_pool_backward(grad_output, self, indices, 2);
  });
  m.impl("adaptive_max_pool3d_backward", [](Value grad_output, Value self, Value indices) {
    return adaptive_max_pool_backward(grad_output, self, indices, 3);
  });
  m.impl({"fractional_max_pool2d", "fractional_max_pool3d"}, fractional_max_pool);
  m.impl({"fractional_max_pool2d_backward", "fractional_max_pool3d_backward"},
         fractional_max_pool_backward);
  m.impl("max_unpool2d", max_unpool);
  m.impl("max_unpool3d", [](Value self, Value indices, Dims output_size, Dims, Dims) {
    return max_unpool(self, indices, output_size);
  });
}

}  // namespace torch_xla::ops

// Fake quantization: what a tensor is after it was rounded to the numbers of a quantized one, and
// the observers that find out which. The step is float32, and formulas have the tensor's dtype,
// half precision float32.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/expression.h"
#include "ops/reduce.h"
#include "ops/registry.h"

namespace torch_xla::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// FBGEMM has none below.
constexpr double kLeastStep = 6.1e-5F;

// The integers that a number may become.
struct Range {
  double first;
  double last;
};

// A step and a zero point, as wide as what is quantized and broadcast to it.
struct Grid {
  Value scale;
  Value zero_point;
};

Range range_of(std::int64_t quant_min, std::int64_t quant_max) {
  base::check(quant_min <= quant_max,
              "`quant_min` should be less than or         equal to `quant_max`.");
  return {static_cast<double>(quant_min), static_cast<double>(quant_max)};
}

// PyTorch's kernels read the first element alone.
Value first_of(Value tensor) {
  base::check(tensor.num_elements() > 0, "expected a step and a zero point, got an empty tensor");
  const Value flat = hlo::reshape(tensor, {tensor.num_elements()});
  return hlo::reshape(hlo::slice(flat, {0}, {1}, {1}), {});
}
Value first_in_list(Value tensor) {
  if (tensor.rank() == 0) {
    base::fail(base::ErrorKind::kIndex, "select() cannot be applied to a 0-dim tensor.");
  }
  return first_of(tensor);
}

Value in_range(Value q, Range range) {
  return greater_equal(q, range.first) & less_equal(q, range.last);
}
// A NaN becomes the least.
Value clamped(Value q, Range range) {
  return min(where(is_nan(q), range.first, max(q, range.first)), range.last);
}

// The CPU's kernels of channels and gradients go by way of int64, where what is too large becomes
// the least.
Value as_int64(Value q) { return where(greater_equal(q, 0x1p63), -kInfinity, q); }

// The result and where it is not clamped. With step and zero point for the whole tensor the last
// product is one of float32.
std::vector<Value> per_tensor(Value self, Value scale, Value zero_point, Range range) {
  check_implemented(base::is_floating(self.dtype()),
                    "fake_quantize_tensor_cachemask_kernel_type_handling", self.dtype());
  const Value wide = convert(self, accumulate_dtype(self.dtype()));
  const Value step = convert(scale, DType::kFloat32);
  const Value zero = convert(convert(zero_point, DType::kInt32), DType::kFloat32);
  const Grid grid{convert(step, wide.dtype()), convert(zero, wide.dtype())};
  const Value inverse = convert(1.0 / step, wide.dtype());
  const Value q = hlo::round_nearest_even(wide * inverse) + grid.zero_point;
  const Value steps = convert(clamped(q, range) - grid.zero_point, DType::kFloat32);
  return {convert(steps * step, self.dtype()), in_range(q, range)};
}

// A tensor of a number for each place along `axis`, broadcast to `dims`.
Value along(Value numbers, const Dims& dims, std::int64_t axis) {
  return hlo::broadcast_in_dim(numbers, dims, {axis});
}

void check_channels(Value self, Value scale, Value zero_point, std::int64_t axis) {
  const auto is_one_of = [](DType dtype, std::initializer_list<DType> choice) {
    return std::find(choice.begin(), choice.end(), dtype) != choice.end();
  };
  base::check(is_one_of(scale.dtype(), {DType::kFloat32, DType::kBFloat16}),
              "Scale must be Float or BFloat16, found ", scalar_type_name(scale.dtype()));
  base::check(is_one_of(zero_point.dtype(), {DType::kInt32, DType::kFloat32, DType::kFloat16}),
              "Zero-point must be Int32, Float or Half, found ",
              scalar_type_name(zero_point.dtype()));
  base::check(scale.rank() == 1, "scale should be a 1-D tensor");
  base::check(zero_point.rank() == 1, "zero point should be a 1-D tensor");
  base::check(scale.dim(0) == zero_point.dim(0),
              "scale and zero-point need to have the same dimensions");
  wrap_dim(axis, self.rank());
  const std::int64_t place = axis < 0 ? axis + self.rank() : axis;
  base::check(scale.dim(0) == self.dim(place),
              "dimensions of scale and zero-point are not consistent with input tensor");
}

std::vector<Value> per_channel(Value self, Value scale, Value zero_point, std::int64_t axis,
                               std::int64_t quant_min, std::int64_t quant_max) {
  check_channels(self, scale, zero_point, axis);
  const Range range = range_of(quant_min, quant_max);
  base::check(axis >= 0, "`axis` must be between 0 and number of dimensions of input");
  check_implemented(base::is_floating(self.dtype()),
                    "fake_quantize_channel_cachemask_cpu_type_handling", self.dtype());
  const Value wide = convert(self, accumulate_dtype(self.dtype()));
  const Value step = convert(scale, DType::kFloat32);
  const Value inverse = along(convert(1.0 / step, wide.dtype()), self.dims(), axis);
  const Grid grid{along(convert(step, wide.dtype()), self.dims(), axis),
                  along(convert(zero_point, wide.dtype()), self.dims(), axis)};
  // A zero point between integers is added before rounding.
  const Value q = base::is_floating(zero_point.dtype())
                      ? hlo::round_nearest_even(wide * inverse + grid.zero_point)
                      : hlo::round_nearest_even(wide * inverse) + grid.zero_point;
  const Value place = as_int64(q);
  const Value result = (clamped(place, range) - grid.zero_point) * grid.scale;
  return {convert(result, self.dtype()), in_range(place, range)};
}

// ---- Learnable steps and zero points ------------------------------------------------------------

Value rounded(Value zero_point, Range range) {
  return clamped(hlo::round_nearest_even(convert(zero_point, DType::kFloat32)), range);
}

Value truncated(Value x) { return hlo::sign(x) * hlo::floor(hlo::abs(x)); }

// The gradients, summed over `dims` for the step and the zero point.
std::vector<Value> learnable_backward(Value grad, Value self, const Grid& grid, Range range,
                                      double grad_factor, const Dims& dims) {
  base::check(grad.dtype() == DType::kFloat32 || grad.dtype() == DType::kBFloat16,
              "Expected dY_.scalar_type() == ScalarType::Float to be true, but got false.  (Could "
              "this error message be improved?  If so, please report an enhancement request to "
              "PyTorch.)");
  const Value dy = convert(grad, DType::kFloat32);
  const Value x = convert(self, DType::kFloat32);
  // Unlike the forward pass, which adds the zero point to what was rounded.
  const Value q = as_int64(hlo::round_nearest_even(x * (1.0 / grid.scale) + grid.zero_point));
  const Value is_inside = in_range(q, range);
  const Value steps = clamped(q, range) - grid.zero_point;
  const Value error = (steps * grid.scale - x) * (1.0 / grid.scale);
  const Value of_scale = dy * where(is_inside, error, steps) * grad_factor;
  const Value of_zero = where(is_inside, 0.0, -(dy * grid.scale) * grad_factor);
  return {where(is_inside, dy, 0.0), reduce_sum(of_scale, dims), reduce_sum(of_zero, dims)};
}

std::vector<Value> learnable_per_tensor_backward(Value grad, Value self, Value scale,
                                                 Value zero_point, std::int64_t quant_min,
                                                 std::int64_t quant_max, double grad_factor) {
  base::check(quant_min <= 0 && quant_max >= 0,
              "`quant_min` should be less than or         equal to `quant_max`, and the "
              "quantization range should include 0.");
  const Range range = range_of(quant_min, quant_max);
  const Value zero = convert(first_in_list(zero_point), DType::kFloat32);
  const Grid grid{
      broadcast_to(convert(first_in_list(scale), DType::kFloat32), self.dims()),
      broadcast_to(truncated(clamped(zero + 0.5, range)), self.dims()),
  };
  std::vector<Value> grads =
      learnable_backward(grad, self, grid, range, grad_factor, wrap_dims({}, self.rank()));
  for (std::size_t i = 1; i < grads.size(); ++i) grads[i] = hlo::reshape(grads[i], {1});
  return grads;
}

std::vector<Value> learnable_per_channel_backward(Value grad, Value self, Value scale,
                                                  Value zero_point, std::int64_t axis,
                                                  std::int64_t quant_min, std::int64_t quant_max,
                                                  double grad_factor) {
  base::check(quant_min <= 0 && quant_max >= 0, "Expecting `quant_min` <= 0 and `quant_max` >= 0");
  const Range range = range_of(quant_min, quant_max);
  const std::int64_t place = wrap_dim(axis, self.rank());
  const Grid grid{along(convert(scale, DType::kFloat32), self.dims(), place),
                  along(rounded(zero_point, range), self.dims(), place)};
  return learnable_backward(grad, self, grid, range, grad_factor, all_but(place, self.rank()));
}

// ---- Observers ----------------------------------------------------------------------------------

void check_single(Value tensor) {
  base::check(tensor.num_elements() == 1, "a Tensor with ", tensor.num_elements(),
              " elements cannot be converted to Scalar");
}

Value is_on(Value flag) {
  check_single(flag);
  return not_equal(convert(hlo::reshape(flag, {}), DType::kInt32), 0);
}

// An extreme that was seen, on its way to the one that is seen now; at first it is infinite.
Value moved(Value before, Value now, Value averaging_const) {
  return where(equal(hlo::abs(before), kInfinity), now, before + averaging_const * (now - before));
}

Value in_float64(Value x) { return convert(x, DType::kFloat64); }

// The step and the zero point of numbers that reach from `low` to `high`, and over zero. Quotients
// are float64: XLA multiplies by the inverse of a constant instead, which is less exact.
Grid grid_between(Value low, Value high, Range range, bool is_symmetric) {
  const Value has_both_signs = less(low, 0.0) & greater(high, 0.0);
  if (is_symmetric) {
    const double above = std::trunc((range.last - range.first) / 2);
    const double below = -(above + 1);
    const Value step = convert(
        max(hlo::abs(in_float64(low) / below), hlo::abs(in_float64(high) / above)), low.dtype());
    low = where(has_both_signs, step * below, low);
    high = where(has_both_signs, step * above, high);
  }
  const Value first = in_float64(min(low, 0.0));
  const Value last = in_float64(max(high, 0.0));
  Value step = convert((last - first) / (range.last - range.first), DType::kFloat32);
  step = where(equal(1.0 / step, kInfinity), 0.1, step);
  // From the end where that is more exact.
  const Value steps_below = first / in_float64(step);
  const Value steps_above = last / in_float64(step);
  const Value is_below_more_exact = less(hlo::abs(steps_below) + std::abs(range.first),
                                         hlo::abs(steps_above) + std::abs(range.last));
  Value zero_point =
      where(is_below_more_exact, range.first - steps_below, range.last - steps_above);
  if (is_symmetric) zero_point = where(has_both_signs, (range.first + range.last) / 2, zero_point);
  const Value nearest = hlo::round_nearest_even(min(max(zero_point, range.first), range.last));
  // What a NaN becomes as an int32.
  return {max(step, kLeastStep), where(is_nan(nearest), -0x1p31, nearest)};
}

// `state` is what is written. PyTorch observes channels of the first dimension alone.
void check_observed(Value self, const std::vector<Value>& state, std::int64_t axis, bool per_row) {
  base::check(axis < self.rank(),
              "Error in fused_moving_avg_obs_fake_quant_cpu: ch_axis must be < self.dim()");
  base::check(self.num_elements() > 0,
              "aminmax(): cannot compute aminmax over an empty dimension as the operation has no "
              "identity.");
  base::check(!per_row || axis >= 0, "`axis` must be between 0 and number of dimensions of input");
  for (const Value tensor : state) {
    if (!per_row) {
      check_single(tensor);
    } else {
      base::check(tensor.num_elements() == self.dim(axis), "expected a number for each of ",
                  self.dim(axis), " channels, got ", tensor.num_elements());
    }
  }
}

// The result and its mask, then what is written: the extremes, the step and the zero point.
std::vector<Value> observe(Value self, Value observer_on, Value fake_quant_on, Value running_min,
                           Value running_max, Value scale, Value zero_point, Value averaging_const,
                           std::int64_t quant_min, std::int64_t quant_max, std::int64_t ch_axis,
                           bool per_row_fake_quant, bool symmetric_quant) {
  check_observed(self, {running_min, running_max, scale, zero_point}, ch_axis, per_row_fake_quant);
  const Dims dims = per_row_fake_quant ? all_but(ch_axis, self.rank()) : wrap_dims({}, self.rank());
  const Dims kept = reduced_dims(self.dims(), dims, /*keepdim=*/false);
  const Range range = range_of(quant_min, quant_max);
  const Value x = convert(self, DType::kFloat32);
  const Value weight = convert(averaging_const, DType::kFloat32);
  const Value observes = is_on(observer_on);
  const auto seen = [&](Value running, Value now) {
    const Value before = hlo::reshape(convert(running, DType::kFloat32), kept);
    return where(observes, moved(before, now, weight), before);
  };
  const Value low = seen(running_min, reduce_min(x, dims));
  const Value high = seen(running_max, reduce_max(x, dims));
  const Grid grid = grid_between(low, high, range, symmetric_quant);
  const Value quantizes = is_on(fake_quant_on);
  const auto written = [](Value value, Value tensor) {
    return hlo::reshape(convert(value, tensor.dtype()), tensor.dims());
  };
  scale = where(quantizes, written(grid.scale, scale), scale);
  zero_point = where(quantizes, written(grid.zero_point, zero_point), zero_point);
  const std::vector<Value> done =
      per_row_fake_quant
          ? per_channel(self, scale, zero_point, ch_axis, quant_min, quant_max)
          : per_tensor(self, hlo::reshape(scale, {}), hlo::reshape(zero_point, {}), range);
  return {where(quantizes, done[0], self),
          done[1] | ~quantizes,
          written(low, running_min),
          written(high, running_max),
          scale,
          zero_point};
}

}  // namespace

void register_fake_quantize(Registry& m) {
  m.impl({"_fused_moving_avg_obs_fq_helper", "_fused_moving_avg_obs_fq_helper_functional"},
         observe);
  m.impl("fake_quantize_per_tensor_affine_cachemask",
         [](Value self, Value scale, Value zero_point, std::int64_t quant_min,
            std::int64_t quant_max) {
           return per_tensor(self, scale, zero_point, range_of(quant_min, quant_max));
         });
  m.impl("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
         [](Value self, Value scale, Value zero_point, Value fake_quant_enabled,
            std::int64_t quant_min, std::int64_t quant_max) {
           const std::vector<Value> done = per_tensor(self, first_of(scale), first_of(zero_point),
                                                      range_of(quant_min, quant_max));
           const Value is_on = not_equal(first_of(fake_quant_enabled), 0);
           return std::vector<Value>{where(is_on, done[0], self),
                                     done[1] | broadcast_to(~is_on, self.dims())};
         });
  m.impl("fake_quantize_per_channel_affine_cachemask", per_channel);
  m.impl("_fake_quantize_learnable_per_tensor_affine",
         [](Value self, Value scale, Value zero_point, std::int64_t quant_min,
            std::int64_t quant_max, double) {
           const Range range = range_of(quant_min, quant_max);
           return per_tensor(self, first_in_list(scale), rounded(first_in_list(zero_point), range),
                             range)[0];
         });
  m.impl("_fake_quantize_learnable_per_tensor_affine_backward", learnable_per_tensor_backward);
  m.impl("_fake_quantize_learnable_per_channel_affine",
         [](Value self, Value scale, Value zero_point, std::int64_t axis, std::int64_t quant_min,
            std::int64_t quant_max, double) {
           const Range range = range_of(quant_min, quant_max);
           const Value zero = convert(rounded(zero_point, range), DType::kInt32);
           return per_channel(self, scale, zero, axis, quant_min, quant_max)[0];
         });
  m.impl("_fake_quantize_learnable_per_channel_affine_backward", learnable_per_channel_backward);
}

}  // namespace torch_xla::ops

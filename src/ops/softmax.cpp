// Softmax and its logarithm, masked and safe variants, and their gradients. Half precision is
// computed in float32.
#include <limits>
#include <optional>

#include "base/error.h"
#include "ops/promotion.h"
#include "ops/reduce.h"
#include "ops/registry.h"

namespace torch_xla::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A dimension as a list to reduce over: empty for a 0-dim tensor, whose softmax is 1.
Dims along(Value x, std::int64_t dim) { return wrap_dims({dim}, x.rank()); }

// A NaN shows in what is subtracted from, so it may be lost in the maximum, which is left in the
// form that compilers know softmax by.
Value shifted_by_max(Value x, const Dims& dims) {
  const Value peak =
      dims.empty() ? x : hlo::reduce(x, lowest(x.builder(), x.dtype()), dims, hlo::maximum);
  return hlo::subtract(x, spread(peak, x.dims(), dims));
}

Value softmax(Value x, const Dims& dims) {
  const Value powers = hlo::exponential(shifted_by_max(x, dims));
  return hlo::divide(powers, spread(reduce_sum(powers, dims), x.dims(), dims));
}

Value log_softmax(Value x, const Dims& dims) {
  const Value shifted = shifted_by_max(x, dims);
  const Value total = hlo::log(reduce_sum(hlo::exponential(shifted), dims));
  return hlo::subtract(shifted, spread(total, x.dims(), dims));
}

Value softmax_gradient(Value grad, Value output, const Dims& dims) {
  const Value weighted = hlo::multiply(grad, output);
  const Value total = spread(reduce_sum(weighted, dims), grad.dims(), dims);
  return hlo::multiply(hlo::subtract(grad, total), output);
}

Value log_softmax_gradient(Value grad, Value output, const Dims& dims) {
  const Value total = spread(reduce_sum(grad, dims), grad.dims(), dims);
  return hlo::subtract(grad, hlo::multiply(hlo::exponential(output), total));
}

void register_forward(Registry& m, const char* name, Value (*function)(Value, const Dims&)) {
  m.impl(name, [name, function](Value self, std::int64_t dim, bool half_to_float) {
    const Dims dims = along(self, dim);
    const bool is_last = dims.empty() || dims[0] == self.rank() - 1;
    check_implemented(base::is_floating(self.dtype()),
                      base::str(&name[1], is_last ? "_lastdim" : "", "_kernel_impl"), self.dtype());
    const Value x = convert(self, accumulate_dtype(self.dtype()));
    return convert(function(x, dims), half_to_float ? DType::kFloat32 : self.dtype());
  });
}

void register_backward(Registry& m, const char* name,
                       Value (*function)(Value, Value, const Dims&)) {
  m.impl(name, [function](Value grad_output, Value output, std::int64_t dim, DType input_dtype) {
    const DType dtype = accumulate_dtype(grad_output.dtype());
    const Value grad = convert(grad_output, dtype);
    return convert(function(grad, convert(output, dtype), along(grad, dim)), input_dtype);
  });
}

// As softmax, but 0 instead of NaN where a line has nothing but -inf.
Value safe_softmax(Value self, std::int64_t dim, std::optional<DType> dtype) {
  const DType result = dtype.value_or(self.dtype());
  check_implemented(base::is_floating(result), "_safe_softmax", result);
  const Value x = convert(convert(self, result), accumulate_dtype(result));
  const Dims dims = along(x, dim);
  const Value lowest_everywhere =
      hlo::eq(reduce_max(x, dims),
              hlo::full(x.builder(), {x.dtype(), reduced_dims(x.dims(), dims, false)}, -kInfinity));
  const Value is_empty = spread(lowest_everywhere, x.dims(), dims);
  return convert(hlo::select(is_empty, hlo::full_like(x, 0), softmax(x, dims)), result);
}

// The mask (true: left out) in the input's sizes. Type 0 is a mask of (target, source) positions,
// type 1 one of (batch, source), both for an input of (batch, heads, target, source).
Value full_mask(Value mask, Value input, std::optional<std::int64_t> mask_type) {
  const std::int64_t type = mask_type.value_or(2);
  base::check(type >= 0 && type <= 2,
              "Mask Type should be 0 (src_mask), 1 "
              "(src_key_padding_mask), or 2 (default_mask)");
  base::check(type == 2 || (input.rank() == 4 && mask.rank() == 2), "For mask_type == ", type,
              " input must be 4-D and mask 2-D");
  if (type == 0) return hlo::broadcast_in_dim(mask, input.dims(), {2, 3});
  if (type == 1) return hlo::broadcast_in_dim(mask, input.dims(), {0, 3});
  base::check(mask.dims() == input.dims(),
              "For mask_type == 2 mask shape should match input shape");
  return mask;
}

Value masked_softmax(Value self, Value mask, std::optional<std::int64_t> dim,
                     std::optional<std::int64_t> mask_type) {
  base::check(mask.dtype() == DType::kBool, "Mask should be a boolean tensor");
  check_implemented(base::is_floating(self.dtype()), "masked_softmax", self.dtype());
  const Value x = convert(self, accumulate_dtype(self.dtype()));
  const Value is_out = full_mask(mask, x, mask_type);
  const Value masked = hlo::select(is_out, hlo::full_like(x, -kInfinity), x);
  return convert(softmax(masked, along(x, dim.value_or(x.rank() - 1))), self.dtype());
}

Value masked_softmax_backward(Value grad_output, Value output, Value mask,
                              std::optional<std::int64_t> dim) {
  const DType dtype = accumulate_dtype(grad_output.dtype());
  const Value zero = hlo::full(output.builder(), {dtype, output.dims()}, 0);
  const Value grad = hlo::select(mask, zero, convert(grad_output, dtype));
  const Dims dims = along(grad, dim.value_or(grad.rank() - 1));
  const Value result = softmax_gradient(grad, convert(output, dtype), dims);
  return convert(hlo::select(mask, zero, result), grad_output.dtype());
}

}  // namespace

void register_softmax(Registry& m) {
  register_forward(m, "_softmax", softmax);
  register_forward(m, "_log_softmax", log_softmax);
  register_backward(m, "_softmax_backward_data", softmax_gradient);
  register_backward(m, "_log_softmax_backward_data", log_softmax_gradient);
  m.impl("_safe_softmax", safe_softmax);
  m.impl("_masked_softmax", masked_softmax);
  m.impl("_masked_softmax_backward", masked_softmax_backward);
}

}  // namespace torch_xla::ops

// Normalisation over batches, layers and groups, with gradients; renorm and weight normalisation.
// Half precision is computed in float32; statistics are kept in the parameters' dtype where that is
// wider than the input's, as PyTorch does on the CPU.
#include <initializer_list>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "ops/host_choice.h"
#include "ops/normalization.h"
#include "ops/promotion.h"
#include "ops/reduce.h"
#include "ops/registry.h"

namespace torch_xla::ops {
namespace {

using MaybeValue = std::optional<Value>;

// The dtype of saved statistics.
DType statistics_dtype(Value input, std::initializer_list<MaybeValue> parameters) {
  for (const MaybeValue& p : parameters) {
    if (p.has_value() && p->dtype() != input.dtype()) return p->dtype();
  }
  return input.dtype();
}

Value reciprocal_deviation(Value variance, double eps) {
  return hlo::rsqrt(hlo::add(variance, hlo::full_like(variance, eps)));
}

// x * weight + bias, where either may be missing; `dims` are the dimensions of `x` that they lie
// along.
Value scaled(Value x, const MaybeValue& weight, const MaybeValue& bias, const Dims& dims) {
  const auto along = [&](Value v) {
    return hlo::broadcast_in_dim(convert(v, x.dtype()), x.dims(), dims);
  };
  if (weight.has_value()) x = hlo::multiply(x, along(*weight));
  if (bias.has_value()) x = hlo::add(x, along(*bias));
  return x;
}

Dims range(std::int64_t begin, std::int64_t end) {
  Dims out(static_cast<std::size_t>(end - begin));
  std::iota(out.begin(), out.end(), begin);
  return out;
}

// What the gradients of a normalised value share: with y = (x - mean) * rstd over `dims` and `grad`
// the gradient of y, that of x.
Value normalized_gradient(Value grad, Value y, Value rstd, const Dims& dims) {
  const auto spread_mean = [&](Value v) { return spread(reduce_mean(v, dims), v.dims(), dims); };
  const Value centered = hlo::subtract(grad, spread_mean(grad));
  const Value projection = hlo::multiply(y, spread_mean(hlo::multiply(grad, y)));
  return hlo::multiply(hlo::subtract(centered, projection), rstd);
}

// ---- Batch normalisation: over all dimensions but the second ------------------------------------

Dims batch_dims(Value input) {
  base::check(input.rank() >= 2, "batch_norm: expected at least 2 dimensions, got ", input.rank());
  return all_but(1, input.rank());
}

struct BatchNormArguments {
  Value input;
  MaybeValue weight;
  MaybeValue bias;
  MaybeValue running_mean;
  MaybeValue running_var;
};

struct BatchNormResults {
  Value output;
  Value save_mean;
  Value save_invstd;
  // Only of training with running statistics.
  MaybeValue running_mean;
  MaybeValue running_var;
};

// running + momentum * (observed - running), in the dtype of `running`.
Value moved(Value running, Value observed, const Promotable& momentum) {
  const Value before = convert(running, observed.dtype());
  const Value step =
      broadcast_to(momentum.value(observed.builder(), observed.dtype()), observed.dims());
  const Value change = hlo::multiply(step, hlo::subtract(observed, before));
  return convert(hlo::add(before, change), running.dtype());
}

// What a batch is normalised by, and the output where that came with it.
struct BatchMoments {
  Value mean;
  Value invstd;
  Value variance;
  Value output;
};

// How many elements each channel of a batch has, of the sizes of `like`.
Value channel_size(const Context& context, Value x, Value like) {
  if (context.batch != nullptr) {
    return broadcast_to(convert(context.batch->size, like.dtype()), like.dims());
  }
  return hlo::full_like(like, static_cast<double>(reduced_size(x.dims(), batch_dims(x))));
}

// Of a batch with room behind its elements.
BatchMoments moments_of_elements(const Context& context, Value x, double eps) {
  const Dims dims = batch_dims(x);
  const auto mean_of = [&](Value v) {
    const Value sum = reduce_sum(v, dims);
    return hlo::divide(sum, channel_size(context, x, sum));
  };
  const Value mean = mean_of(x);
  const Value centered =
      hlo::select(context.batch->is_element, hlo::subtract(x, spread(mean, x.dims(), dims)),
                  hlo::full_like(x, 0));
  const Value variance = mean_of(hlo::multiply(centered, centered));
  return {mean, reciprocal_deviation(variance, eps), variance, {}};
}

BatchMoments observed_moments(const Context& context, const BatchNormArguments& a, Value x,
                              double eps) {
  if (context.batch != nullptr) return moments_of_elements(context, x, eps);
  if (const auto called = called_batch_norm(context, a.input, a.weight, a.bias, eps)) {
    const Value squared = hlo::multiply(called->invstd, called->invstd);
    const Value variance = hlo::subtract(hlo::divide(hlo::full_like(squared, 1), squared),
                                         hlo::full_like(squared, eps));
    return {called->mean, called->invstd, variance, called->output};
  }
  const Moments observed = moments(x, batch_dims(x), /*correction=*/0);
  return {observed.mean, reciprocal_deviation(observed.variance, eps), observed.variance, {}};
}

BatchMoments running_moments(const BatchNormArguments& a, DType dtype, double eps) {
  base::check(a.running_mean.has_value() && a.running_var.has_value(),
              "running_mean and running_var must be defined in evaluation mode");
  const Value variance = convert(*a.running_var, dtype);
  return {convert(*a.running_mean, dtype), reciprocal_deviation(variance, eps), variance, {}};
}

Value normalized_batch(const BatchNormArguments& a, Value x, const BatchMoments& by) {
  const Value centered = hlo::subtract(x, spread(by.mean, x.dims(), batch_dims(x)));
  const Value factor =
      a.weight.has_value() ? hlo::multiply(by.invstd, convert(*a.weight, x.dtype())) : by.invstd;
  return convert(scaled(centered, factor, a.bias, {1}), a.input.dtype());
}

BatchNormResults batch_norm(const Context& context, const BatchNormArguments& a, bool training,
                            const Promotable& momentum, double eps) {
  check_implemented(base::is_floating(a.input.dtype()), "batch_norm", a.input.dtype());
  const Value x = convert(a.input, accumulate_dtype(a.input.dtype()));
  const DType saved = statistics_dtype(a.input, {a.weight, a.bias, a.running_mean, a.running_var});
  const BatchMoments by =
      training ? observed_moments(context, a, x, eps) : running_moments(a, x.dtype(), eps);
  BatchNormResults results;
  results.output = by.output ? by.output : normalized_batch(a, x, by);
  if (!training) {
    results.save_mean = hlo::full(x.builder(), {saved, {0}}, 0);
    results.save_invstd = results.save_mean;
    return results;
  }
  results.save_mean = convert(by.mean, saved);
  results.save_invstd = convert(by.invstd, saved);
  if (a.running_mean.has_value()) results.running_mean = moved(*a.running_mean, by.mean, momentum);
  if (a.running_var.has_value()) {
    const Value size = channel_size(context, x, by.variance);
    const Value fewer = hlo::subtract(size, hlo::full_like(size, 1));
    const Value unbiased = hlo::multiply(by.variance, hlo::divide(size, fewer));
    results.running_var = moved(*a.running_var, unbiased, momentum);
  }
  return results;
}

// The three outputs, then the new running statistics where there are any.
std::vector<Value> with_written_statistics(const BatchNormResults& r) {
  std::vector<Value> out{r.output, r.save_mean, r.save_invstd};
  if (r.running_mean.has_value()) out.push_back(*r.running_mean);
  if (r.running_var.has_value()) out.push_back(*r.running_var);
  return out;
}

std::tuple<Value, Value, Value> batch_norm_backward(const Context& context, Value grad_out,
                                                    const BatchNormArguments& a,
                                                    const MaybeValue& save_mean,
                                                    const MaybeValue& save_invstd, bool train,
                                                    double eps, const std::vector<bool>& mask) {
  const Dims dims = batch_dims(a.input);
  const Value x = convert(a.input, accumulate_dtype(a.input.dtype()));
  const Value grad = convert(grad_out, x.dtype());
  const auto per_channel = [&](Value v) { return spread(v, x.dims(), dims); };
  const Value mean = convert(train ? *save_mean : *a.running_mean, x.dtype());
  const Value invstd = train ? convert(*save_invstd, x.dtype())
                             : reciprocal_deviation(convert(*a.running_var, x.dtype()), eps);
  const Value y = hlo::multiply(hlo::subtract(x, per_channel(mean)), per_channel(invstd));
  const Value sum = reduce_sum(grad, dims);
  const Value projection = reduce_sum(hlo::multiply(grad, y), dims);
  std::tuple<Value, Value, Value> out;
  if (mask[0]) {
    Value rest = grad;
    if (train) {
      const auto mean_of = [&](Value v) {
        return per_channel(hlo::divide(v, channel_size(context, x, v)));
      };
      rest = hlo::subtract(rest, mean_of(sum));
      rest = hlo::subtract(rest, hlo::multiply(y, mean_of(projection)));
    }
    const Value factor =
        a.weight.has_value() ? hlo::multiply(invstd, convert(*a.weight, x.dtype())) : invstd;
    std::get<0>(out) = convert(hlo::multiply(rest, per_channel(factor)), a.input.dtype());
  }
  const DType dtype =
      a.weight.has_value() ? a.weight->dtype() : statistics_dtype(a.input, {save_mean});
  if (mask[1]) std::get<1>(out) = convert(projection, dtype);
  if (mask[2]) std::get<2>(out) = convert(sum, dtype);
  return out;
}

// An empty tensor in place of the workspace that other devices keep for the gradient.
Value no_reserve(Value like) { return hlo::full(like.builder(), {DType::kUInt8, {0}}, 0); }

void register_batch_norm(Registry& m) {
  // It writes its running statistics when training, though its schema does not say so.
  m.impl("native_batch_norm",
         [](Context& context, Value input, const MaybeValue& weight, const MaybeValue& bias,
            const MaybeValue& mean, const MaybeValue& var, bool training,
            const Promotable& momentum, double eps) {
           return with_written_statistics(
               batch_norm(context, {input, weight, bias, mean, var}, training, momentum, eps));
         });
  m.impl({"_native_batch_norm_legit", "_native_batch_norm_legit_functional"},
         [](Context& context, Value input, const MaybeValue& weight, const MaybeValue& bias,
            Value mean, Value var, bool training, const Promotable& momentum,
            double eps) -> std::vector<Value> {
           const BatchNormResults r =
               batch_norm(context, {input, weight, bias, mean, var}, training, momentum, eps);
           return {r.output, r.save_mean, r.save_invstd, r.running_mean.value_or(mean),
                   r.running_var.value_or(var)};
         });
  m.impl(
      "_native_batch_norm_legit.no_stats",
      [](Context& context, Value input, const MaybeValue& weight, const MaybeValue& bias,
         bool training, const Promotable& momentum, double eps) {
        return with_written_statistics(batch_norm(
            context, {input, weight, bias, std::nullopt, std::nullopt}, training, momentum, eps));
      });
  m.impl("_native_batch_norm_legit_no_training",
         [](Context& context, Value input, const MaybeValue& weight, const MaybeValue& bias,
            Value mean, Value var, const Promotable& momentum, double eps) {
           return with_written_statistics(
               batch_norm(context, {input, weight, bias, mean, var}, false, momentum, eps));
         });
  m.impl({"_batch_norm_with_update", "_batch_norm_with_update_functional"},
         [](Context& context, Value input, const MaybeValue& weight, const MaybeValue& bias,
            Value mean, Value var, const Promotable& momentum, double eps) -> std::vector<Value> {
           const BatchNormResults r =
               batch_norm(context, {input, weight, bias, mean, var}, true, momentum, eps);
           return {r.output,          r.save_mean,     r.save_invstd,
                   no_reserve(input), *r.running_mean, *r.running_var};
         });
  m.impl("_batch_norm_no_update",
         [](Context& context, Value input, const MaybeValue& weight, const MaybeValue& bias,
            const MaybeValue& mean, const MaybeValue& var, const Promotable& momentum,
            double eps) -> std::vector<Value> {
           const BatchNormResults r =
               batch_norm(context, {input, weight, bias, mean, var}, false, momentum, eps);
           return {r.output, r.save_mean, r.save_invstd, no_reserve(input)};
         });
}

void register_batch_norm_backward(Registry& m) {
  m.impl(
      "native_batch_norm_backward",
      [](Context& context, Value grad_out, Value input, const MaybeValue& weight,
         const MaybeValue& running_mean, const MaybeValue& running_var, const MaybeValue& save_mean,
         const MaybeValue& save_invstd, bool train, double eps, const std::vector<bool>& mask) {
        return batch_norm_backward(context, grad_out,
                                   {input, weight, std::nullopt, running_mean, running_var},
                                   save_mean, save_invstd, train, eps, mask);
      });
  m.impl("batch_norm_backward",
         [](Context& context, Value grad_out, Value input, Value weight,
            const MaybeValue& running_mean, const MaybeValue& running_var,
            const MaybeValue& save_mean, const MaybeValue& save_var, bool update, double eps,
            const std::vector<bool>& mask, Value /*reserve*/) {
           return batch_norm_backward(context, grad_out,
                                      {input, weight, std::nullopt, running_mean, running_var},
                                      save_mean, save_var, update, eps, mask);
         });
}

// ---- Layer normalisation: over the last dimensions ----------------------------------------------

Dims last_dims(Value input, const Dims& normalized_shape) {
  const auto count = static_cast<std::int64_t>(normalized_shape.size());
  base::check(count >= 1,
              "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least "
              "one element, but got normalized_shape = []");
  const Dims& dims = input.dims();
  const bool fits =
      input.rank() >= count && Dims(dims.end() - count, dims.end()) == normalized_shape;
  if (!fits) {
    std::string stars = "[*";
    for (const std::int64_t d : normalized_shape) stars += base::str(", ", d);
    base::check(false, "Given normalized_shape=", base::to_string(normalized_shape),
                ", expected input with shape ", stars, "], but got input of size",
                base::to_string(dims));
  }
  return range(input.rank() - count, input.rank());
}

void check_parameter(const MaybeValue& parameter, const Dims& normalized_shape, const char* name) {
  base::check(!parameter.has_value() || parameter->dims() == normalized_shape, "Expected ", name,
              " to be of same shape as normalized_shape, but got ", name, " of shape ",
              parameter.has_value() ? base::to_string(parameter->dims()) : "",
              " and normalized_shape = ", base::to_string(normalized_shape));
}

std::tuple<Value, Value, Value> layer_norm(const Context& context, Value input,
                                           const Dims& normalized_shape, const MaybeValue& weight,
                                           const MaybeValue& bias, double eps) {
  const Dims dims = last_dims(input, normalized_shape);
  check_parameter(weight, normalized_shape, "weight");
  check_parameter(bias, normalized_shape, "bias");
  check_implemented(base::is_floating(input.dtype()), "LayerNormKernelImpl", input.dtype());
  if (is_layer_norm_called(context, input, {weight, bias})) {
    return called_layer_norm(input, reduced_dims(input.dims(), dims, /*keepdim=*/true),
                             {weight, bias}, eps);
  }
  const Value x = convert(input, accumulate_dtype(input.dtype()));
  const auto [mean, variance] = moments(x, dims, /*correction=*/0);
  const Value rstd = reciprocal_deviation(variance, eps);
  const Value centered = hlo::subtract(x, spread(mean, x.dims(), dims));
  const Value y = hlo::multiply(centered, spread(rstd, x.dims(), dims));
  const DType saved = statistics_dtype(input, {weight, bias});
  return {convert(scaled(y, weight, bias, dims), input.dtype()),
          keep_dims(convert(mean, saved), x.dims(), dims),
          keep_dims(convert(rstd, saved), x.dims(), dims)};
}

std::tuple<Value, Value, Value> layer_norm_backward(
    const Context& context, Value grad_out, Value input, const Dims& normalized_shape, Value mean,
    Value rstd, const MaybeValue& weight, const MaybeValue& bias, const std::vector<bool>& mask) {
  const bool has_result = mask[0] || mask[1] || mask[2];
  if (has_result && is_layer_norm_called(context, input, {grad_out, mean, rstd, weight, bias})) {
    return called_layer_norm_backward(grad_out, input, mean, rstd, weight, normalized_shape, mask);
  }
  const Dims dims = last_dims(input, normalized_shape);
  const Dims outer = range(0, input.rank() - static_cast<std::int64_t>(dims.size()));
  const Value x = convert(input, accumulate_dtype(input.dtype()));
  const Value grad = convert(grad_out, x.dtype());
  const auto wide = [&](Value v) { return broadcast_to(convert(v, x.dtype()), x.dims()); };
  const Value rstd_wide = wide(rstd);
  const Value y = hlo::multiply(hlo::subtract(x, wide(mean)), rstd_wide);
  std::tuple<Value, Value, Value> out;
  if (mask[0]) {
    const Value weighted = scaled(grad, weight, std::nullopt, dims);
    std::get<0>(out) = convert(normalized_gradient(weighted, y, rstd_wide, dims), input.dtype());
  }
  const DType dtype = statistics_dtype(input, {weight, bias});
  if (mask[1]) std::get<1>(out) = convert(reduce_sum(hlo::multiply(grad, y), outer), dtype);
  if (mask[2]) std::get<2>(out) = convert(reduce_sum(grad, outer), dtype);
  return out;
}

// Of floating-point numbers without a derivative: the others PyTorch takes apart.
std::tuple<Value, Value> rms_norm(const Context& context, Value input, const Dims& normalized_shape,
                                  const MaybeValue& weight, const std::optional<double>& eps) {
  const Dims dims = last_dims(input, normalized_shape);
  check_implemented(!base::is_float8(input.dtype()), "rms_norm", input.dtype());
  const Value x = convert(input, accumulate_dtype(input.dtype()));
  const double least = x.dtype() == DType::kFloat64 ? std::numeric_limits<double>::epsilon()
                                                    : std::numeric_limits<float>::epsilon();
  if (is_layer_norm_called(context, input, {weight})) {
    return called_rms_norm(input, reduced_dims(input.dims(), dims, /*keepdim=*/true), weight,
                           eps.value_or(least));
  }
  const Value mean_square = reduce_mean(hlo::multiply(x, x), dims);
  const Value rstd = reciprocal_deviation(mean_square, eps.value_or(least));
  const Value y = hlo::multiply(x, spread(rstd, x.dims(), dims));
  return {convert(scaled(y, weight, std::nullopt, dims), input.dtype()),
          keep_dims(rstd, x.dims(), dims)};
}

std::tuple<Value, Value> rms_norm_backward(Value grad_out, Value input,
                                           const Dims& normalized_shape, Value rstd,
                                           const MaybeValue& weight,
                                           const std::vector<bool>& mask) {
  const Dims dims = last_dims(input, normalized_shape);
  const Dims outer = range(0, input.rank() - static_cast<std::int64_t>(dims.size()));
  const Value x = convert(input, accumulate_dtype(input.dtype()));
  const Value grad = convert(grad_out, x.dtype());
  const Value rstd_wide = broadcast_to(convert(rstd, x.dtype()), x.dims());
  const Value y = hlo::multiply(x, rstd_wide);
  std::tuple<Value, Value> out;
  if (mask[0]) {
    const Value weighted = scaled(grad, weight, std::nullopt, dims);
    const Value mean = reduce_mean(hlo::multiply(weighted, y), dims);
    const Value projection = hlo::multiply(y, spread(mean, x.dims(), dims));
    const Value grad_input = hlo::multiply(hlo::subtract(weighted, projection), rstd_wide);
    std::get<0>(out) = convert(grad_input, input.dtype());
  }
  if (mask[1] && weight.has_value()) {
    std::get<1>(out) = convert(reduce_sum(hlo::multiply(grad, y), outer), weight->dtype());
  }
  return out;
}

void register_layer_norm(Registry& m) {
  m.impl("native_layer_norm", [](Context& context, Value input, Dims normalized_shape,
                                 MaybeValue weight, MaybeValue bias, double eps) {
    return layer_norm(context, input, normalized_shape, weight, bias, eps);
  });
  m.impl("native_layer_norm_backward",
         [](Context& context, Value grad_out, Value input, Dims normalized_shape, Value mean,
            Value rstd, MaybeValue weight, MaybeValue bias, std::vector<bool> output_mask) {
           return layer_norm_backward(context, grad_out, input, normalized_shape, mean, rstd,
                                      weight, bias, output_mask);
         });
  m.impl("_fused_rms_norm", [](Context& context, Value input, Dims normalized_shape,
                               MaybeValue weight, std::optional<double> eps) {
    return rms_norm(context, input, normalized_shape, weight, eps);
  });
  m.impl("_fused_rms_norm_backward", rms_norm_backward);
}

// ---- Group normalisation ------------------------------------------------------------------------

// The input as (batch, group, channel of the group, space).
Dims grouped(std::int64_t n, std::int64_t c, std::int64_t hxw, std::int64_t group) {
  return {n, group, c / group, hxw};
}

Value per_group_channel(Value parameter, std::int64_t group) {
  return hlo::reshape(parameter, {group, parameter.num_elements() / group});
}

std::tuple<Value, Value, Value> group_norm(const Context& context, Value input,
                                           const MaybeValue& weight, const MaybeValue& bias,
                                           std::int64_t n, std::int64_t c, std::int64_t hxw,
                                           std::int64_t group, double eps) {
  check_implemented(base::is_floating(input.dtype()), "GroupNormKernelImpl", input.dtype());
  if (is_group_norm_called(context, input, {weight, bias})) {
    return called_group_norm(input, {n, group}, {weight, bias}, hxw, eps);
  }
  const Dims dims = {2, 3};
  const Value x =
      hlo::reshape(convert(input, accumulate_dtype(input.dtype())), grouped(n, c, hxw, group));
  const auto [mean, variance] = moments(x, dims, /*correction=*/0);
  const Value rstd = reciprocal_deviation(variance, eps);
  const Value centered = hlo::subtract(x, spread(mean, x.dims(), dims));
  Value y = hlo::multiply(centered, spread(rstd, x.dims(), dims));
  const auto split = [&](const MaybeValue& p) {
    return p.has_value() ? MaybeValue(per_group_channel(*p, group)) : std::nullopt;
  };
  y = scaled(y, split(weight), split(bias), {1, 2});
  const DType saved = statistics_dtype(input, {weight, bias});
  return {convert(hlo::reshape(y, input.dims()), input.dtype()), convert(mean, saved),
          convert(rstd, saved)};
}

std::tuple<Value, Value, Value> group_norm_backward(Value grad_out, Value input, Value mean,
                                                    Value rstd, const MaybeValue& weight,
                                                    std::int64_t n, std::int64_t c,
                                                    std::int64_t hxw, std::int64_t group,
                                                    const std::vector<bool>& mask) {
  const Dims dims = {2, 3};
  const DType dtype = accumulate_dtype(input.dtype());
  const Dims split = grouped(n, c, hxw, group);
  const Value x = hlo::reshape(convert(input, dtype), split);
  const Value grad = hlo::reshape(convert(grad_out, dtype), split);
  const auto wide = [&](Value v) {
    return hlo::broadcast_in_dim(hlo::reshape(convert(v, dtype), {n, group}), split, {0, 1});
  };
  const Value rstd_wide = wide(rstd);
  const Value y = hlo::multiply(hlo::subtract(x, wide(mean)), rstd_wide);
  std::tuple<Value, Value, Value> out;
  if (mask[0]) {
    const MaybeValue factor =
        weight.has_value() ? MaybeValue(per_group_channel(*weight, group)) : std::nullopt;
    const Value weighted = scaled(grad, factor, std::nullopt, {1, 2});
    const Value grad_input = normalized_gradient(weighted, y, rstd_wide, dims);
    std::get<0>(out) = convert(hlo::reshape(grad_input, input.dims()), input.dtype());
  }
  const DType parameter_dtype = statistics_dtype(input, {weight});
  const auto per_channel = [&](Value v) {
    return convert(hlo::reshape(reduce_sum(v, {0, 3}), {c}), parameter_dtype);
  };
  if (mask[1]) std::get<1>(out) = per_channel(hlo::multiply(grad, y));
  if (mask[2]) std::get<2>(out) = per_channel(grad);
  return out;
}

// ---- Norms of slices ----------------------------------------------------------------------------

Dims across(Value x, std::int64_t dim) { return all_but(wrap_dim(dim, x.rank()), x.rank()); }

// Scales the slices along `dim` whose norm is above `max_norm` down to it.
Value renorm(Value self, double p, std::int64_t dim, double max_norm) {
  base::check(!base::is_integral(self.dtype()),
              "linalg.vector_norm: Expected a floating point or complex tensor as input. Got ",
              scalar_type_name(self.dtype()));
  const Dims dims = across(self, dim);
  const Value x = convert(self, accumulate_dtype(self.dtype()));
  const Value norm = vector_norm(x, p, dims);
  const Value limit = hlo::full_like(norm, max_norm);
  // PyTorch's guard against a division by zero.
  const Value factor = hlo::divide(limit, hlo::add(norm, hlo::full_like(norm, 1e-7)));
  const Value chosen = hlo::select(hlo::gt(norm, limit), factor, hlo::full_like(norm, 1));
  const Value wide = spread(convert(chosen, x.dtype()), x.dims(), dims);
  return convert(hlo::multiply(x, wide), self.dtype());
}

// v * g / norm(v), and the norms.
std::tuple<Value, Value> weight_norm(Value v, Value g, std::int64_t dim) {
  const Dims dims = across(v, dim);
  const Value x = convert(v, accumulate_dtype(v.dtype()));
  const Value norm = vector_norm(x, 2, dims);
  const Value gain = hlo::reshape(convert(g, x.dtype()), norm.dims());
  const Value wide = spread(hlo::divide(gain, norm), x.dims(), dims);
  return {convert(hlo::multiply(x, wide), v.dtype()), hlo::reshape(norm, g.dims())};
}

std::tuple<Value, Value> weight_norm_backward(Value grad_w, Value saved_v, Value saved_g,
                                              Value saved_norms, std::int64_t dim) {
  const Dims dims = across(saved_v, dim);
  const Value v = convert(saved_v, accumulate_dtype(saved_v.dtype()));
  const Value grad = convert(grad_w, v.dtype());
  const Dims slices = reduced_dims(v.dims(), dims, /*keepdim=*/false);
  const Value norm = hlo::reshape(convert(saved_norms, v.dtype()), slices);
  const Value gain = hlo::reshape(convert(saved_g, v.dtype()), slices);
  const Value grad_g = hlo::divide(reduce_sum(hlo::multiply(v, grad), dims), norm);
  const Value direction = hlo::multiply(v, spread(hlo::divide(grad_g, norm), v.dims(), dims));
  const Value ratio = spread(hlo::divide(gain, norm), v.dims(), dims);
  const Value grad_v = hlo::multiply(ratio, hlo::subtract(grad, direction));
  return {convert(grad_v, saved_v.dtype()),
          convert(hlo::reshape(grad_g, saved_g.dims()), saved_g.dtype())};
}

}  // namespace

void register_normalization(Registry& m) {
  register_batch_norm(m);
  register_batch_norm_backward(m);
  register_layer_norm(m);
  m.impl("native_group_norm",
         [](Context& context, Value input, MaybeValue weight, MaybeValue bias, std::int64_t n,
            std::int64_t c, std::int64_t hxw, std::int64_t group, double eps) {
           return group_norm(context, input, weight, bias, n, c, hxw, group, eps);
         });
  m.impl("native_group_norm_backward", group_norm_backward);
  m.impl("renorm", renorm);
  m.impl("_weight_norm_interface", weight_norm);
  m.impl("_weight_norm_interface_backward", weight_norm_backward);
}

}  // namespace torch_xla::ops

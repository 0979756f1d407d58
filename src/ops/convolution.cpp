// Convolutions of one to three dimensions and their gradients. Everything is made of three linear
// maps: `correlate` (what a convolution layer does), its adjoint with respect to the input, which
// is also the transposed convolution, and its adjoint with respect to the weight. StableHLO's
// dimension numbers, reversal and dilations express each as one operation.
#include <numeric>

#include "hlo/partitioned.h"
#include "ops/convolution.h"
#include "ops/expression.h"
#include "ops/reduce.h"

namespace torch_xla::ops {

Dims spatial_dims(const Value& value) { return Dims(value.dims().begin() + 2, value.dims().end()); }

namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

using Geometry = ConvolutionGeometry;

// ATen lets a list of one stand for all dimensions.
Dims expanded(const Dims& list, std::int64_t n, const char* name) {
  if (list.size() == 1) return Dims(index(n), list[0]);
  base::check(
      std::ssize(list) == n, "expected ", name, " to be a single integer value or a list of ", n,
      " values to match the convolution dimensions, but got ", name, "=", base::to_string(list));
  return list;
}

bool all_above(const Dims& list, std::int64_t bound) {
  for (const std::int64_t x : list) {
    if (x <= bound) return false;
  }
  return true;
}

std::string product_text(const Dims& sizes) {
  std::string out;
  for (const std::int64_t size : sizes) out += (out.empty() ? "" : " x ") + std::to_string(size);
  return out;
}

// The name of the tensor's legacy type, as the messages about dtypes have it.
std::string tensor_type_name(DType dtype) {
  return base::str("torch.", scalar_type_name(dtype), "Tensor");
}

void check_geometry(const Geometry& g) {
  base::check(all_above(g.padding, -1), "negative padding is not supported");
  base::check(all_above(g.output_padding, -1), "negative output_padding is not supported");
  base::check(all_above(g.stride, 0), "non-positive stride is not supported");
  base::check(all_above(g.dilation, 0), "dilation should be greater than zero, but got ",
              base::to_string(g.dilation));
  base::check(g.groups > 0, "non-positive groups is not supported");
  for (std::size_t i = 0; g.transposed && i < g.stride.size(); ++i) {
    base::check(g.output_padding[i] < g.stride[i] || g.output_padding[i] < g.dilation[i],
                "output padding must be smaller than either stride or dilation, but got "
                "output_padding: ",
                base::to_string(g.output_padding), " stride: ", base::to_string(g.stride),
                " dilation: ", base::to_string(g.dilation));
  }
}

Geometry make_geometry(const Value& weight, const Dims& stride, const Dims& padding,
                       const Dims& dilation, bool transposed, const Dims& output_padding,
                       std::int64_t groups) {
  const std::int64_t n = weight.rank() - 2;
  base::check(n > 0, "weight should have at least three dimensions");
  Geometry g{expanded(stride, n, "stride"),
             expanded(padding, n, "padding"),
             expanded(dilation, n, "dilation"),
             transposed,
             expanded(output_padding, n, "output_padding"),
             groups};
  check_geometry(g);
  return g;
}

void check_channels(const Value& input, const Value& weight, const Geometry& g) {
  const std::int64_t input_channels = input.dim(1);
  const std::int64_t expected = g.transposed ? weight.dim(0) : weight.dim(1) * g.groups;
  base::check(input.rank() == weight.rank(), "Expected ", weight.rank(), "-dimensional input for ",
              weight.rank(), "-dimensional weight ", base::to_string(weight.dims()), ", but got ",
              input.rank(), "-dimensional input of size ", base::to_string(input.dims()),
              " instead");
  base::check(weight.dim(0) >= g.groups, "Given groups=", g.groups,
              ", expected weight to be at least ", g.groups,
              " at dimension 0, but got weight of size ", base::to_string(weight.dims()),
              " instead");
  base::check(weight.dim(0) % g.groups == 0, "Given groups=", g.groups,
              ", expected weight to be divisible by ", g.groups,
              " at dimension 0, but got weight of size [", base::to_string(weight.dims()),
              "] instead");
  base::check(input_channels == expected, "Given ",
              g.transposed ? base::str("transposed=", 1) : base::str("groups=", g.groups),
              ", weight of size ", base::to_string(weight.dims()), ", expected input",
              base::to_string(input.dims()), " to have ", expected, " channels, but got ",
              input_channels, " channels instead");
}

void check_operands(const Value& input, const Value& weight, const std::optional<Value>& bias,
                    const Geometry& g) {
  base::check(input.dtype() == weight.dtype(), "Input type (", tensor_type_name(input.dtype()),
              ") and weight type (", tensor_type_name(weight.dtype()), ") should be the same");
  check_implemented(input.dtype() != DType::kBool, "convolution", input.dtype());
  check_channels(input, weight, g);
  if (!bias.has_value()) return;
  const std::int64_t channels = g.transposed ? weight.dim(1) * g.groups : weight.dim(0);
  base::check(input.dtype() == bias->dtype(), "Input type (", tensor_type_name(input.dtype()),
              ") and bias type (", tensor_type_name(bias->dtype()), ") should be the same");
  base::check(bias->rank() == 1 && bias->dim(0) == channels, "Given ",
              g.transposed ? "transposed=1, " : "", "weight of size ",
              base::to_string(weight.dims()), ", expected bias to be 1-dimensional with ", channels,
              " elements, but got bias of size ", base::to_string(bias->dims()), " instead");
}

void check_kernel_fits(const Value& input, const Value& weight, const Geometry& g) {
  Dims padded;
  Dims kernel;
  bool fits = true;
  for (std::size_t i = 0; i < g.stride.size(); ++i) {
    padded.push_back(input.dims()[i + 2] + 2 * g.padding[i]);
    kernel.push_back(g.extent(spatial_dims(weight), i));
    fits = fits && padded.back() >= kernel.back();
  }
  base::check(fits, "Calculated padded input size per channel: (", product_text(padded),
              "). Kernel size: (", product_text(kernel),
              "). Kernel size can't be greater than actual input size");
}

Dims concatenated(std::int64_t first, std::int64_t second, const Dims& rest) {
  Dims out = {first, second};
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

// The spatial sizes of `correlate`'s result.
Dims correlated_sizes(const Value& input, const Value& weight, const Geometry& g) {
  Dims sizes;
  for (std::size_t i = 0; i < g.rank(); ++i) {
    const std::int64_t room =
        input.dims()[i + 2] + 2 * g.padding[i] - g.extent(spatial_dims(weight), i);
    sizes.push_back(room / g.stride[i] + 1);
  }
  return sizes;
}

// PyTorch's kernels are faster in every floating dtype: XLA's CPU backend computes convolutions of
// float64 and of groups a hundred times as slowly. They want an output of exactly the sizes that
// the input gives; a transposed convolution with a large output padding has another.
bool can_call(const Context& context, DType dtype, const Dims& input, const Dims& weight,
              const Dims& output, const Geometry& g) {
  const DType computed = accumulate_dtype(dtype);
  if (!context.has_host_kernels) return false;
  if (computed != DType::kFloat32 && computed != DType::kFloat64) return false;
  const Dims kernel(weight.begin() + 2, weight.end());
  for (std::size_t i = 0; i < g.rank(); ++i) {
    const std::int64_t room = input[i + 2] + 2 * g.padding[i] - g.extent(kernel, i);
    if (output[i + 2] != room / g.stride[i] + 1) return false;
  }
  return true;
}

ConvolutionForm form_of(const Context& context, DType dtype, const Dims& input, const Dims& weight,
                        const Dims& output, const Geometry& g) {
  if (can_call(context, dtype, input, weight, output, g)) return ConvolutionForm::kCall;
  return best_form(context.platform, input, weight, output, g);
}

// [N, I, space] with weight [O, I / groups, space] to [N, O, space].
Value correlate(const Context& context, Value input, Value weight, const Geometry& g) {
  const Dims sizes = correlated_sizes(input, weight, g);
  const Dims output = concatenated(input.dim(0), weight.dim(0), sizes);
  const auto form = form_of(context, input.dtype(), input.dims(), weight.dims(), output, g);
  if (form == ConvolutionForm::kCall) return called_correlate(context, input, weight, sizes, g);
  if (form != ConvolutionForm::kConvolution) {
    return patches_correlate(input, weight, sizes, g, form);
  }
  hlo::ConvolutionWindow window;
  window.strides = g.stride;
  window.rhs_dilation = g.dilation;
  for (const std::int64_t p : g.padding) window.padding.emplace_back(p, p);
  return hlo::convolution(input, weight, window,
                          hlo::ConvolutionDimensionNumbers::channels_first(std::ssize(g.stride)),
                          g.groups, 1, accumulate_dtype(input.dtype()));
}

// [groups * A, B, space] to [A, groups * B, space]: StableHLO wants what is summed over per group,
// and the results of all groups.
Value regrouped(Value weight, std::int64_t groups) {
  if (groups == 1) return weight;
  Dims split = weight.dims();
  split[0] /= groups;
  split.insert(split.begin(), groups);
  Dims permutation(split.size());
  std::iota(permutation.begin(), permutation.end(), 0);
  std::swap(permutation[0], permutation[1]);
  Dims merged = weight.dims();
  merged[0] /= groups;
  merged[1] *= groups;
  return hlo::reshape(hlo::transpose(hlo::reshape(weight, split), permutation), merged);
}

// The adjoint of `correlate` in its input: [N, O, space] with weight [O, I / groups, space] to
// [N, I, `sizes`]. The output's gradient is spread out by the stride and correlated with the
// reversed kernel. (With the kernel reversed by its own operation XLA's CPU backend takes its fast
// path, with the window's reversal it does not.)
Value correlate_adjoint_input(const Context& context, Value output, Value weight, const Dims& sizes,
                              const Geometry& g) {
  const Dims input = concatenated(output.dim(0), weight.dim(1) * g.groups, sizes);
  const auto form = form_of(context, output.dtype(), input, weight.dims(), output.dims(), g);
  if (form == ConvolutionForm::kCall)
    return called_adjoint_input(context, output, weight, sizes, g);
  if (form == ConvolutionForm::kPatches) {
    return patches_adjoint_input(output, weight, sizes, g);
  }
  hlo::ConvolutionWindow window;
  window.lhs_dilation = g.stride;
  window.rhs_dilation = g.dilation;
  for (std::size_t i = 0; i < g.stride.size(); ++i) {
    const std::int64_t reach = g.extent(spatial_dims(weight), i);
    const std::int64_t spread = (output.dims()[i + 2] - 1) * g.stride[i] + 1;
    const std::int64_t low = reach - 1 - g.padding[i];
    window.padding.emplace_back(low, sizes[i] - (spread + low - reach + 1));
  }
  hlo::ConvolutionDimensionNumbers numbers =
      hlo::ConvolutionDimensionNumbers::channels_first(std::ssize(g.stride));
  std::swap(numbers.kernel_input_feature_dimension, numbers.kernel_output_feature_dimension);
  const Value kernel = hlo::reverse(regrouped(weight, g.groups), numbers.kernel_spatial_dimensions);
  return hlo::convolution(output, kernel, window, numbers, g.groups, 1,
                          accumulate_dtype(output.dtype()));
}

// The adjoint of `correlate` in its weight: [N, I, space] and [N, O, space] to
// [O, I / groups, `kernel`]. The batch is what is summed over, the output slides over the input.
Value correlate_adjoint_weight(const Context& context, Value input, Value output,
                               const Dims& kernel, const Geometry& g) {
  const Dims weight = concatenated(output.dim(1), input.dim(1) / g.groups, kernel);
  const auto form = form_of(context, input.dtype(), input.dims(), weight, output.dims(), g);
  if (form == ConvolutionForm::kCall)
    return called_adjoint_weight(context, input, output, kernel, g);
  if (form != ConvolutionForm::kConvolution) {
    return patches_adjoint_weight(input, output, kernel, g, form);
  }
  hlo::ConvolutionWindow window;
  window.strides = g.dilation;
  window.rhs_dilation = g.stride;
  for (std::size_t i = 0; i < g.stride.size(); ++i) {
    const std::int64_t spread = (output.dims()[i + 2] - 1) * g.stride[i] + 1;
    const std::int64_t reach = (kernel[i] - 1) * g.dilation[i] + spread;
    window.padding.emplace_back(g.padding[i], reach - input.dims()[i + 2] - g.padding[i]);
  }
  hlo::ConvolutionDimensionNumbers numbers =
      hlo::ConvolutionDimensionNumbers::channels_first(std::ssize(g.stride));
  numbers.input_batch_dimension = 1;
  numbers.input_feature_dimension = 0;
  numbers.kernel_input_feature_dimension = 0;
  numbers.kernel_output_feature_dimension = 1;
  numbers.output_batch_dimension = 1;
  numbers.output_feature_dimension = 0;
  // The partitioner gives wrong sums over a window that is split, where features are split too.
  const Dims& spatial = numbers.input_spatial_dimensions;
  return hlo::convolution(hlo::whole_along(input, spatial), hlo::whole_along(output, spatial),
                          window, numbers, 1, g.groups, accumulate_dtype(input.dtype()));
}

Value zeros(const Value& like, const Dims& dims) {
  return full(like.builder(), {accumulate_dtype(like.dtype()), dims}, 0);
}

Dims transposed_sizes(const Value& input, const Value& weight, const Geometry& g) {
  Dims sizes;
  for (std::size_t i = 0; i < g.stride.size(); ++i) {
    sizes.push_back((input.dims()[i + 2] - 1) * g.stride[i] - 2 * g.padding[i] +
                    g.extent(spatial_dims(weight), i) + g.output_padding[i]);
  }
  base::check(all_above(sizes, -1), "Given input size per channel: (",
              product_text(spatial_dims(input)), "). Calculated output size per channel: (",
              product_text(sizes), "). Output size is too small");
  return sizes;
}

// Without the bias, in the dtype of accumulation.
Value convolve(const Context& context, Value input, Value weight, const Geometry& g) {
  const bool is_empty = input.num_elements() == 0 || weight.num_elements() == 0;
  if (g.transposed) {
    const Dims sizes = transposed_sizes(input, weight, g);
    if (is_empty || base::num_elements(sizes) == 0) {
      return zeros(input, concatenated(input.dim(0), weight.dim(1) * g.groups, sizes));
    }
    return correlate_adjoint_input(context, input, weight, sizes, g);
  }
  check_kernel_fits(input, weight, g);
  if (!is_empty) return correlate(context, input, weight, g);
  return zeros(input,
               concatenated(input.dim(0), weight.dim(0), correlated_sizes(input, weight, g)));
}

Value convolution(Context& context, Value input, Value weight, std::optional<Value> bias,
                  Dims stride, Dims padding, Dims dilation, bool transposed, Dims output_padding,
                  std::int64_t groups) {
  const Geometry g =
      make_geometry(weight, stride, padding, dilation, transposed, output_padding, groups);
  check_operands(input, weight, bias, g);
  Value out = convolve(context, input, weight, g);
  if (bias.has_value()) {
    out = out + hlo::broadcast_in_dim(convert(*bias, out.dtype()), out.dims(), {1});
  }
  return convert(out, input.dtype());
}

Value grad_input_of(const Context& context, Value grad_output, Value input, Value weight,
                    const Geometry& g) {
  if (grad_output.num_elements() == 0 || weight.num_elements() == 0) {
    return zeros(input, input.dims());
  }
  if (g.transposed) {
    // An output padding above the stride makes room for more positions than the input has.
    const Value grad = correlate(context, grad_output, weight, g);
    return hlo::slice(grad, Dims(index(grad.rank()), 0), input.dims(), Dims(index(grad.rank()), 1));
  }
  return correlate_adjoint_input(context, grad_output, weight, spatial_dims(input), g);
}

Value grad_weight_of(const Context& context, Value grad_output, Value input, Value weight,
                     const Geometry& g) {
  if (grad_output.num_elements() == 0 || input.num_elements() == 0) {
    return zeros(weight, weight.dims());
  }
  // Of a transposed convolution, the output is what the kernel slides over.
  if (g.transposed) std::swap(grad_output, input);
  return correlate_adjoint_weight(context, input, grad_output, spatial_dims(weight), g);
}

Value grad_bias_of(Value grad_output) {
  Dims dims(index(grad_output.rank() - 1));
  std::iota(dims.begin(), dims.end(), 1);
  dims[0] = 0;
  return reduce_sum(convert(grad_output, accumulate_dtype(grad_output.dtype())), dims);
}

std::vector<Value> convolution_backward(Context& context, Value grad_output, Value input,
                                        Value weight, std::optional<Dims>, Dims stride,
                                        Dims padding, Dims dilation, bool transposed,
                                        Dims output_padding, std::int64_t groups,
                                        std::vector<bool> output_mask) {
  const Geometry g =
      make_geometry(weight, stride, padding, dilation, transposed, output_padding, groups);
  check_channels(input, weight, g);
  std::vector<Value> grads(3);
  if (output_mask[0]) grads[0] = grad_input_of(context, grad_output, input, weight, g);
  if (output_mask[1]) grads[1] = grad_weight_of(context, grad_output, input, weight, g);
  if (output_mask[2]) grads[2] = grad_bias_of(grad_output);
  for (Value& grad : grads) {
    if (grad) grad = convert(grad, input.dtype());
  }
  return grads;
}

}  // namespace

void register_convolution(Registry& m) {
  m.impl({"convolution", "convolution_overrideable"}, convolution);
  m.impl("_convolution", [](Context& context, Value input, Value weight, std::optional<Value> bias,
                            Dims stride, Dims padding, Dims dilation, bool transposed,
                            Dims output_padding, std::int64_t groups, bool, bool, bool, bool) {
    return convolution(context, input, weight, bias, stride, padding, dilation, transposed,
                       output_padding, groups);
  });
  m.impl("convolution_backward", convolution_backward);
  m.impl("convolution_backward_overrideable",
         [](Context& context, Value grad_output, Value input, Value weight, Dims stride,
            Dims padding, Dims dilation, bool transposed, Dims output_padding, std::int64_t groups,
            std::vector<bool> output_mask) {
           return convolution_backward(context, grad_output, input, weight, std::nullopt, stride,
                                       padding, dilation, transposed, output_padding, groups,
                                       output_mask);
         });
}

}  // namespace torch_xla::ops

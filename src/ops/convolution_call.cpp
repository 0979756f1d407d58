// The maps of convolutions as calls of host kernels (runtime/host_kernels.h) on the program's
// memory: PyTorch's (src/aten/convolution_kernels.cpp), or ours where each channel is by itself
// (src/aten/depthwise_kernels.cpp) and PyTorch's is slow.
#include <algorithm>

#include "ops/convolution.h"
#include "ops/promotion.h"

namespace torch_xla::ops {
namespace {

Value call(const char* name, hlo::Values operands, const Dims& result,
           const ConvolutionGeometry& g) {
  hlo::CustomCall custom_call;
  custom_call.call_target_name = name;
  custom_call.results = {{operands[0].dtype(), result}};
  custom_call.backend_config = {
      {"stride", g.stride}, {"padding", g.padding}, {"dilation", g.dilation}, {"groups", g.groups}};
  return hlo::custom_call(operands, custom_call)[0];
}

// PyTorch's kernels. Half precision is computed in float32, for which there is a fast kernel on
// every CPU, where the CPU has no instructions for it: its kernels take up to two hundred times as
// long then.
Value call(const Context& context, const char* name, hlo::Values operands, const Dims& result,
           const ConvolutionGeometry& g) {
  for (Value& operand : operands) {
    if (context.has_products_of(operand.dtype())) continue;
    operand = convert(operand, accumulate_dtype(operand.dtype()));
  }
  return call(name, std::move(operands), result, g);
}

// Whether several channels of the input are each by itself.
bool is_depthwise(std::int64_t channels, const ConvolutionGeometry& g) {
  return g.groups > 1 && g.groups == channels;
}

// Where oneDNN has no kernel, or one that is slower than ours: along one dimension it rearranges
// the images for longer than it computes.
bool is_ours(DType dtype, std::int64_t channels, const ConvolutionGeometry& g) {
  if (!is_depthwise(channels, g)) return false;
  return dtype == DType::kFloat64 || (dtype == DType::kFloat32 && g.stride.size() == 1);
}

// Whether oneDNN has more than a reference for the gradient of such a weight.
bool is_fast_weight(DType dtype, const Dims& kernel) {
  return dtype != DType::kFloat64 && kernel.size() < 3 && std::ranges::max(kernel) <= 3;
}

Dims joined(std::int64_t first, std::int64_t second, const Dims& rest) {
  Dims out = {first, second};
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

}  // namespace

Value called_correlate(const Context& context, Value input, Value weight, const Dims& output,
                       const ConvolutionGeometry& g) {
  const Dims result = joined(input.dim(0), weight.dim(0), output);
  if (is_ours(input.dtype(), input.dim(1), g)) {
    return call("torch_xla.depthwise_correlate", {input, weight}, result, g);
  }
  return call(context, "torch_xla.correlate", {input, weight}, result, g);
}

Value called_adjoint_input(const Context& context, Value output, Value weight, const Dims& input,
                           const ConvolutionGeometry& g) {
  const Dims result = joined(output.dim(0), weight.dim(1) * g.groups, input);
  if (is_ours(output.dtype(), result[1], g)) {
    return call("torch_xla.depthwise_adjoint_input", {output, weight}, result, g);
  }
  return call(context, "torch_xla.correlate_adjoint_input", {output, weight}, result, g);
}

Value called_adjoint_weight(const Context& context, Value input, Value output, const Dims& kernel,
                            const ConvolutionGeometry& g) {
  const Dims result = joined(output.dim(1), input.dim(1) / g.groups, kernel);
  if (is_depthwise(input.dim(1), g) && !is_fast_weight(input.dtype(), kernel)) {
    const DType computed = accumulate_dtype(input.dtype());
    return call("torch_xla.depthwise_adjoint_weight",
                {convert(input, computed), convert(output, computed)}, result, g);
  }
  return call(context, "torch_xla.correlate_adjoint_weight", {input, output}, result, g);
}

}  // namespace torch_xla::ops

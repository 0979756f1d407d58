// The maps of convolutions as calls of PyTorch's own CPU kernels, on the program's memory. See
// runtime/host_kernels.h and src/aten/convolution_kernels.cpp.
#include "ops/convolution.h"
#include "ops/promotion.h"

namespace torch_xla::ops {
namespace {

// Half precision is computed in float32, for which there is a fast kernel on every CPU, where the
// CPU has no instructions for it: its kernels take up to two hundred times as long then.
Value call(const Context& context, const char* name, hlo::Values operands, const Dims& result,
           const ConvolutionGeometry& g) {
  for (Value& operand : operands) {
    if (context.has_products_of(operand.dtype())) continue;
    operand = convert(operand, accumulate_dtype(operand.dtype()));
  }
  hlo::CustomCall custom_call;
  custom_call.call_target_name = name;
  custom_call.results = {{operands[0].dtype(), result}};
  custom_call.backend_config = {
      {"stride", g.stride}, {"padding", g.padding}, {"dilation", g.dilation}, {"groups", g.groups}};
  return hlo::custom_call(operands, custom_call)[0];
}

Dims joined(std::int64_t first, std::int64_t second, const Dims& rest) {
  Dims out = {first, second};
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

}  // namespace

Value called_correlate(const Context& context, Value input, Value weight, const Dims& output,
                       const ConvolutionGeometry& g) {
  return call(context, "torch_xla.correlate", {input, weight},
              joined(input.dim(0), weight.dim(0), output), g);
}

Value called_adjoint_input(const Context& context, Value output, Value weight, const Dims& input,
                           const ConvolutionGeometry& g) {
  return call(context, "torch_xla.correlate_adjoint_input", {output, weight},
              joined(output.dim(0), weight.dim(1) * g.groups, input), g);
}

Value called_adjoint_weight(const Context& context, Value input, Value output, const Dims& kernel,
                            const ConvolutionGeometry& g) {
  return call(context, "torch_xla.correlate_adjoint_weight", {input, output},
              joined(output.dim(1), input.dim(1) / g.groups, kernel), g);
}

}  // namespace torch_xla::ops

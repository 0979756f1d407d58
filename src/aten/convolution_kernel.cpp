#include "aten/convolution_kernel.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/frontend/tracer.h>

namespace torch_xla::aten {

void ConvolutionKernel::operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                                   torch::jit::Stack* stack) {
  if (!torch::jit::tracer::isTracing()) return kernel_(handle, keys, stack);
  static const auto traced =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::_convolution", "");
  const at::Context& context = at::globalContext();
  stack->emplace_back(context.benchmarkCuDNN());
  stack->emplace_back(context.deterministicCuDNN() || context.deterministicAlgorithms());
  stack->emplace_back(context.userEnabledCuDNN());
  stack->emplace_back(context.allowTF32CuDNN(at::Float32Op::CONV));
  traced.callBoxed(*stack);
}

}  // namespace torch_xla::aten

// `convolution`, as torch.jit.trace knows it.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/stack.h>

#include <memory>
#include <string_view>

#include "aten/record.h"

namespace torch_xla::aten {

// Records the operator. PyTorch's tracer writes nothing down for `convolution`: it counts on
// kernels to call `_convolution`, which it writes. So this one does, while a program is traced.
class ConvolutionKernel final : public c10::OperatorKernel {
 public:
  static constexpr std::string_view kOperator = "convolution";

  explicit ConvolutionKernel(std::unique_ptr<Operator> op) : kernel_(std::move(op)) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  RecordingKernel kernel_;
};

}  // namespace torch_xla::aten

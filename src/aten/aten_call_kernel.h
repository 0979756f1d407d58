// Operators that run as calls of PyTorch's CPU kernels from inside programs (ops/aten_call.h).
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <memory>

#include "aten/operator.h"
#include "aten/record.h"

namespace torch_xla::aten {

// Records the operator where programs can call the host, else runs it on the CPU. Results whose
// sizes the data decide are computed at the call, as those of `nonzero` are.
class AtenCallKernel final : public c10::OperatorKernel {
 public:
  explicit AtenCallKernel(std::unique_ptr<Operator> op)
      : takes_half_(op->lowering->takes_half), kernel_(std::move(op)) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  bool takes_half_;
  RecordingKernel kernel_;
};

}  // namespace torch_xla::aten

// The operator of observers that quantize what they observe, in one call.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <memory>
#include <string_view>
#include <utility>

#include "aten/operator.h"
#include "aten/record.h"

namespace torch_xla::aten {

// Records the operator. Observers of channels are made with empty tensors: those it gives their
// size first, as PyTorch's kernel does.
class ObserverKernel final : public c10::OperatorKernel {
 public:
  static constexpr std::string_view kOperator = "_fused_moving_avg_obs_fq_helper";

  explicit ObserverKernel(std::unique_ptr<Operator> op) : kernel_(std::move(op)) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  RecordingKernel kernel_;
};

}  // namespace torch_xla::aten

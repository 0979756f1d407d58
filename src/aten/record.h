// The recording kernel: one boxed function behind every operator that has a lowering. It reads the
// arguments, finds the memo entry, appends a node and makes the result tensors; in-place calls
// write the node's outputs to their arguments.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/stack.h>

#include <memory>

#include "aten/operator.h"
#include "aten/tensor.h"
#include "graph/memo.h"

namespace torch_xla::aten {

class RecordingKernel final : public c10::OperatorKernel {
 public:
  explicit RecordingKernel(std::unique_ptr<Operator> op) : op_(std::move(op)) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  bool write_one_after_the_other(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                                 const TensorImpls& written, torch::jit::Stack& stack);

  std::unique_ptr<Operator> op_;
};

// Records an operator whose kernel prepares the arguments first.
class Recorder {
 public:
  Recorder(const char* name, const char* overload);
  // The call's first result.
  at::Tensor operator()(torch::jit::Stack stack);

 private:
  c10::OperatorHandle handle_;
  std::unique_ptr<RecordingKernel> kernel_;
};

// The process's memo.
graph::Memo& memo();

}  // namespace torch_xla::aten

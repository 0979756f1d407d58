// `out=` overloads: runs the functional overload, resizes the out tensors and copies into them.
// What out tensors PyTorch accepts its Meta kernel says, where there is a compiled one, and the
// operator's rules.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/stack.h>

#include <mutex>
#include <optional>
#include <vector>

#include "aten/operator_rules.h"
#include "aten/tensor.h"

namespace torch_xla::aten {

class OutKernel final : public c10::OperatorKernel {
 public:
  // Of the `out=` overload `handle`, whose out tensors are the arguments at `out_arguments`.
  OutKernel(const c10::OperatorHandle& handle, c10::OperatorHandle functional,
            std::vector<std::size_t> out_arguments);
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  const ReadRules& rules_of_reads(const std::vector<c10::IValue>& arguments) const;
  TensorImpls reads_of(const std::vector<c10::IValue>& arguments) const;
  // Throws if the out tensors lie where PyTorch does not write.
  void check_memory(const std::vector<c10::IValue>& arguments, const torch::jit::Stack& results,
                    Moment moment) const;
  // Throws if PyTorch would refuse the out tensors, and warns if it would resize them.
  void check(const c10::OperatorHandle& handle, const std::vector<c10::IValue>& arguments,
             const torch::jit::Stack& results);

  c10::OperatorHandle functional_;
  std::vector<std::size_t> in_arguments_;
  std::vector<std::size_t> out_arguments_;
  OperatorRules rules_;
  // Where the functional overload must be told the out tensor's dtype, if the caller says none.
  std::optional<std::size_t> dtype_argument_;
  std::once_flag looked_;
  std::optional<c10::KernelFunction> compiled_meta_;
};

}  // namespace torch_xla::aten

// Operators that look at the matrices that they are given: a singular one is an error of the call,
// as on the CPU, at the cost of a read.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/stack.h>

#include <memory>
#include <utility>
#include <vector>

#include "aten/operator_rules.h"

namespace torch_xla::aten {

// What rules take as `info`: the last result is the report, ...
at::Tensor info_of_results(CallArguments arguments, CallArguments results);
// ... it is that of a factorisation of our own, which XLA merges with the operator's, ...
at::Tensor info_of_cholesky(CallArguments arguments, CallArguments results);
// ... or of a factor the first of its diagonal that is zero, counted from 1.
at::Tensor info_of_factor(CallArguments arguments, CallArguments results);

// Sets the argument `check_errors` to false. What it was; true where the operator has none, and
// false where values cannot be read: in what is being captured.
bool take_check_errors(const c10::FunctionSchema& schema, torch::jit::Stack& stack);

// Throws torch.linalg.LinAlgError where a report is not 0. Reads them.
void check_factors(const FactorRule& rule, CallArguments arguments, CallArguments results);

// Calls `Kernel`, then looks at what it found.
template <typename Kernel>
class CheckedKernel final : public c10::OperatorKernel {
 public:
  template <typename Op>
  CheckedKernel(std::unique_ptr<Op> op, const FactorRule& rule)
      : kernel_(std::move(op)), rule_(rule) {}

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    const c10::FunctionSchema& schema = handle.schema();
    const bool is_checked = take_check_errors(schema, *stack);
    const auto given = torch::jit::last(*stack, schema.arguments().size());
    const std::vector<c10::IValue> arguments(given.begin(), given.end());
    kernel_(handle, keys, stack);
    if (!is_checked) return;
    check_factors(rule_, arguments, torch::jit::last(*stack, schema.returns().size()));
  }

 private:
  Kernel kernel_;
  FactorRule rule_;
};

}  // namespace torch_xla::aten

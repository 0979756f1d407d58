// Operators that look at the matrices that they are given: a singular one is an error of the call,
// as on the CPU, at the cost of a read.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/stack.h>

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace torch_xla::aten {

// What one operator looks at.
struct FactorCheck {
  std::string_view op;
  // The name in PyTorch's words.
  const char* api;
  // LAPACK's report for each matrix, from the arguments and the results: 0 where all is well.
  at::Tensor (*info)(at::ArrayRef<c10::IValue> arguments, at::ArrayRef<c10::IValue> results);
};

// Those of the operator of that name ("linalg_inv_ex"), or null.
const FactorCheck* find_factor_check(std::string_view name);

// Sets the argument `check_errors` to false. What it was; true where the operator has none, and
// false where values cannot be read: in what is being captured.
bool take_check_errors(const c10::FunctionSchema& schema, torch::jit::Stack& stack);

// Throws torch.linalg.LinAlgError where a report is not 0. Reads them.
void check_factors(const FactorCheck& check, at::ArrayRef<c10::IValue> arguments,
                   at::ArrayRef<c10::IValue> results);

// Calls `Kernel`, then looks at what it found.
template <typename Kernel>
class CheckedKernel final : public c10::OperatorKernel {
 public:
  template <typename Op>
  CheckedKernel(std::unique_ptr<Op> op, const FactorCheck& check)
      : kernel_(std::move(op)), check_(check) {}

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    const c10::FunctionSchema& schema = handle.schema();
    const bool is_checked = take_check_errors(schema, *stack);
    const auto given = torch::jit::last(*stack, schema.arguments().size());
    const std::vector<c10::IValue> arguments(given.begin(), given.end());
    kernel_(handle, keys, stack);
    if (!is_checked) return;
    check_factors(check_, arguments, torch::jit::last(*stack, schema.returns().size()));
  }

 private:
  Kernel kernel_;
  const FactorCheck& check_;
};

}  // namespace torch_xla::aten

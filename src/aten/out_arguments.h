// What PyTorch's kernels for the CPU ask of the tensors given as `out=`, beyond what compiled Meta
// kernels say.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "aten/operator_rules.h"

namespace torch_xla::aten {

// The `dtype_error` of operators without words of their own.
inline constexpr std::string_view kExpectedOut =
    "Expected out tensor to have dtype {want}, but got {got} instead";

// What some operators' rules take as `check_cast` and `check_call`.
void check_cast_of_bernoulli(at::ScalarType from, at::ScalarType to);
void check_cast_of_stack(at::ScalarType from, at::ScalarType to);
void check_call_of_mean(at::ScalarType self, at::ScalarType out);

// Throws if `out`, the out tensor number `k`, must have the result's dtype and has not. `self` is
// the call's first argument.
void check_out_dtype(const OutRule& rule, const c10::IValue& self, std::size_t k,
                     const at::Tensor& result, const at::Tensor& out);

// For operators without a compiled Meta kernel: throws if the result cannot be cast to the dtype of
// `out`; warns if `out` would be resized.
void check_out(const c10::OperatorHandle& handle, const OutRule& rule, const at::Tensor& result,
               const at::Tensor& out);

}  // namespace torch_xla::aten

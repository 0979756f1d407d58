// What PyTorch's kernels for the CPU ask of the tensors given as `out=`, beyond what compiled Meta
// kernels say.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string_view>

namespace torch_xla::aten {

// Of the first out tensor of an operator.
struct OutRule {
  std::string_view op;  // its name, or with that of an overload
  // In the operator's own words, what is wrong with another dtype than the result's; empty: any
  // dtype that the result's can be cast to. {Want} and {Got} stand for names of dtypes such as
  // Float, {want} and {got} for such as float.
  std::string_view dtype_error;
  bool resizes_silently = false;
  // Throws if the result cannot be cast; null: as most operators do.
  void (*check_cast)(at::ScalarType from, at::ScalarType to) = nullptr;
  // The real results of complex numbers are cast as most are, also to the numbers' own dtype.
  bool casts_complex = false;
  // As `dtype_error`, for the second out tensor.
  std::string_view second_dtype_error = {};
  // Throws for what PyTorch refuses before it computes; null: nothing.
  void (*check_call)(at::ScalarType self, at::ScalarType out) = nullptr;
};
// Null if there is nothing special about the operator.
const OutRule* find_out_rule(const c10::OperatorHandle& handle);

// Throws if `out`, the out tensor number `k`, must have the result's dtype and has not. `self` is
// the call's first argument.
void check_out_dtype(const OutRule* rule, const c10::IValue& self, std::size_t k,
                     const at::Tensor& result, const at::Tensor& out);

// For operators without a compiled Meta kernel: throws if the result cannot be cast to the dtype of
// `out`; warns if `out` would be resized.
void check_out(const c10::OperatorHandle& handle, const OutRule* rule, const at::Tensor& result,
               const at::Tensor& out);

}  // namespace torch_xla::aten

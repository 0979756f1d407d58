// What PyTorch's kernels for the CPU ask of `out=` tensors beyond what compiled Meta kernels say.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

namespace torch_xla::aten {

// Throws if `out`, the argument of this position among the out tensors, must have the result's
// dtype and has not.
void check_out_dtype(const c10::OperatorHandle& handle, std::size_t position,
                     const at::Tensor& result, const at::Tensor& out);

// For operators without a compiled Meta kernel: throws if the result cannot be cast to the dtype of
// `out`; warns if `out` would be resized.
void check_out(const c10::OperatorHandle& handle, const at::Tensor& result, const at::Tensor& out);

}  // namespace torch_xla::aten

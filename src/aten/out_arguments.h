// What PyTorch's kernels for the CPU ask of the tensors that a call writes, beyond what compiled
// Meta kernels say: those given as `out=`, and those that may share no memory with what is read.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <string_view>

namespace torch_xla::aten {

// Whether an argument may share memory with the one that is written.
enum class Apart : char {
  kPartly = 'p',      // all of its elements, or none
  kAll = 'x',         // not at all
  kAllBut0Dim = 'n',  // not at all, if it has dimensions
  kFree = '-',        // as it likes: it is read before
};
// Of the operator's tensors, in order: a letter each, of which the last stands for the rest too.
// Empty where nothing is known. `name` is like "index_add", "max.dim_max".
std::string_view apart_of(std::string_view name);

// Throws if `out`, the argument of this position among the out tensors, must have the result's
// dtype and has not.
void check_out_dtype(const c10::OperatorHandle& handle, std::size_t position,
                     const at::Tensor& result, const at::Tensor& out);

// For operators without a compiled Meta kernel: throws if the result cannot be cast to the dtype of
// `out`; warns if `out` would be resized.
void check_out(const c10::OperatorHandle& handle, const at::Tensor& result, const at::Tensor& out);

}  // namespace torch_xla::aten

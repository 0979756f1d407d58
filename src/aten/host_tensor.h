// The operands and results of a host kernel (runtime/host_kernels.h) as tensors on their memory.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>

#include "aten/parallel.h"
#include "aten/tensor.h"
#include "ops/aten_call.h"
#include "runtime/host_kernels.h"

namespace torch_xla::aten {

// The part of PyTorch's thread-local state that its kernels need, on threads that have none.
struct OnThisThread {
  at::AutoDispatchBelowADInplaceOrView below;
  OneThread one_thread;
};

inline at::Tensor tensor_over(const pjrt::CustomCallArray& array) {
  return at::from_blob(array.data, at::IntArrayRef(array.dims.data(), array.dims.size()),
                       at::TensorOptions().dtype(to_scalar_type(array.dtype)));
}

// Result `index` of an operator that a program calls, as the operator's kernel sees it.
inline at::Tensor result_over(const runtime::HostCall& call, std::size_t index) {
  const at::Tensor result = tensor_over(call.output(index));
  if (index > 0 || !call.has_attribute(ops::kAtenCallSizes)) return result;
  return result.view(at::IntArrayRef(call.integers(ops::kAtenCallSizes)));
}

}  // namespace torch_xla::aten

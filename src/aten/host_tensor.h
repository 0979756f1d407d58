// The operands and results of a host kernel (runtime/host_kernels.h) as tensors on their memory.
#pragma once

#include <ATen/ops/from_blob.h>

#include "aten/tensor.h"
#include "runtime/host_kernels.h"

namespace torch_xla::aten {

inline at::Tensor tensor_over(const pjrt::CustomCallArray& array) {
  return at::from_blob(array.data, at::IntArrayRef(array.dims.data(), array.dims.size()),
                       at::TensorOptions().dtype(to_scalar_type(array.dtype)));
}

}  // namespace torch_xla::aten

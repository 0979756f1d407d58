// Values across the device's border: uploads, reads, and copies between xla devices.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "base/sharding.h"

namespace torch_xla::runtime {
class Array;
}

namespace torch_xla::aten {

class TensorImpl;

// The values of a CPU tensor as arrays take them: of that dtype, row by row, with nothing lazy.
at::Tensor dense_values(const at::Tensor& cpu, base::DType dtype);
// Replaces the value of `dst` by that of an array of its type.
void write_data(TensorImpl& dst, std::shared_ptr<runtime::Array> array);
// The values on the CPU, all transfers under way at once. Strides are kept where the tensor is
// dense.
std::vector<at::Tensor> to_cpu(at::TensorList tensors);
// Puts the values of CPU tensors on a device, in new tensors.
at::Tensor to_device(const at::Tensor& cpu, c10::Device device);
// Of which it is said that it lies by `sharding`; each device gets its part alone.
at::Tensor to_device(const at::Tensor& cpu, c10::Device device, const base::Sharding& sharding);

}  // namespace torch_xla::aten

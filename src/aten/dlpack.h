// What dlpack needs: tensors of two devices that share memory, where the device's memory is the
// host's; copies elsewhere.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_xla::aten {

// A CPU tensor with the value of an xla tensor as it is now; later writes to the xla tensor go
// elsewhere. Blocks until the value is there.
at::Tensor cpu_view(const at::Tensor& tensor);

// An xla tensor with the value of a CPU tensor, whose memory must not be written while the xla
// tensor lives; writes to the xla tensor go elsewhere.
at::Tensor adopt(const at::Tensor& cpu, c10::Device device);

}  // namespace torch_xla::aten

// Fourier transforms that programs call on the host, in blocks on the plugin's threads.
#pragma once

#include <ATen/core/stack.h>

#include <string_view>

#include "runtime/host_kernels.h"

namespace torch_xla::aten {

// Fills the call's output if the operator transforms each of several arrays that lie one behind the
// other, and MKL is there to do it. False otherwise.
bool transform_in_blocks(const runtime::HostCall& call, std::string_view name,
                         const torch::jit::Stack& operands);

}  // namespace torch_xla::aten

// Products of matrices that programs call on the host, in blocks on the plugin's threads.
#pragma once

#include <ATen/core/stack.h>

#include <string_view>

#include "runtime/host_kernels.h"

namespace torch_xla::aten {

// Fills the call's output if `name` is an operator that multiplies matrices and its operands, in
// the schema's order, can be taken as they lie. False otherwise.
bool multiply_in_blocks(const runtime::HostCall& call, std::string_view name,
                        const torch::jit::Stack& operands);

}  // namespace torch_xla::aten

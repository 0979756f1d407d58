// Normalizations of rows that programs call on the host, in blocks of rows on the plugin's threads.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string_view>

#include "runtime/host_kernels.h"

namespace torch_xla::aten {

// Fills the call's outputs if `op` normalizes rows that lie one behind the other: a layer norm, or
// the batch norm in training of a batch of one, whose rows are channels. False otherwise.
bool normalize_in_blocks(const runtime::HostCall& call, const c10::OperatorHandle& op,
                         std::string_view name, const torch::jit::Stack& operands);

}  // namespace torch_xla::aten

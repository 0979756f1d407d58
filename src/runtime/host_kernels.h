// Kernels of ours that programs for the CPU call from inside, on the program's own memory: where
// XLA's CPU backend is slow, a lowering may hand an operation to PyTorch's kernel, as XLA itself
// hands convolutions to cuDNN elsewhere. `src/aten` owns the kernels.
#pragma once

#include <functional>
#include <string>

#include "base/hash.h"
#include "pjrt/client.h"
#include "pjrt/ffi.h"

namespace torch_xla::runtime {

using HostCall = pjrt::CustomCallFrame;

// Makes `kernel` callable as the custom call `name` by the programs of clients made from now on, if
// their devices use host memory. Called from static objects, before the device's first use. The
// kernel runs on threads of the plugin, several at once, and may throw. Programs on the disk call
// it by its name: give it the next `version` when what they pass or expect changes.
void add_host_kernel(const std::string& name, std::function<void(const HostCall&)> kernel,
                     int version = 1);

// Of all names and versions.
base::Hash128 host_kernels_key();

// Registers them with the plugin of a new client. Whether it takes any.
bool register_host_kernels(const pjrt::Client& client);
// Whether the current client took them: lowerings may call them by name then.
bool has_host_kernels();

}  // namespace torch_xla::runtime

// Checks of numbers that travel to the device as data: lowerings and Meta kernels never see their
// values, so they are looked at on every call.
#pragma once

#include <ATen/core/ivalue.h>

#include <string_view>

namespace torch_xla::aten {

// Throws as PyTorch's kernel for the CPU does.
using ArgumentCheck = void (*)(at::ArrayRef<c10::IValue> arguments);

// That of the operator of this name, or null. In-place variants have that of the functional one
// ("fill.Scalar"), but for a few ("tril_").
ArgumentCheck find_argument_check(std::string_view name);

}  // namespace torch_xla::aten

// What is behind tensors in the lazy graph, for people to look at.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

namespace torch_xla::aten {

// What a read of the tensors, which must be on one device, would run; `format` as for
// `runtime::pending_graph`. Runs nothing.
std::string graph_of(at::TensorList tensors, std::string_view format);
// Equal for tensors whose graphs give equal programs.
std::string graph_key_of(at::TensorList tensors);
// One tensor: its type, whether its value is there, the operation and line that made it.
std::string describe(const at::Tensor& tensor);

// After a setting changed: whether operations note their lines from now on.
void refresh_location_switch();

}  // namespace torch_xla::aten

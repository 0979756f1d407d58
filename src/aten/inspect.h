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
// "array": it is on the device or on its way. "stand_in": it is an argument of a function that is
// being captured. "pending": it is recorded.
std::string_view kind_of_data(const at::Tensor& tensor);
// Names the operation that is to compute the tensor, as an annotation around it would; false if
// the tensor is computed already.
bool set_name(const at::Tensor& tensor, std::string name);

// After a setting changed: whether operations note their lines from now on.
void refresh_location_switch();

}  // namespace torch_xla::aten

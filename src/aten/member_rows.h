// What the members of a process group have, as rows: one for each of them, in their order.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace torch_xla::aten {

// Of a vector of the same size on each member: [members, elements].
at::Tensor gather_rows(c10d::ProcessGroup& process_group, const at::Tensor& row);

std::vector<std::string> gather_texts(c10d::ProcessGroup& process_group, std::string_view text);

// Whether rows are reduced by that here.
bool can_reduce_rows(c10d::ReduceOp::RedOpType op);

// Reduces [members, elements] to [elements], from the first to the last in the dtype itself, so
// that every member gets the same bits.
void reduce_rows(c10d::ReduceOp::RedOpType op, const at::Tensor& rows, at::Tensor& output);

}  // namespace torch_xla::aten

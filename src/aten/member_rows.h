// What the members of a group have, as rows: one for each of them, in their order.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace torch_xla::aten {

// Of a vector of the same size on each member: [members, elements].
using GatherRows = std::function<at::Tensor(const at::Tensor& row)>;
at::Tensor gather_rows(c10d::ProcessGroup& process_group, const at::Tensor& row);

std::vector<std::string> gather_texts(const GatherRows& gather, std::string_view text);

// Reduces tensors of one size, of several members, from the first to the last in the dtype itself,
// so that every member gets the same bits. `output` is none of them.
void reduce_rows(c10d::ReduceOp::RedOpType op, const std::vector<at::Tensor>& rows,
                 at::Tensor output);

}  // namespace torch_xla::aten

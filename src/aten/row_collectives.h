// Collectives whose result follows from the members' tensors, each of which all members see.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "aten/host_memory.h"

namespace torch_xla::aten {

// For one member. Tensors are matrices here, whose columns are independent of each other: a row of
// the input for each member that gets another part of it, a row of the result for each member
// that gives one.
struct RowCollective {
  std::int64_t input_rows = 1;
  std::int64_t output_rows = 1;
  bool is_shown = true;  // this member's input, to the others
  // `memory` is where the members' inputs lie, or null.
  std::function<void(const std::vector<at::Tensor>& inputs, const at::Tensor& output,
                     HostMemory* memory)>
      write;

  at::Tensor shown(const at::Tensor& input) const {
    return is_shown ? input : input.narrow(1, 0, 0);
  }
};

// Nothing if it is no such collective. `arguments` are the operator's.
std::optional<RowCollective> row_collective(const std::string& op,
                                            const torch::jit::Stack& arguments, std::int64_t member,
                                            std::int64_t num_members);

// Of a group's reduction, as its name says, and the other way round.
c10d::ReduceOp::RedOpType reduction(const std::string& name);
std::string name_of_reduction(c10d::ReduceOp::RedOpType reduction);

// The result, by memory that the members share; of large tensors piece by piece.
void exchange_at_once(const RowCollective& collective, HostMemory& memory, const at::Tensor& input,
                      const at::Tensor& output);

}  // namespace torch_xla::aten

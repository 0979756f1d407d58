// Collectives of processes: recorded with a token that orders them, and run on the host as
// PyTorch's functional collectives on CPU tensors, in a process group of c10d
// (ops/collectives.cpp).
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "aten/operator.h"
#include "aten/record.h"
#include "runtime/host_kernels.h"

namespace torch_xla::aten {

// Records the operator: names its group as programs do, and adds the device's token.
class CollectiveKernel final : public c10::OperatorKernel {
 public:
  explicit CollectiveKernel(std::unique_ptr<Operator> op);
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  std::size_t group_argument_;
  RecordingKernel kernel_;
};

// Lets collectives name a group by `name`. Programs name it `group`: a number that this process
// gave it and how many members it has, "0/4". `members` are their ranks in the job, one of which is
// that of `device` of this process. Where they are several, they meet in the process group that
// c10d knows by `process_group_name(group, device)`.
void add_group(const std::string& name, const std::string& group,
               const std::vector<std::int64_t>& members, std::int64_t device);
// Ends the part of that device in its groups: who waits for it there fails, and what it has
// recorded is forgotten.
void remove_groups_of(std::int64_t device);
std::string process_group_name(const std::string& group, std::int64_t device);

// Whether this process is in a group with others.
bool has_groups();

// The 0-d tensor that each collective of the device writes: how many there were. While a function
// is captured, another stands in for it.
at::Tensor collective_token(std::int64_t device);
at::Tensor new_token(std::int64_t device);
at::Tensor exchange_token(std::int64_t device, at::Tensor token);

// The ranks in the job of the members of the group of that process group.
std::vector<std::int64_t> members_of(const std::string& process_group_name);

// Waits until what this process sent has arrived, or who should take it has ended
// (point_to_point.cpp). Returns in words what did not arrive.
std::vector<std::string> finish_sends();

// Runs `op` on CPU tensors, for a program whose call this is: the last of `stack` is the group.
void run_collective(const runtime::HostCall& call, const c10::OperatorHandle& op,
                    torch::jit::Stack stack);

}  // namespace torch_xla::aten

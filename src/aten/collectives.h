// Collectives of processes are recorded with a token that orders them. exchanges.h runs them.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "aten/operator.h"
#include "aten/record.h"

namespace torch_xla::aten {

// Records the operator: names its group and its reduction as programs do, and adds the device's
// token.
class CollectiveKernel final : public c10::OperatorKernel {
 public:
  explicit CollectiveKernel(std::unique_ptr<Operator> op);
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  std::size_t group_argument_;
  std::optional<std::size_t> reduction_argument_;
  RecordingKernel kernel_;
};

// Ends the part of that device in its groups: who waits for it there fails, and what it has
// recorded is forgotten.
void remove_groups_of(std::int64_t device);

// The 0-d tensor that each collective of the device writes: how many there were. While a function
// is captured, another stands in for it.
at::Tensor collective_token(std::int64_t device);
// Of a token with that value.
std::int64_t device_of_token(std::int64_t value);
at::Tensor new_token(std::int64_t device);
at::Tensor exchange_token(std::int64_t device, at::Tensor token);

// Waits until what this process sent has arrived, or who should take it has ended
// (point_to_point.cpp). Returns in words what did not arrive.
std::vector<std::string> finish_sends();

}  // namespace torch_xla::aten

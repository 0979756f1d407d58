// Tokens, and the kernel that records collectives with them.
#include "aten/collectives.h"

#include <ATen/ops/full.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "aten/device.h"
#include "aten/exchanges.h"
#include "aten/groups.h"
#include "aten/row_collectives.h"
#include "aten/tensor.h"
#include "base/error.h"
#include "runtime/client.h"
#include "runtime/host_kernels.h"

namespace torch_xla::aten {
namespace {

// A token counts the collectives of its device, and says above these bits which device that is: one
// program may run on several devices of the process, each a replica with groups of its own.
constexpr int kDeviceShift = 48;

class Tokens {
 public:
  at::Tensor of(std::int64_t device) {
    const std::lock_guard lock(mutex_);
    at::Tensor& token = tokens_[device];
    if (!token.defined()) token = new_token(device);
    return token;
  }
  void forget() {
    std::map<std::int64_t, at::Tensor> tokens;  // freed without the lock
    const std::lock_guard lock(mutex_);
    tokens.swap(tokens_);
  }
  at::Tensor exchange(std::int64_t device, at::Tensor token) {
    const std::lock_guard lock(mutex_);
    return std::exchange(tokens_[device], std::move(token));
  }

 private:
  std::mutex mutex_;
  std::map<std::int64_t, at::Tensor> tokens_;
};

Tokens& tokens() {
  static auto* const instance = [] {
    runtime::at_shutdown([] { tokens().forget(); });
    return new Tokens();
  }();
  return *instance;
}

const runtime::Device& device_of_arguments(at::ArrayRef<c10::IValue> arguments) {
  TensorImpls tensors;
  for (const c10::IValue& argument : arguments) append_xla(argument, tensors);
  return tensors.empty() ? current_device() : tensors.front()->xla_device();
}

std::string name_of_group(const c10::IValue& value) {
  if (value.isString()) return value.toStringRef();
  return value.toCustomClass<c10d::ProcessGroup>()->getGroupName();
}

std::string text_of_reduction(const c10::IValue& value) {
  return value.isString() ? value.toStringRef()
                          : name_of_reduction(value.toCustomClass<c10d::ReduceOp>()->op_);
}

std::optional<std::size_t> find_reduction(const Operator& op) {
  const auto& args = op.schema.args;
  const auto found = std::ranges::find(args, "reduce_op", &ArgSchema::name);
  if (found == args.end()) return std::nullopt;
  return static_cast<std::size_t>(found - args.begin());
}

}  // namespace

CollectiveKernel::CollectiveKernel(std::unique_ptr<Operator> op)
    // The token is last, behind the schema's own arguments, of which the group is.
    : group_argument_(op->schema.args.size() - 2),
      reduction_argument_(find_reduction(*op)),
      kernel_(std::move(op)) {}

void CollectiveKernel::operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                                  torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, group_argument_ + 1);
  const at::Tensor token = collective_token(device_of_arguments(arguments).ordinal());
  const std::string& op = handle.operator_name().name;
  const std::string group = group_named(name_of_group(stack->back()), op);
  const runtime::Client& client = runtime::client();
  TORCH_CHECK_NOT_IMPLEMENTED(
      group.ends_with("/1") || client.has_host_kernels() || client.spans_processes(), op,
      ": the devices of the platform '", client.platform(), "' can't exchange between ",
      runtime::device_count() > 1 ? "threads" : "processes",
      ": its plugin has shown this process no devices of others");
  if (reduction_argument_.has_value()) {
    c10::IValue& reduction = (*stack)[stack->size() - 1 - group_argument_ + *reduction_argument_];
    reduction = text_of_reduction(reduction);
  }
  stack->back() = group;
  stack->emplace_back(token);
  kernel_(handle, keys, stack);
}

void remove_groups_of(std::int64_t device) {
  forget_groups_of(device);
  forget_exchanges_of(device);
  tokens().exchange(device, new_token(device));  // what was recorded is not exchanged any more
}

at::Tensor collective_token(std::int64_t device) { return tokens().of(device); }

std::int64_t device_of_token(std::int64_t value) { return value >> kDeviceShift; }

at::Tensor exchange_token(std::int64_t device, at::Tensor token) {
  return tokens().exchange(device, std::move(token));
}

at::Tensor new_token(std::int64_t device) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  return at::full({}, device << kDeviceShift,
                  at::TensorOptions().dtype(at::kLong).device(at::kXLA, index));
}

}  // namespace torch_xla::aten

// Groups, tokens, and the calls in the middle of programs. What members compare before they
// exchange anything is agreement.h.
#include "aten/collectives.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "aten/agreement.h"
#include "aten/attendance.h"
#include "aten/device.h"
#include "aten/host_memory.h"
#include "aten/host_tensor.h"
#include "aten/member_rows.h"
#include "aten/tensor.h"
#include "base/error.h"
#include "ops/aten_call.h"
#include "runtime/client.h"

namespace torch_xla::aten {
namespace {

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

struct Group {
  std::vector<std::int64_t> members;
  std::string process_group_name;
  GroupPtr process_group;  // null: it has one member
  // The token orders what follows.
  Agreement agreement = {};
  std::int64_t num_exchanges = 0;
};

class Groups {
 public:
  void add(const std::string& name, const std::string& group,
           const std::vector<std::int64_t>& members, std::int64_t device) {
    if (name_known(name, group, device)) return;
    std::string process_group = process_group_name(group, device);
    GroupPtr meeting;
    if (members.size() > 1) {
      are_any_of_several_ = true;
      meeting = c10d::resolve_process_group(process_group);
      // Waits for the others, without the lock that their programs' calls may need here.
      meet_in_host_memory(*meeting);
    }
    const std::lock_guard lock(mutex_);
    groups_[{group, device}] =
        std::make_shared<Group>(Group{members, std::move(process_group), std::move(meeting)});
  }
  void remove_of(std::int64_t device) {
    const std::lock_guard lock(mutex_);
    std::erase_if(groups_, [&](const auto& item) {
      const bool is_of_device = item.first.second == device;
      if (is_of_device && item.second->process_group != nullptr) {
        c10d::unregister_process_group(item.second->process_group_name);
      }
      return is_of_device;
    });
  }
  // What programs call it.
  std::string named(const std::string& name, const std::string& op) {
    const std::lock_guard lock(mutex_);
    const auto found = names_.find(name);
    TORCH_CHECK_VALUE(found != names_.end(), op, ": the process group '", name,
                      "' can't exchange tensors of the device xla; make it with the backend 'xla'");
    return found->second;
  }
  std::shared_ptr<Group> find(const std::string& group, std::int64_t device) {
    const std::lock_guard lock(mutex_);
    const auto found = groups_.find({group, device});
    base::check(found != groups_.end(), "the program's group '", group, "' is not there");
    return found->second;
  }

  bool are_any_of_several() const { return are_any_of_several_; }

 private:
  // Gives the group this name. Whether it was known under another.
  bool name_known(const std::string& name, const std::string& group, std::int64_t device) {
    const std::lock_guard lock(mutex_);
    names_[name] = group;
    return groups_.contains({group, device});
  }

  std::mutex mutex_;
  std::atomic<bool> are_any_of_several_ = false;
  std::map<std::string, std::string> names_;
  std::map<std::pair<std::string, std::int64_t>, std::shared_ptr<Group>> groups_;
};

// Programs may run while the process exits.
Groups& groups() {
  static auto* const instance = new Groups();
  return *instance;
}

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
  at::Tensor exchange(std::int64_t device, at::Tensor token) {
    const std::lock_guard lock(mutex_);
    return std::exchange(tokens_[device], std::move(token));
  }

 private:
  std::mutex mutex_;
  std::map<std::int64_t, at::Tensor> tokens_;
};

Tokens& tokens() {
  static auto* const instance = new Tokens();
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

// `destroy_process_group` makes c10d forget all groups, ours too.
void register_again(const std::string& name, const GroupPtr& process_group) {
  try {
    c10d::resolve_process_group(name);
  } catch (const c10::Error&) {
    c10d::register_process_group(name, process_group);
  }
}

// After an exchange that failed: which members have not failed in it too, a moment later. They have
// ended, or are elsewhere in their program.
std::string describe_missing(const Exchange& exchange) {
  const auto missing = absent_members(exchange, "failed", std::chrono::seconds(2));
  if (!missing.has_value() || missing->empty()) return {};
  return base::str("; rank ", joined(*missing), " did not come: it has ended, or is elsewhere");
}

// `all_reduce_` of `all_reduce`: it can be told where the result is to be.
std::optional<c10::OperatorHandle> in_place_variant(const c10::OperatorHandle& op) {
  return c10::Dispatcher::singleton().findSchema({op.operator_name().name + "_", ""});
}

at::Tensor token_of(const runtime::HostCall& call) {
  return tensor_over(call.input(call.num_inputs() - 1));
}

void write_token(const runtime::HostCall& call) {
  tensor_over(call.output(call.num_outputs() - 1)).copy_(token_of(call) + 1);
}

void write_results(const runtime::HostCall& call, const torch::jit::Stack& stack) {
  static const auto wait = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("_c10d_functional::wait_tensor", "")
                               .typed<at::Tensor(const at::Tensor&)>();
  base::internal_check(stack.size() + 1 == call.num_outputs(), "a collective gave ", stack.size(),
                       " results, ", call.num_outputs() - 1, " were recorded");
  for (std::size_t i = 0; i < stack.size(); ++i) {
    at::Tensor output = tensor_over(call.output(i));
    const at::Tensor result = wait.call(stack[i].toTensor());
    base::internal_check(result.sizes() == output.sizes(),
                         "a collective's result is not as recorded");
    if (result.const_data_ptr() != output.const_data_ptr()) output.copy_(result);
  }
}

// A collective whose result follows from the members' tensors, which have come as rows.
using FromRows = void (*)(const torch::jit::Stack& arguments, const at::Tensor& rows,
                          at::Tensor& output);

c10d::ReduceOp::RedOpType reduction(const std::string& name) {
  static const std::map<std::string, c10d::ReduceOp::RedOpType> reductions{
      {"sum", c10d::ReduceOp::SUM},   {"product", c10d::ReduceOp::PRODUCT},
      {"min", c10d::ReduceOp::MIN},   {"max", c10d::ReduceOp::MAX},
      {"band", c10d::ReduceOp::BAND}, {"bor", c10d::ReduceOp::BOR},
      {"bxor", c10d::ReduceOp::BXOR}};
  return reductions.at(name);
}

FromRows from_rows(const std::string& op) {
  if (op == "_c10d_functional::all_reduce") {
    return [](const torch::jit::Stack& arguments, const at::Tensor& rows, at::Tensor& output) {
      reduce_rows(reduction(arguments[1].toStringRef()), rows, output);
    };
  }
  if (op == "_c10d_functional::all_gather_into_tensor") {
    return [](const torch::jit::Stack&, const at::Tensor& rows, at::Tensor& output) {
      output.copy_(rows.flatten());
    };
  }
  if (op == "_c10d_functional::broadcast") {
    return [](const torch::jit::Stack& arguments, const at::Tensor& rows, at::Tensor& output) {
      output.copy_(rows[arguments[1].toInt()]);
    };
  }
  return nullptr;
}

void exchange(Group& group, const runtime::HostCall& call, const c10::OperatorHandle& op,
              torch::jit::Stack stack) {
  if (call.has_attribute(ops::kAtenCallNumber)) {
    const FromRows function = from_rows(op.operator_name().name);
    const at::Tensor carried = function == nullptr ? at::Tensor() : stack.front().toTensor();
    const at::Tensor rows =
        group.agreement.enter(*group.process_group, group.members, call, carried);
    if (rows.defined()) {
      at::Tensor output = tensor_over(call.output(0)).flatten();
      return function(stack, rows, output);
    }
  }
  register_again(group.process_group_name, group.process_group);
  stack.back() = group.process_group_name;
  const auto in_place = in_place_variant(op);
  if (in_place.has_value()) {
    at::Tensor output = tensor_over(call.output(0));
    stack.front() = output.copy_(stack.front().toTensor());
  }
  in_place.value_or(op).callBoxed(&stack);
  write_results(call, stack);
}

bool is_message(const std::string& op) {
  return op == "xla::send" || op == "xla::recv" || op == "xla::find_sender";
}

// See ops/collectives.cpp: on each member, the tensor of the one that sends to it, or zeros.
at::Tensor collective_permute(const at::Tensor& input, at::IntArrayRef sources,
                              at::IntArrayRef targets, const std::string& group_name) {
  const GroupPtr group = c10d::resolve_process_group(group_name);
  at::Tensor output = at::zeros_like(input);
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  std::vector<at::Tensor> sent{input};
  std::vector<at::Tensor> received{output};
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const auto source = static_cast<int>(sources[i]);
    const auto target = static_cast<int>(targets[i]);
    if (source == target) {
      if (target == group->getRank()) output.copy_(input);
      continue;
    }
    if (source == group->getRank()) works.push_back(group->send(sent, target, 0));
    if (target == group->getRank()) works.push_back(group->recv(received, source, 0));
  }
  for (const auto& work : works) work->wait();
  return output;
}

TORCH_LIBRARY_IMPL(xla, CPU, m) { m.impl("collective_permute", collective_permute); }

}  // namespace

CollectiveKernel::CollectiveKernel(std::unique_ptr<Operator> op)
    // The token is last, behind the schema's own arguments, of which the group is.
    : group_argument_(op->schema.args.size() - 2), kernel_(std::move(op)) {}

void CollectiveKernel::operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                                  torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, group_argument_ + 1);
  const at::Tensor token = collective_token(device_of_arguments(arguments).ordinal());
  const std::string& op = handle.operator_name().name;
  const std::string group = groups().named(name_of_group(stack->back()), op);
  TORCH_CHECK_NOT_IMPLEMENTED(group.ends_with("/1") || runtime::has_host_kernels(), op,
                              ": processes with devices of the platform '", runtime::platform(),
                              "' can't exchange anything yet");
  stack->back() = group;
  stack->emplace_back(token);
  kernel_(handle, keys, stack);
}

void add_group(const std::string& name, const std::string& group,
               const std::vector<std::int64_t>& members, std::int64_t device) {
  groups().add(name, group, members, device);
}

void remove_groups_of(std::int64_t device) {
  groups().remove_of(device);
  tokens().exchange(device, new_token(device));  // what was recorded is not exchanged any more
}

bool has_groups() { return groups().are_any_of_several(); }

at::Tensor collective_token(std::int64_t device) { return tokens().of(device); }

at::Tensor exchange_token(std::int64_t device, at::Tensor token) {
  return tokens().exchange(device, std::move(token));
}

at::Tensor new_token(std::int64_t device) {
  const auto index = static_cast<c10::DeviceIndex>(device);
  return at::full({}, device << kDeviceShift,
                  at::TensorOptions().dtype(at::kLong).device(at::kXLA, index));
}

std::string process_group_name(const std::string& group, std::int64_t device) {
  return base::str("torch_xla:", group, ":", device);
}

std::vector<std::int64_t> members_of(const std::string& process_group_name) {
  const std::size_t start = process_group_name.find(':') + 1;
  const std::size_t middle = process_group_name.find(':', start);
  const std::int64_t device = std::stoll(process_group_name.substr(middle + 1));
  return groups().find(process_group_name.substr(start, middle - start), device)->members;
}

void run_collective(const runtime::HostCall& call, const c10::OperatorHandle& op,
                    torch::jit::Stack stack) {
  const std::int64_t device = token_of(call).item<std::int64_t>() >> kDeviceShift;
  const std::shared_ptr<Group> group = groups().find(stack.back().toStringRef(), device);
  const std::string& name = op.operator_name().name;
  const bool is_of_all = !is_message(name);
  const Exchange watched{.store = group->process_group->getStore(),
                         .place = static_cast<std::size_t>(group->process_group->getRank()),
                         .members = {group, &group->members},
                         .op = name,
                         .number = is_of_all ? ++group->num_exchanges : 0};
  try {
    std::optional<WatchedExchange> watch;
    if (is_of_all) watch.emplace(watched);
    exchange(*group, call, op, std::move(stack));
    write_token(call);
  } catch (const base::Error&) {
    throw;
  } catch (const std::exception& error) {
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    base::fail(base::ErrorKind::kRuntime, name, " of ranks ", base::to_string(group->members), ": ",
               torch_error != nullptr ? torch_error->what_without_backtrace() : error.what(),
               is_of_all ? describe_missing(watched) : "");
  }
}

}  // namespace torch_xla::aten

// What members compare before they exchange anything is agreement.h. Processes of one host show
// each other their tensors in memory: the first part of a call does, the second reads what the
// others have shown. Others meet in a process group of c10d, which works on threads of its own
// meanwhile.
#include "aten/exchanges.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "aten/attendance.h"
#include "aten/collectives.h"
#include "aten/groups.h"
#include "aten/host_tensor.h"
#include "aten/row_collectives.h"
#include "base/error.h"
#include "ops/aten_call.h"

namespace torch_xla::aten {
namespace {

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Stack = torch::jit::Stack;

// One collective of one device, between the parts of its call.
struct Exchanging {
  std::shared_ptr<Group> group;
  Exchange watched;
  // Waits for the others, and writes the result. To be called once.
  std::function<void(const at::Tensor& output)> finish;
  // Where it keeps memory from others, what it would write: it can be finished before its time.
  std::function<at::Tensor()> new_result;
  at::Tensor result;  // once it was
};

// Of all devices: what was started, in order, and is to be finished in that order.
class Started {
 public:
  void add(std::int64_t device, std::shared_ptr<Exchanging> exchange) {
    const std::lock_guard lock(mutex_);
    by_device_[device].push_back(std::move(exchange));
  }
  std::shared_ptr<Exchanging> take(std::int64_t device) {
    const std::lock_guard lock(mutex_);
    auto& all = by_device_[device];
    base::internal_check(!all.empty(), "a collective ends that has not begun");
    std::shared_ptr<Exchanging> first = std::move(all.front());
    all.pop_front();
    return first;
  }
  std::deque<std::shared_ptr<Exchanging>> of(std::int64_t device) {
    const std::lock_guard lock(mutex_);
    return by_device_[device];
  }
  void forget(std::int64_t device) {
    const std::lock_guard lock(mutex_);
    by_device_.erase(device);
  }

 private:
  std::mutex mutex_;
  std::map<std::int64_t, std::deque<std::shared_ptr<Exchanging>>> by_device_;
};

// Programs may run while the process exits.
Started& started() {
  static auto* const instance = new Started();
  return *instance;
}

// Before a member waits for others elsewhere than at the end of what it has started first: they may
// wait until it lets go of what they have shown.
void finish_early(std::int64_t device) {
  for (const std::shared_ptr<Exchanging>& exchange : started().of(device)) {
    if (exchange->new_result == nullptr || exchange->result.defined()) continue;
    const at::Tensor result = exchange->new_result();
    exchange->finish(result);
    exchange->result = result;
  }
}

constexpr std::string_view kFunctional = "_c10d_functional::";

// How a functional collective of c10d meets in a process group without its operator, whose table of
// works each thread has another of: so that one thread may start it and another wait.
struct GroupCall {
  std::string_view name;
  WorkPtr (*start)(c10d::Backend& group, const Stack& arguments, std::vector<at::Tensor>& inputs,
                   std::vector<at::Tensor>& outputs);
  bool is_in_place = false;  // the result's memory is the input's
  // Of the result in the first dimension; null: the result is as large as the input.
  std::int64_t (*size)(const Stack& arguments, std::int64_t size,
                       std::int64_t num_members) = nullptr;
};

// Those that have no row are called as operators, in one part.
constexpr GroupCall kGroupCalls[] = {
    {.name = "all_reduce",
     .start =
         [](auto& group, auto& arguments, auto&, auto& outputs) {
           return group.allreduce(outputs, {.reduceOp = reduction(arguments[1].toStringRef())});
         },
     .is_in_place = true},
    {.name = "broadcast",
     .start =
         [](auto& group, auto& arguments, auto&, auto& outputs) {
           return group.broadcast(outputs, {.rootRank = arguments[1].toInt()});
         },
     .is_in_place = true},
    {.name = "all_gather_into_tensor",
     .start = [](auto& group, auto&, auto& inputs,
                 auto& outputs) { return group.allgather_into_tensor_coalesced(outputs, inputs); },
     .size = [](auto&, auto size, auto num_members) { return size * num_members; }},
    {.name = "reduce_scatter_tensor",
     .start =
         [](auto& group, auto& arguments, auto& inputs, auto& outputs) {
           return group.reduce_scatter_tensor_coalesced(
               outputs, inputs, {.reduceOp = reduction(arguments[1].toStringRef())});
         },
     .size = [](auto&, auto size, auto num_members) { return size / num_members; }},
    {.name = "all_to_all_single",
     .start =
         [](auto& group, auto& arguments, auto& inputs, auto& outputs) {
           std::vector<std::int64_t> output_splits = arguments[1].toIntVector();
           std::vector<std::int64_t> input_splits = arguments[2].toIntVector();
           return group.alltoall_base(outputs[0], inputs[0], output_splits, input_splits);
         },
     .size =
         [](auto& arguments, auto, auto) {
           const std::vector<std::int64_t> splits = arguments[1].toIntVector();
           return std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
         }},
};

// Null if it has none.
const GroupCall* find_group_call(const std::string& op) {
  if (!op.starts_with(kFunctional)) return nullptr;
  const auto* const found = std::ranges::find(
      kGroupCalls, std::string_view(op).substr(kFunctional.size()), &GroupCall::name);
  return found == std::end(kGroupCalls) ? nullptr : found;
}

// A call, and what it exchanges in.
struct Collective {
  Group& group;
  std::int64_t device;
  const std::string& op;
  const Stack& arguments;
  const GroupCall* by_group = find_group_call(op);

  at::Tensor input() const { return arguments.front().toTensor(); }
};

WorkPtr start_in_process_group(const Collective& collective, at::Tensor input, at::Tensor output) {
  const auto group = collective.group.process_group->getBackend(c10::DeviceType::CPU);
  std::vector<at::Tensor> inputs{std::move(input)};
  std::vector<at::Tensor> outputs{std::move(output)};
  return collective.by_group->start(*group, collective.arguments, inputs, outputs);
}

std::vector<std::int64_t> result_sizes(const Collective& collective) {
  std::vector<std::int64_t> sizes = collective.input().sizes().vec();
  if (collective.by_group->size != nullptr) {
    sizes[0] = collective.by_group->size(collective.arguments, sizes[0],
                                         std::ssize(collective.group.members));
  }
  return sizes;
}

at::Tensor new_result(const Collective& collective) {
  return at::empty(result_sizes(collective), collective.input().options());
}

// Compares with the members what they are about to exchange. Returns their inputs, if they came
// along.
std::vector<at::Tensor> agree(const Collective& collective, const runtime::HostCall& call,
                              const at::Tensor& carried) {
  if (!call.has_attribute(ops::kAtenCallNumber)) return {};
  Group& group = collective.group;
  const GatherRows gather = [&](const at::Tensor& row) {
    finish_early(collective.device);
    return group.memory == nullptr ? gather_rows(*group.process_group, row)
                                   : group.memory->gather(row);
  };
  const at::Tensor rows = group.agreement.enter(gather, group.members, call, carried);
  return rows.defined() ? rows.unbind() : std::vector<at::Tensor>();
}

std::optional<RowCollective> row_collective_of(const Collective& collective) {
  const Group& group = collective.group;
  return row_collective(collective.op, collective.arguments, group.process_group->getRank(),
                        std::ssize(group.members));
}

void write_carried(const RowCollective& by_rows, std::vector<at::Tensor> inputs,
                   const at::Tensor& output) {
  for (at::Tensor& input : inputs) input = input.reshape({by_rows.input_rows, -1});
  by_rows.write(inputs, output.view({by_rows.output_rows, -1}), nullptr);
}

// Shows the others the input.
void show(const Collective& collective, const RowCollective& by_rows, Exchanging& exchange) {
  const std::shared_ptr<HostMemory> memory = collective.group.memory;
  const at::Tensor input = collective.input().view({by_rows.input_rows, -1});
  std::optional<std::uint64_t> number = memory->show(by_rows.shown(input));
  if (!number.has_value()) {
    finish_early(collective.device);
    number = memory->show_when_free(by_rows.shown(input));
  }
  exchange.finish = [by_rows, memory, number = *number, sizes = input.sizes().vec(),
                     options = input.options()](const at::Tensor& output) {
    by_rows.write(memory->rows(number, sizes, options), output.view({by_rows.output_rows, -1}),
                  memory.get());
    memory->let_go(number);
  };
  exchange.new_result = [sizes = result_sizes(collective), options = input.options()] {
    return at::empty(sizes, options);
  };
}

void start(const Collective& collective, const runtime::HostCall& call, Exchanging& exchange) {
  const std::optional<RowCollective> by_rows = row_collective_of(collective);
  std::vector<at::Tensor> carried =
      agree(collective, call, by_rows.has_value() ? collective.input() : at::Tensor());
  if (!carried.empty()) {
    exchange.finish = [by_rows = *by_rows, carried = std::move(carried)](const at::Tensor& output) {
      write_carried(by_rows, carried, output);
    };
    return;
  }
  if (by_rows.has_value() && collective.group.memory != nullptr) {
    return show(collective, *by_rows, exchange);
  }
  const at::Tensor input = collective.input().clone();
  const at::Tensor result = collective.by_group->is_in_place ? input : new_result(collective);
  exchange.finish = [work = start_in_process_group(collective, input, result),
                     result](const at::Tensor& output) {
    work->wait();
    output.copy_(result);
  };
}

void run_whole(const Collective& collective, const runtime::HostCall& call) {
  const at::Tensor output = tensor_over(call.output(0));
  const std::optional<RowCollective> by_rows = row_collective_of(collective);
  std::vector<at::Tensor> carried =
      agree(collective, call, by_rows.has_value() ? collective.input() : at::Tensor());
  if (!carried.empty()) return write_carried(*by_rows, std::move(carried), output);
  finish_early(collective.device);
  if (by_rows.has_value() && collective.group.memory != nullptr) {
    return exchange_at_once(*by_rows, *collective.group.memory, collective.input(), output);
  }
  if (collective.by_group->is_in_place) output.copy_(collective.input());
  start_in_process_group(collective, collective.input(), output)->wait();
}

// `destroy_process_group` makes c10d forget all groups, ours too.
void register_again(const std::string& name, const GroupPtr& process_group) {
  try {
    c10d::resolve_process_group(name);
  } catch (const c10::Error&) {
    c10d::register_process_group(name, process_group);
  }
}

// The operator itself, on tensors of the CPU. It waits, or its result is to be waited for.
void run_operator(const Collective& collective, const runtime::HostCall& call,
                  const c10::OperatorHandle& op, Stack stack) {
  agree(collective, call, at::Tensor());
  const Group& group = collective.group;
  register_again(group.process_group_name, group.process_group);
  stack.back() = group.process_group_name;
  op.callBoxed(&stack);
  const at::Tensor output = tensor_over(call.output(0));
  if (collective.op.starts_with(kFunctional)) {
    c10::Dispatcher::singleton()
        .findSchemaOrThrow("_c10d_functional::wait_tensor", "")
        .callBoxed(&stack);
  }
  const at::Tensor result = stack.front().toTensor();
  base::internal_check(result.sizes() == output.sizes(),
                       "a collective's result is not as recorded");
  output.copy_(result);
}

bool is_message(const std::string& op) {
  return op == "xla::send" || op == "xla::recv" || op == "xla::find_sender";
}

// See ops/collectives.cpp: on each member, the tensor of the one that sends to it, or zeros.
at::Tensor collective_permute(const at::Tensor& input, at::IntArrayRef sources,
                              at::IntArrayRef targets, const std::string& group_name) {
  const GroupPtr group = c10d::resolve_process_group(group_name);
  at::Tensor output = at::zeros_like(input);
  std::vector<WorkPtr> works;
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

void finish(std::int64_t device, const runtime::HostCall& call) {
  const std::shared_ptr<Exchanging> exchange = started().take(device);
  const at::Tensor output = tensor_over(call.output(0));
  if (exchange->result.defined()) {
    output.copy_(exchange->result);
  } else {
    watch(exchange->watched, [&] { exchange->finish(output); });
  }
}

}  // namespace

void run_collective(const runtime::HostCall& call, const c10::OperatorHandle& op, Stack stack) {
  const at::Tensor token = tensor_over(call.input(call.num_inputs() - 1));
  const std::int64_t device = device_of_token(token.item<std::int64_t>());
  const at::Tensor next_token = tensor_over(call.output(call.num_outputs() - 1));
  const std::string part(call.has_attribute(ops::kAtenCallPart) ? call.text(ops::kAtenCallPart)
                                                                : "");
  if (part == ops::kFinish) {
    finish(device, call);
    next_token.copy_(token);
    return;
  }
  const std::shared_ptr<Group> group = find_group(stack.back().toStringRef(), device);
  const std::string& name = op.operator_name().name;
  auto exchange = std::make_shared<Exchanging>();
  exchange->group = group;
  exchange->watched = {.store = group->process_group->getStore(),
                       .place = static_cast<std::size_t>(group->process_group->getRank()),
                       .members = {group, &group->members},
                       .op = name,
                       .is_of_all = !is_message(name),
                       .number = is_message(name) ? 0 : ++group->num_exchanges};
  watch(exchange->watched, [&] {
    const Collective collective{*group, device, name, stack};
    if (part == ops::kStart) {
      base::internal_check(collective.by_group != nullptr, name, " can't be called in two parts");
      start(collective, call, *exchange);
    } else if (collective.by_group != nullptr) {
      run_whole(collective, call);
    } else {
      run_operator(collective, call, op, stack);
    }
  });
  if (part == ops::kStart) started().add(device, std::move(exchange));
  next_token.copy_(token + 1);
}

void forget_exchanges_of(std::int64_t device) { started().forget(device); }

}  // namespace torch_xla::aten

// Groups, tokens, and what members compare before they exchange anything.
#include "aten/collectives.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <thread>

#include "aten/device.h"
#include "aten/host_tensor.h"
#include "aten/tensor.h"
#include "base/error.h"
#include "base/hash.h"
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
  std::vector<std::string> lines = {};  // the collectives of the program that runs
  std::size_t next = 0;                 // of these
  std::int64_t agreed = 0;              // how many from there on all members are known to have
};

class Groups {
 public:
  void add(const std::string& name, const std::string& group,
           const std::vector<std::int64_t>& members, std::int64_t device) {
    const std::lock_guard lock(mutex_);
    names_[name] = group;
    std::shared_ptr<Group>& known = groups_[{group, device}];
    if (known != nullptr) return;
    std::string process_group = process_group_name(group, device);
    GroupPtr meeting;
    if (members.size() > 1) {
      are_any_of_several_ = true;
      meeting = c10d::resolve_process_group(process_group);
    }
    known = std::make_shared<Group>(Group{members, std::move(process_group), std::move(meeting)});
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

// The first line, which is taken off the text.
std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) lines.emplace_back(take_line(text));
  return lines;
}

// Without what is for people.
std::string_view compared(std::string_view line) { return line.substr(0, line.find('\t')); }

std::int64_t key_of(std::string_view line) {
  base::Hasher hasher;
  hasher.add(compared(line));
  return static_cast<std::int64_t>(hasher.finish().lo);
}

// One row for each member, of the same size.
at::Tensor gather_rows(Group& group, const at::Tensor& row) {
  const auto count = static_cast<std::int64_t>(group.members.size());
  const at::Tensor rows = at::empty({count, row.numel()}, row.options());
  std::vector<std::vector<at::Tensor>> outputs{rows.unbind()};
  std::vector<at::Tensor> inputs{row};
  group.process_group->allgather(outputs, inputs)->wait();
  return rows;
}

std::vector<std::string> gather_texts(Group& group, std::string_view text) {
  const auto size = static_cast<std::int64_t>(text.size());
  const at::Tensor sizes = gather_rows(group, at::tensor({size}, at::kLong));
  at::Tensor padded = at::zeros({sizes.max().item<std::int64_t>()}, at::kByte);
  std::memcpy(padded.mutable_data_ptr(), text.data(), text.size());
  const at::Tensor rows = gather_rows(group, padded);
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < rows.size(0); ++i) {
    const at::Tensor row = rows[i];
    texts.emplace_back(static_cast<const char*>(row.const_data_ptr()),
                       static_cast<std::size_t>(sizes[i].item<std::int64_t>()));
  }
  return texts;
}

std::string spoken(std::string_view line) {
  if (line.empty()) return "nothing";
  const std::size_t tab = line.find('\t');
  std::string text(line.substr(0, tab));
  if (tab != line.npos) text += base::str(" at ", line.substr(tab + 1));
  return text;
}

// The first of the lines in which a member differs from the first member, in the words of both.
std::string describe_difference(const Group& group, const std::vector<std::string>& texts) {
  std::vector<std::string_view> rest(texts.begin(), texts.end());
  for (std::size_t number = group.next + 1;; ++number) {
    std::vector<std::string_view> lines;
    for (std::string_view& text : rest) lines.push_back(take_line(text));
    for (std::size_t i = 1; i < lines.size(); ++i) {
      if (compared(lines[0]) == compared(lines[i])) continue;
      return base::str("number ", number, " of this program is ", spoken(lines[0]), " on rank ",
                       group.members[0], ", and ", spoken(lines[i]), " on rank ", group.members[i]);
    }
    base::internal_check(!rest[0].empty(), "collectives with one key differ");
  }
}

// How many collectives members tell each other of at a time.
constexpr std::int64_t kMostTold = 63;

// Compares what the members are about to do, as far as all of them know it: one may have read where
// others go on. Throws, on every member alike, where that differs.
void agree(Group& group) {
  const auto known = static_cast<std::int64_t>(group.lines.size() - group.next);
  const std::int64_t told = std::min(known, kMostTold);
  const at::Tensor mine = at::zeros({1 + kMostTold}, at::kLong);
  auto* const words = mine.mutable_data_ptr<std::int64_t>();
  words[0] = told;
  for (std::int64_t i = 0; i < told; ++i) {
    words[1 + i] = key_of(group.lines[group.next + static_cast<std::size_t>(i)]);
  }
  const at::Tensor all = gather_rows(group, mine);
  group.agreed = all.select(1, 0).min().item<std::int64_t>();
  const at::Tensor keys = mine.narrow(0, 1, group.agreed);
  if (all.narrow(1, 1, group.agreed).eq(keys).all().item<bool>()) return;
  std::string text;
  for (std::size_t i = group.next; i < group.lines.size(); ++i) text += group.lines[i] + "\n";
  base::fail(base::ErrorKind::kRuntime, "replicas are about to exchange different things: ",
             describe_difference(group, gather_texts(group, text)));
}

// Before the first call of a collective.
void enter(Group& group, const runtime::HostCall& call) {
  if (call.has_attribute(ops::kAtenCallAgreement)) {
    group.lines = lines_of(call.text(ops::kAtenCallAgreement));
    group.next = 0;
  }
  // Collectives of nothing are not called.
  const auto number = static_cast<std::size_t>(call.integer(ops::kAtenCallNumber));
  group.agreed -= std::min(group.agreed, static_cast<std::int64_t>(number - group.next));
  group.next = number;
  if (group.agreed == 0) agree(group);
  ++group.next;
  --group.agreed;
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
std::string describe_missing(const Group& group) {
  using std::chrono::steady_clock;
  const auto key_of_rank = [](std::size_t rank) { return base::str("failed/", rank); };
  std::string missing;
  try {
    const auto store = group.process_group->getStore();
    store->set(key_of_rank(static_cast<std::size_t>(group.process_group->getRank())), "here");
    const auto deadline = steady_clock::now() + std::chrono::seconds(2);
    for (std::size_t i = 0; i < group.members.size(); ++i) {
      while (!store->check({key_of_rank(i)}) && steady_clock::now() < deadline) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
      if (!store->check({key_of_rank(i)})) {
        missing += base::str(missing.empty() ? "" : ", ", group.members[i]);
      }
    }
  } catch (const std::exception&) {  // the store has gone too
    return {};
  }
  if (missing.empty()) return {};
  return base::str("; rank ", missing, " did not come: it has ended, or is elsewhere");
}

// `all_reduce_` of `all_reduce`: it can be told where the result is to be.
std::optional<c10::OperatorHandle> in_place_variant(const c10::OperatorHandle& op) {
  return c10::Dispatcher::singleton().findSchema({op.operator_name().name + "_", ""});
}

at::Tensor token_of(const runtime::HostCall& call) {
  return tensor_over(call.input(call.num_inputs() - 1));
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
  tensor_over(call.output(stack.size())).copy_(token_of(call) + 1);
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
  try {
    if (call.has_attribute(ops::kAtenCallNumber)) enter(*group, call);
    register_again(group->process_group_name, group->process_group);
    stack.back() = group->process_group_name;
    const auto in_place = in_place_variant(op);
    if (in_place.has_value()) {
      at::Tensor output = tensor_over(call.output(0));
      stack.front() = output.copy_(stack.front().toTensor());
    }
    in_place.value_or(op).callBoxed(&stack);
    write_results(call, stack);
  } catch (const base::Error&) {
    throw;
  } catch (const std::exception& error) {
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    base::fail(base::ErrorKind::kRuntime, op.operator_name().name, " of ranks ",
               base::to_string(group->members), ": ",
               torch_error != nullptr ? torch_error->what_without_backtrace() : error.what(),
               describe_missing(*group));
  }
}

}  // namespace torch_xla::aten

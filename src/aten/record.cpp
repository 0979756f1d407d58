// The recording kernel.
#include "aten/record.h"

#include <c10/util/SmallVector.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "aten/call.h"
#include "aten/eager.h"
#include "aten/errors.h"
#include "aten/infer.h"
#include "aten/overlap.h"
#include "aten/warning.h"
#include "base/settings.h"
#include "graph/location.h"

namespace torch_xla::aten {
namespace {

TensorImpls written_tensors(const std::vector<std::size_t>& indices,
                            at::ArrayRef<c10::IValue> arguments) {
  TensorImpls out;
  for (const std::size_t i : indices) append_xla(arguments[i], out);
  return out;
}

const graph::Entry* make_entry(const Operator& op, const Call& call,
                               const torch::jit::Stack& stack) {
  graph::Entry entry = call.make_entry();
  try {
    if (op.lowering->repeats == ops::Repeats::kRefused) {
      for (TensorImpl* impl :
           written_tensors(op.written, torch::jit::last(stack, op.arguments.size()))) {
        check_no_overlap(*impl->xla_type());
      }
    }
    entry.outputs = infer_outputs(op, entry, stack);
  } catch (const base::Error& error) {
    throw_as_torch(error, op.schema.name);
  }
  entry.key = graph::compute_key(entry);
  return memo().insert(call.words(), std::move(entry));
}

struct Recorded {
  c10::SmallVector<graph::AliasRef, 4> results;  // empty for undefined results and written ones
  std::uint64_t num_pending = 0;                 // now and then: recorded since the last barrier
};

// Appends the node and, in the same hold of the lock, makes what the call makes: aliases for fresh
// results, new values for what it writes.
Recorded record(const Call& call, const graph::Entry* entry, const TensorImpls& written,
                std::size_t num_fresh) {
  Recorded recorded;
  std::vector<graph::NodeRef> garbage;
  const std::lock_guard lock(call.device().live().mutex);
  c10::SmallVector<graph::Value, 8> operands;
  for (TensorImpl* impl : call.operands()) operands.push_back(impl->read(garbage));
  const graph::NodeRef node = graph::Node::make(
      entry, std::span<const graph::Value>(operands.data(), operands.size()), call.slots());
  for (std::uint32_t i = 0; i < num_fresh; ++i) {
    recorded.results.push_back(entry->outputs[i] == nullptr
                                   ? graph::AliasRef()
                                   : call.device().live().add_locked(entry->outputs[i], {node, i}));
  }
  for (std::uint32_t i = 0; i < written.size(); ++i) {
    written[i]->write({node, static_cast<std::uint32_t>(num_fresh) + i}, garbage);
  }
  if (call.device().live().count_recorded()) [[unlikely]]
    recorded.num_pending = call.device().live().num_recorded();
  // `garbage` is freed after the lock: it was made before it.
  return recorded;
}

// A loop without a barrier records one endless graph.
void warn_if_large(std::uint64_t num_pending) {
  static std::atomic<bool> is_told{false};
  const std::int64_t limit = base::settings().graph_size_warning();
  if (limit <= 0 || num_pending < static_cast<std::uint64_t>(limit) || is_told.exchange(true)) {
    return;
  }
  warn(c10::str(num_pending,
                " operations were recorded on this device without a barrier. Put torch_xla.sync() "
                "at the end of each step: a graph this large takes long to compile. "
                "(XLA_GRAPH_SIZE_WARNING is the limit of this warning.)"));
}

at::Tensor to_tensor(const Call& call, graph::AliasRef alias) {
  return alias ? make_tensor(call.device(), std::move(alias)) : at::Tensor();
}

const c10::IValue& written_argument(const Operator& op, const ReturnSchema& ret,
                                    const torch::jit::Stack& stack) {
  const auto arguments = torch::jit::last(stack, op.arguments.size());
  for (const std::size_t i : op.written) {
    if (op.schema.args[i].alias_set == ret.alias_set) return arguments[i];
  }
  TORCH_INTERNAL_ASSERT(false, op.schema.name, " returns an argument that it does not write");
}

// The call's results: fresh tensors, and the arguments it wrote as the alias annotations say.
void push_results(const Operator& op, const Call& call, Recorded recorded,
                  torch::jit::Stack* stack) {
  torch::jit::Stack results;
  std::size_t next = 0;
  for (const ReturnSchema& ret : op.schema.returns) {
    if (ret.is_written) {
      results.push_back(written_argument(op, ret, *stack));
    } else if (!ret.is_list) {
      results.emplace_back(to_tensor(call, std::move(recorded.results[next++])));
    } else {
      // Several lists are of equal length: `_fused_adam` gives lists as long as its parameters.
      const std::size_t length = recorded.results.size() / op.num_fresh_returns;
      c10::List<at::Tensor> list;
      list.reserve(length);
      for (std::size_t k = 0; k < length; ++k) {
        list.push_back(to_tensor(call, std::move(recorded.results[next++])));
      }
      results.emplace_back(std::move(list));
    }
  }
  torch::jit::drop(*stack, op.arguments.size());
  for (c10::IValue& result : results) stack->push_back(std::move(result));
}

// Of an in-place call, which has one operand for each of its tensors.
void check_reads(const Operator& op, const Call& call, const TensorImpl& written) {
  std::size_t position = 0;
  for (const TensorImpl* read : call.operands()) {
    check_read(op.rules.reads, written, *read, position++);
  }
}

}  // namespace

graph::Memo& memo() {
  static auto* const instance = new graph::Memo();
  return *instance;
}

namespace {

// Whether two of them are of one memory.
bool share_memory(const TensorImpls& tensors) {
  std::vector<const void*> memory;
  memory.reserve(tensors.size());
  for (const TensorImpl* const impl : tensors) memory.push_back(&*impl->alias());
  std::ranges::sort(memory);
  return std::ranges::adjacent_find(memory) != memory.end();
}

// The call for the elements at `index` of its lists, which have `count`.
torch::jit::Stack call_of_one(at::ArrayRef<c10::IValue> arguments, std::size_t index,
                              std::size_t count) {
  torch::jit::Stack one(arguments.begin(), arguments.end());
  for (c10::IValue& argument : one) {
    if (!argument.isList() || argument.toListRef().size() != count) continue;
    c10::impl::GenericList element(argument.toList().elementType());
    element.push_back(argument.toList().get(index));
    argument = std::move(element);
  }
  return one;
}

}  // namespace

// Of a list with some memory more than once, as PyTorch's loops over lists do: each reads what
// those before it wrote. Says whether it was such a call.
bool RecordingKernel::write_one_after_the_other(const c10::OperatorHandle& handle,
                                                c10::DispatchKeySet keys,
                                                const TensorImpls& written,
                                                torch::jit::Stack& stack) {
  const Operator& op = *op_;
  if (written.size() < 2 || !op.schema.args[op.written.front()].is_list) return false;
  const auto arguments = torch::jit::last(stack, op.arguments.size());
  const std::size_t count = arguments[op.written.front()].toListRef().size();
  if (count < 2 || !handle.schema().returns().empty() || !share_memory(written)) return false;
  for (std::size_t i = 0; i < count; ++i) {
    torch::jit::Stack one = call_of_one(arguments, i, count);
    (*this)(handle, keys, &one);
  }
  torch::jit::drop(stack, op.arguments.size());
  return true;
}

void RecordingKernel::operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                                 torch::jit::Stack* stack) {
  const Operator& op = *op_;
  TensorImpls written = written_tensors(op.written, torch::jit::last(*stack, op.arguments.size()));
  if (write_one_after_the_other(handle, keys, written, *stack)) [[unlikely]]
    return;
  graph::note_location();
  if (op.check != nullptr) op.check(torch::jit::last(*stack, op.arguments.size()));
  const Call call(op, *stack);
  const graph::Entry* entry = memo().find(call.words());
  if (entry == nullptr) [[unlikely]]
    entry = make_entry(op, call, *stack);
  op.counter->add();
  const auto arguments = torch::jit::last(*stack, op.arguments.size());
  std::size_t num_fresh = entry->outputs.size();
  if (!op.written.empty()) {
    num_fresh -= written.size();
    // Torch counts the writes of other operators, and leaves lists to their kernels.
    if (op.schema.args[op.written.front()].is_list) {
      for (TensorImpl* impl : written) impl->bump_version();
    }
    if (written.size() == 1) {
      check_reads(op, call, *written[0]);
      if (op.lowering->repeats == ops::Repeats::kDeprecated) [[unlikely]] {
        warn_if_repeated(*written[0], op.schema.name.substr(0, op.schema.name.find('.')),
                         "tensor[mask] = scalar");
      }
    }
  } else if (!op.effects.empty() && num_fresh > op.num_fresh_returns) {
    // Only a lowering that gives results beyond the schema's has effects in this call.
    written = written_tensors(op.effects, arguments);
    num_fresh = op.num_fresh_returns;
  }
  Recorded recorded = record(call, entry, written, num_fresh);
  if (recorded.num_pending != 0) [[unlikely]]
    warn_if_large(recorded.num_pending);
  push_results(op, call, std::move(recorded), stack);
  note_recorded(call.device(), *entry);
}

Recorder::Recorder(const char* name, const char* overload)
    : handle_(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload)) {
  std::string why;
  std::unique_ptr<Operator> op = plan_operator(handle_, &why);
  TORCH_INTERNAL_ASSERT(op != nullptr, name, " has no lowering: ", why);
  kernel_ = std::make_unique<RecordingKernel>(std::move(op));
}

at::Tensor Recorder::operator()(torch::jit::Stack stack) {
  (*kernel_)(handle_, {}, &stack);
  return stack.front().toTensor();
}

}  // namespace torch_xla::aten

// The recording kernel.
#include "aten/record.h"

#include <ATen/ops/empty.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>

#include "aten/call.h"
#include "aten/eager.h"
#include "aten/errors.h"
#include "aten/infer.h"
#include "aten/meta_kernel.h"
#include "aten/out_arguments.h"
#include "base/settings.h"
#include "graph/location.h"

namespace torch_xla::aten {
namespace {

using Impls = c10::SmallVector<TensorImpl*, 8>;

void append_xla(const c10::IValue& value, Impls& out) {
  if (value.isTensor()) {
    if (TensorImpl* impl = as_xla(value.toTensor())) out.push_back(impl);
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList()) {
      if (TensorImpl* impl = as_xla(tensor)) out.push_back(impl);
    }
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
      if (tensor.has_value()) append_xla(*tensor, out);
    }
  }
}

Impls written_tensors(const std::vector<std::size_t>& indices,
                      at::ArrayRef<c10::IValue> arguments) {
  Impls out;
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

enum class Overlap { kNone, kPart, kWhole };

// PyTorch looks no further than tensors without gaps.
Overlap overlap_of(const TensorImpl& a, const TensorImpl& b) {
  if (&a == &b) return Overlap::kWhole;
  if (a.alias() != b.alias() || a.numel() == 0 || b.numel() == 0) return Overlap::kNone;
  if (!a.is_non_overlapping_and_dense() || !b.is_non_overlapping_and_dense()) return Overlap::kNone;
  const auto range = [](const TensorImpl& tensor) {
    const auto width = static_cast<std::int64_t>(tensor.itemsize());
    const std::int64_t first = tensor.storage_offset() * width;
    return std::pair(first, first + tensor.numel() * width);
  };
  const auto [begin, end] = range(a);
  const auto [other_begin, other_end] = range(b);
  if (end <= other_begin || other_end <= begin) return Overlap::kNone;
  const bool is_whole = begin == other_begin && end == other_end && a.strides() == b.strides();
  return is_whole ? Overlap::kWhole : Overlap::kPart;
}

[[noreturn]] void throw_shared_memory() {
  TORCH_CHECK(false,
              "unsupported operation: some elements of the input tensor and the written-to tensor "
              "refer to a single memory location. Please clone() the tensor before performing the "
              "operation.");
}

struct Recorded {
  c10::SmallVector<graph::AliasRef, 4> results;  // empty for undefined results and written ones
  std::uint64_t num_pending = 0;                 // now and then: recorded since the last barrier
};

// Appends the node and, in the same hold of the lock, makes what the call makes: aliases for fresh
// results, new values for what it writes.
Recorded record(const Call& call, const graph::Entry* entry, const Impls& written,
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
  TORCH_WARN(num_pending,
             " operations were recorded on this device without a barrier. Put torch_xla.sync() "
             "at the end of each step: a graph this large takes long to compile. "
             "(XLA_GRAPH_SIZE_WARNING is the limit of this warning.)");
}

at::Tensor to_tensor(const Call& call, graph::AliasRef alias) {
  return alias ? make_tensor(call.device(), std::move(alias)) : at::Tensor();
}

const c10::IValue& written_argument(const Operator& op, const graph::ReturnSchema& ret,
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
  for (const graph::ReturnSchema& ret : op.schema.returns) {
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

// Throws where PyTorch refuses a call that writes the one tensor and reads the other, the
// `position`-th of its tensors.
void check_read(std::string_view apart, const TensorImpl& written, const TensorImpl& read,
                std::size_t position) {
  const auto rule = apart.empty() ? Apart::kPartly
                                  : static_cast<Apart>(apart[std::min(position, apart.size() - 1)]);
  switch (rule) {
    case Apart::kPartly: return check_no_partial_overlap(written, read);
    case Apart::kAllBut0Dim:
      if (read.dim() == 0) return check_no_partial_overlap(written, read);
      [[fallthrough]];
    case Apart::kAll: return check_apart(written, read);
    case Apart::kFree: return;
  }
}

// Of an in-place call, which has one operand for each of its tensors.
void check_reads(const Operator& op, const Call& call, const TensorImpl& written) {
  std::size_t position = 0;
  for (const TensorImpl* read : call.operands()) {
    check_read(op.apart, written, *read, position++);
  }
}

}  // namespace

graph::Memo& memo() {
  static auto* const instance = new graph::Memo();
  return *instance;
}

bool has_repeats(const graph::TensorType& type) {
  if (type.shape.num_elements() == 0) return false;
  for (std::size_t i = 0; i < type.strides.size(); ++i) {
    if (type.strides[i] == 0 && type.shape.dims[i] > 1) return true;
  }
  return false;
}

void check_no_overlap(const graph::TensorType& type) {
  TORCH_CHECK(!has_repeats(type),
              "unsupported operation: more than one element of the written-to tensor refers to a "
              "single memory location. Please clone() the tensor before performing the "
              "operation.");
}

void warn_if_repeated(const TensorImpl& written, std::string_view name, std::string_view form) {
  if (!has_repeats(*written.xla_type())) return;
  TORCH_WARN("Use of ", name,
             " on expanded tensors is deprecated. Please clone() the tensor before performing this "
             "operation. This also applies to advanced indexing e.g. ",
             form);
}

void check_apart(const TensorImpl& written, const TensorImpl& read) {
  if (overlap_of(written, read) != Overlap::kNone) throw_shared_memory();
}

void check_no_partial_overlap(const TensorImpl& written, const TensorImpl& read) {
  if (overlap_of(written, read) == Overlap::kPart) throw_shared_memory();
}

void RecordingKernel::operator()(const c10::OperatorHandle&, c10::DispatchKeySet,
                                 torch::jit::Stack* stack) {
  const Operator& op = *op_;
  graph::note_location();
  if (op.check != nullptr) op.check(torch::jit::last(*stack, op.arguments.size()));
  const Call call(op, *stack);
  const graph::Entry* entry = memo().find(call.words());
  if (entry == nullptr) [[unlikely]]
    entry = make_entry(op, call, *stack);
  op.counter->add();
  const auto arguments = torch::jit::last(*stack, op.arguments.size());
  std::size_t num_fresh = entry->outputs.size();
  Impls written;
  if (!op.written.empty()) {
    written = written_tensors(op.written, arguments);
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

std::optional<std::size_t> OutKernel::missing_dtype(
    const std::vector<c10::IValue>& arguments) const {
  static const std::set<std::string> kNames = {"aten::sum",    "aten::mean",    "aten::prod",
                                               "aten::cumsum", "aten::cumprod", "aten::nansum"};
  const c10::FunctionSchema& schema = functional_.schema();
  if (!kNames.contains(schema.name())) return std::nullopt;
  const std::optional<int> dtype = schema.argumentIndexWithName("dtype");
  if (!dtype.has_value()) return std::nullopt;
  const auto index = static_cast<std::size_t>(*dtype);
  return arguments[index].isNone() ? std::optional(index) : std::nullopt;
}

void OutKernel::check_memory(const c10::OperatorHandle& handle,
                             const std::vector<c10::IValue>& arguments) const {
  // What PyTorch generates from the functional overload copies its result.
  if (handle.hasTag(at::Tag::generated)) return;
  const std::string name = c10::toString(handle.operator_name()).substr(6);
  const std::string_view apart = apart_of(name);
  if (apart.empty() && !is_pointwise(functional_)) return;
  Impls reads;
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    if (std::find(out_arguments_.begin(), out_arguments_.end(), k) == out_arguments_.end()) {
      append_xla(arguments[k], reads);
    }
  }
  for (const std::size_t i : out_arguments_) {
    const TensorImpl& written = *as_xla(arguments[i].toTensor());
    check_no_overlap(*written.xla_type());
    for (std::size_t k = 0; k < reads.size(); ++k) check_read(apart, written, *reads[k], k);
  }
}

void OutKernel::check(const c10::OperatorHandle& handle, const std::vector<c10::IValue>& arguments,
                      const torch::jit::Stack& results) {
  std::call_once(looked_, [&] { compiled_meta_ = compiled_meta_kernel(handle); });
  if (compiled_meta_.has_value()) {
    const torch::jit::Stack stack(arguments.begin(), arguments.end());
    call_on_meta(handle, &*compiled_meta_, arguments.size(), stack);
  }
  for (std::size_t k = 0; k < out_arguments_.size(); ++k) {
    const at::Tensor out = arguments[out_arguments_[k]].toTensor();
    check_out_dtype(handle, k, results[k].toTensor(), out);
    if (compiled_meta_.has_value()) continue;
    check_no_overlap(*as_xla(out)->xla_type());
    check_out(handle, results[k].toTensor(), out);
  }
}

void OutKernel::operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet,
                           torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = handle.schema();
  const std::size_t num_arguments = schema.arguments().size();
  const auto arguments = torch::jit::last(*stack, num_arguments).vec();
  for (const std::size_t i : out_arguments_) {
    expect_xla(arguments[i].toTensor(), schema.name().substr(6), schema.arguments()[i].name());
  }
  torch::jit::drop(*stack, num_arguments);
  torch::jit::Stack results;
  const std::optional<std::size_t> dtype = missing_dtype(arguments);
  for (std::size_t i = 0; i < num_arguments - out_arguments_.size(); ++i) {
    if (dtype == i) {
      results.emplace_back(arguments[out_arguments_.front()].toTensor().scalar_type());
    } else {
      results.push_back(arguments[i]);
    }
  }
  functional_.callBoxed(&results);
  check(handle, arguments, results);
  for (std::size_t k = 0; k < out_arguments_.size(); ++k) {
    const at::Tensor& out = arguments[out_arguments_[k]].toTensor();
    const at::IntArrayRef sizes = results[k].toTensor().sizes();
    if (out.sizes() != sizes) out.resize_(sizes);
  }
  check_memory(handle, arguments);
  for (std::size_t k = 0; k < out_arguments_.size(); ++k) {
    const at::Tensor& out = arguments[out_arguments_[k]].toTensor();
    out.copy_(results[k].toTensor());
    stack->push_back(out);
  }
}

}  // namespace torch_xla::aten

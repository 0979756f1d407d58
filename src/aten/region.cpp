// Captures and the recording of what was captured.
#include "aten/region.h"

#include <map>
#include <mutex>
#include <span>

#include "aten/blocking.h"
#include "aten/errors.h"
#include "aten/generator.h"
#include "aten/tensor.h"
#include "graph/location.h"

namespace torch_xla::aten {
namespace {

std::unique_lock<std::mutex> lock_of(runtime::Device& device) {
  return std::unique_lock(device.live().mutex);
}

const graph::TensorType* result_type(const TensorImpl& impl) {
  // A fresh tensor can have any order of its dimensions, but no overlap and no gaps.
  if (impl.is_non_overlapping_and_dense()) return impl.xla_type();
  return graph::intern_contiguous(impl.xla_type()->shape);
}

const graph::Entry* call_entry(const CapturedGraph& graph,
                               const std::vector<const graph::TensorType*>& types) {
  CapturedGraph::LastCall& last = *graph.last_call;
  if (last.entry == nullptr || last.types != types) {
    const std::vector<const graph::TensorType*>& wanted = graph.region->operands;
    TORCH_CHECK(types.size() == wanted.size(), "captured function: expected ", wanted.size(),
                " tensors, got ", types.size());
    for (std::size_t i = 0; i < types.size(); ++i) {
      TORCH_CHECK(types[i]->shape == wanted[i]->shape, "captured function: expected tensor ", i,
                  " to be ", base::to_string(wanted[i]->shape), ", got ",
                  base::to_string(types[i]->shape));
    }
    last.entry = graph::region_entry(graph::RegionKind::kCall, {graph.region}, {}, types);
    last.types = types;
    last.launch.reset();
    last.launched = {};
  }
  return last.entry;
}

}  // namespace

Capture::Capture(runtime::Device& device)
    : device_(&device), scope_(std::make_unique<runtime::CaptureScope>(device)) {
  const auto lock = lock_of(device);
  device.live().for_each([&](const graph::Alias& alias) {
    const graph::Value& value = alias.value();
    if (!value || value.node->data(value.output) != nullptr) return;
    outside_.push_back(
        {value, std::make_shared<runtime::Placeholder>(value.node->shape(value.output))});
  });
}

at::Tensor Capture::placeholder(const at::Tensor& like, bool is_outside) {
  const TensorImpl& impl = expect_xla(like, "capture", "arguments");
  TORCH_CHECK(&impl.xla_device() == device_,
              "capture: expected a tensor on xla:", device_->ordinal(), ", got one on ",
              like.device());
  const graph::TensorType* type = result_type(impl);
  placeholders_.push_back(std::make_shared<runtime::Placeholder>(type->shape));
  types_.push_back(type);
  if (!is_outside) {
    base::internal_check(++num_arguments_ == types_.size(), "arguments are made first");
  }
  return make_tensor_from_data(*device_, placeholders_.back(), type);
}

graph::Trace Capture::walk(at::TensorList results, std::vector<graph::NodeRef>& garbage) {
  std::vector<graph::Value> roots;
  const auto lock = lock_of(*device_);
  for (const at::Tensor& result : results) {
    roots.push_back(expect_xla(result, "capture", "results").read(garbage));
  }
  // A value that got data meanwhile, by a read, is a leaf already.
  std::vector<Outside*> marked;
  for (Outside& outside : outside_) {
    if (outside.value.node->data(outside.value.output) != nullptr) continue;
    outside.value.node->set_data(outside.value.output, outside.data);
    marked.push_back(&outside);
  }
  graph::Trace trace = graph::walk(roots);
  for (Outside* outside : marked) outside->value.node->set_data(outside->value.output, nullptr);
  // The region is its trace; the arrays behind the nodes must not live as long as it. But an older
  // view may have been read anew in the function, and remember it.
  std::vector<bool> is_kept(trace.steps.size());
  for (std::size_t i = trace.steps.size(); i-- > 0;) {
    const graph::Trace::Step& step = trace.steps[i];
    const bool is_remembered = step.node->use_count() > step.uses + 1;
    if (step.node->entry()->op->is_view && (is_kept[i] || is_remembered)) {
      for (std::size_t k = 0; k < step.node->operands().size(); ++k) {
        const graph::Source& source = trace.sources[step.first_source + k];
        if (!source.is_leaf) is_kept[source.index] = true;
      }
    } else {
      step.node->drop_operands(garbage);
    }
  }
  return trace;
}

graph::Value Capture::value_of(const graph::DataPtr& leaf) const {
  for (const Outside& outside : outside_) {
    if (outside.data == leaf) return outside.value;
  }
  return {graph::Node::make_leaf(leaf), 0};
}

CapturedGraph Capture::finish(at::TensorList results) {
  TORCH_CHECK(scope_ != nullptr, "capture: it has ended already");
  std::vector<graph::NodeRef> garbage;
  CapturedGraph graph;
  auto region = std::make_shared<graph::Region>();
  region->trace = walk(results, garbage);
  region->num_arguments = num_arguments_;
  region->operands = types_;
  std::map<const graph::Data*, std::uint32_t> positions;
  for (std::uint32_t i = 0; i < placeholders_.size(); ++i) positions[placeholders_[i].get()] = i;
  for (const graph::DataPtr& leaf : region->trace.leaves) {
    const auto next = static_cast<std::uint32_t>(region->operands.size());
    const auto [it, is_new] = positions.try_emplace(leaf.get(), next);
    region->operand_of_leaf.push_back(it->second);
    if (!is_new) continue;
    const graph::TensorType* type = graph::intern_contiguous(leaf->shape());
    region->operands.push_back(type);
    graph.constants.push_back(
        make_tensor(*device_, graph::Alias::make(device_->live(), type, value_of(leaf))));
  }
  region->trace.leaves.clear();
  for (const at::Tensor& result : results) region->results.push_back(result_type(*as_xla(result)));
  graph::finish(*region);
  graph.region = std::move(region);
  scope_.reset();
  return graph;
}

std::pair<std::vector<at::Tensor>, RandomKeys> record_region(
    graph::RegionKind kind, const std::vector<CapturedGraph>& graphs, at::TensorList operands,
    const graph::RegionParameters& parameters, const std::optional<RandomKeys>& keys) {
  std::vector<at::Tensor> read = operands.vec();
  std::vector<graph::RegionPtr> regions;
  for (const CapturedGraph& graph : graphs) {
    regions.push_back(graph.region);
    read.insert(read.end(), graph.constants.begin(), graph.constants.end());
  }
  TORCH_CHECK(!read.empty(), "a region must read at least one tensor");
  runtime::Device& device = common_device(read, "region");
  std::vector<TensorImpl*> impls;
  std::vector<const graph::TensorType*> types;
  for (const at::Tensor& tensor : read) {
    impls.push_back(as_xla(tensor));
    types.push_back(impls.back()->xla_type());
  }
  const graph::Entry* entry = translating([&] {
    return kind == graph::RegionKind::kCall
               ? call_entry(graphs.front(), types)
               : graph::region_entry(kind, std::move(regions), parameters, types);
  });
  RandomKeys slots = keys.value_or(RandomKeys());
  if (keys.has_value()) {
    TORCH_CHECK(slots.size() <= entry->slots.size(), "expected at most ", entry->slots.size(),
                " random keys, got ", slots.size());
  }
  while (slots.size() < entry->slots.size()) slots.push_back(next_random_key(device, std::nullopt));
  graph::note_location();
  std::vector<graph::AliasRef> aliases;
  {
    std::vector<graph::NodeRef> garbage;
    std::vector<graph::Value> values;
    const auto lock = lock_of(device);
    values.reserve(impls.size());
    for (TensorImpl* impl : impls) values.push_back(impl->read(garbage));
    const graph::NodeRef node = graph::Node::make(entry, values, slots);
    for (std::uint32_t i = 0; i < entry->outputs.size(); ++i) {
      aliases.push_back(device.live().add_locked(entry->outputs[i], {node, i}));
    }
  }
  std::vector<at::Tensor> results;
  results.reserve(aliases.size());
  for (graph::AliasRef& alias : aliases) results.push_back(make_tensor(device, std::move(alias)));
  return {std::move(results), std::move(slots)};
}

at::Tensor latest_pending(runtime::Device& device) {
  graph::Value latest;
  {
    const auto lock = lock_of(device);
    device.live().for_each([&](const graph::Alias& alias) {
      const graph::Value& value = alias.value();
      if (value && value.node->data(value.output) == nullptr) latest = value;
    });
  }
  if (!latest) return {};
  const graph::TensorType* type = latest.node->entry()->outputs[latest.output];
  return make_tensor(device, graph::Alias::make(device.live(), type, latest));
}

namespace {

// Named here: looking for the user's line would take longer than the rest.
constexpr const char* kWhere = "torch.compile";

// A call's tensors, of the types and the device of the last one; or none.
struct Arguments {
  std::vector<TensorImpl*> impls;
  // By place: it is the last call's tensor, not written since, so that nothing of it was looked at.
  std::vector<std::uint8_t> is_last;
  std::size_t num_last = 0;
};

Arguments as_last_call(const CapturedGraph& graph, std::span<const at::Tensor* const> operands) {
  const CapturedGraph::LastCall& last = *graph.last_call;
  const std::size_t count = last.types.size();
  if (operands.size() + graph.constants.size() != count) return {};
  Arguments out;
  out.impls.resize(count);
  out.is_last.resize(count);
  const std::span<const LaunchedTensors::Weak> known = last.launched.unwritten();
  const auto add = [&](std::size_t i, const at::Tensor& tensor) {
    c10::TensorImpl* const any = tensor.unsafeGetTensorImpl();
    if (!known.empty() && any == known[i]._unsafe_get_target() && tensor.defined()) {
      out.impls[i] = static_cast<TensorImpl*>(any);
      out.is_last[i] = 1;
      ++out.num_last;
      return true;
    }
    TensorImpl* const impl = as_xla(tensor);
    if (impl == nullptr || impl->xla_type() != last.types[i]) return false;
    out.impls[i] = impl;
    return &impl->xla_device() == &out.impls[0]->xla_device();
  };
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!add(i, *operands[i])) return {};
  }
  for (std::size_t i = operands.size(); i < count; ++i) {
    if (!add(i, graph.constants[i - operands.size()])) return {};
  }
  return out;
}

// Reads the arrays of such a call, and remembers it for the next one.
class ArgumentReader {
 public:
  ArgumentReader(const LaunchedTensors& last, Arguments arguments)
      : arguments_(std::move(arguments)), num_writes_(last.num_writes), kept_(last.kept) {}

  // Under the recording lock; false if one is still to be computed.
  bool read(const runtime::ArgumentListPtr& kept, std::vector<const graph::DataPtr*>& leaves) {
    const std::uint64_t num_writes = device().live().num_writes();
    // By another thread, in the meantime.
    if (arguments_.num_last != 0 && num_writes != num_writes_) return false;
    const bool is_same_list =
        kept != nullptr && !kept_.owner_before(kept) && !kept.owner_before(kept_);
    num_writes_ = num_writes;
    kept_ = kept;
    is_as_before_ = is_same_list;
    const std::size_t count = arguments_.impls.size();
    leaves.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      if (is_same_list && arguments_.is_last[i] != 0) {
        leaves[i] = &(*kept)[i];
        continue;
      }
      if (is_same_list && (*kept)[i] != nullptr) is_as_before_ = false;
      const graph::Value& value = arguments_.impls[i]->read(garbage_);
      const graph::DataPtr& data = value.node->data(value.output);
      if (data == nullptr) return false;
      leaves[i] = &data;
    }
    return true;
  }

  runtime::Device& device() const { return arguments_.impls.front()->xla_device(); }

  void remember(LaunchedTensors& last) const {
    const runtime::ArgumentListPtr kept = kept_.lock();
    if (kept == nullptr || is_as_before_) return;
    const std::vector<TensorImpl*>& impls = arguments_.impls;
    const LaunchedTensors::Weak none{LaunchedTensors::Strong()};
    last.tensors.resize(impls.size(), none);
    for (std::size_t i = 0; i < impls.size(); ++i) {
      LaunchedTensors::Weak& known = last.tensors[i];
      if ((*kept)[i] == nullptr) {
        known = none;
      } else if (known._unsafe_get_target() != impls[i]) {
        known =
            LaunchedTensors::Weak(LaunchedTensors::Strong::unsafe_reclaim_from_nonowning(impls[i]));
      }
    }
    last.device = &device();
    last.num_writes = num_writes_;
    last.kept = kept;
  }

 private:
  Arguments arguments_;
  std::uint64_t num_writes_;
  std::weak_ptr<const runtime::ArgumentList> kept_;
  bool is_as_before_ = false;  // of all that the graph keeps, nothing was looked at
  std::vector<graph::NodeRef> garbage_;
};

std::optional<std::vector<at::Tensor>> run_as_last(const CapturedGraph& graph,
                                                   std::span<const at::Tensor* const> operands) {
  CapturedGraph::LastCall& last = *graph.last_call;
  // Arrays made this way know no line.
  if (last.launch == nullptr || graph::locations_are_wanted.load(std::memory_order_relaxed)) {
    return std::nullopt;
  }
  Arguments arguments = as_last_call(graph, operands);
  if (arguments.impls.empty()) return std::nullopt;
  ArgumentReader reader(last.launched, std::move(arguments));
  runtime::Device& device = reader.device();
  // Other threads may replace them while the interpreter's lock is released.
  const graph::Entry& entry = *last.entry;
  const std::shared_ptr<const runtime::GraphCall> call = last.launch;
  const auto read = [&](const auto& kept, auto& leaves) { return reader.read(kept, leaves); };
  std::optional<std::vector<runtime::ArrayPtr>> arrays;
  blocking(
      [&] { translating([&] { arrays = runtime::compute_again(device, *call, read, kWhere); }); });
  if (!arrays.has_value()) return std::nullopt;
  if (last.launch == call) reader.remember(last.launched);
  std::vector<at::Tensor> results;
  results.reserve(arrays->size());
  for (std::size_t i = 0; i < arrays->size(); ++i) {
    results.push_back(make_tensor_from_data(device, std::move((*arrays)[i]), entry.outputs[i]));
  }
  return results;
}

// False if all arguments were there, or are none that the graph can take.
bool compute_arguments(const CapturedGraph& graph, std::span<const at::Tensor* const> operands) {
  std::vector<TensorImpl*> impls;
  const auto add = [&](const at::Tensor& tensor) {
    TensorImpl* const impl = as_xla(tensor);
    impls.push_back(impl);
    return impl != nullptr && &impl->xla_device() == &impls.front()->xla_device();
  };
  for (const at::Tensor* operand : operands) {
    if (!add(*operand)) return false;
  }
  for (const at::Tensor& constant : graph.constants) {
    if (!add(constant)) return false;
  }
  if (impls.empty()) return false;
  const auto read = [&](std::vector<graph::NodeRef>& garbage) {
    std::vector<graph::Value> values;
    for (TensorImpl* impl : impls) values.push_back(impl->read(garbage));
    return values;
  };
  bool were_missing = false;
  blocking([&] {
    translating([&] {
      were_missing = runtime::compute_arguments(impls.front()->xla_device(), read, kWhere);
    });
  });
  return were_missing;
}

}  // namespace

std::vector<at::Tensor> run_graph(const CapturedGraph& graph,
                                  std::span<const at::Tensor* const> operands) {
  if (auto results = run_as_last(graph, operands)) return std::move(*results);
  if (compute_arguments(graph, operands)) {
    if (auto results = run_as_last(graph, operands)) return std::move(*results);
  }
  std::vector<at::Tensor> tensors;
  for (const at::Tensor* operand : operands) tensors.push_back(*operand);
  std::vector<at::Tensor> results =
      record_region(graph::RegionKind::kCall, {graph}, tensors, {}, std::nullopt).first;
  if (results.empty()) return results;
  const auto read = [&](std::vector<graph::NodeRef>& garbage) {
    std::vector<graph::Value> values;
    for (const at::Tensor& result : results) values.push_back(as_xla(result)->read(garbage));
    return values;
  };
  const graph::Entry* const entry = graph.last_call->entry;
  std::optional<runtime::GraphCall> call;
  blocking([&] {
    translating(
        [&] { call = runtime::compute_graph(as_xla(results[0])->xla_device(), read, kWhere); });
  });
  // Another thread's call may have been of other types.
  if (graph.last_call->entry == entry && call.has_value()) {
    graph.last_call->launch = std::make_shared<const runtime::GraphCall>(*std::move(call));
  }
  return results;
}

}  // namespace torch_xla::aten

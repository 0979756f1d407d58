// Captures and the recording of what was captured.
#include "aten/region.h"

#include <map>
#include <mutex>
#include <span>

#include "aten/copy.h"
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
  }
  return last.entry;
}

}  // namespace

Capture::Capture(runtime::Device& device)
    : device_(&device), scope_(std::make_unique<runtime::CaptureScope>()) {
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
  std::vector<TensorImpl*> impls;
  std::vector<const graph::TensorType*> types;
  std::vector<graph::RegionPtr> regions;
  const auto add = [&](const at::Tensor& tensor) {
    impls.push_back(&expect_xla(tensor, "region", "operands"));
    types.push_back(impls.back()->xla_type());
    TORCH_CHECK(&impls.back()->xla_device() == &impls.front()->xla_device(),
                "expected all tensors on xla:", impls.front()->xla_device().ordinal(),
                ", got one on ", tensor.device());
  };
  for (const at::Tensor& operand : operands) add(operand);
  for (const CapturedGraph& graph : graphs) {
    regions.push_back(graph.region);
    for (const at::Tensor& constant : graph.constants) add(constant);
  }
  TORCH_CHECK(!impls.empty(), "a region must read at least one tensor");
  runtime::Device& device = impls.front()->xla_device();
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

// The implementations of `operands` and the graph's constants; empty when they are not those of the
// last call in their types and device.
std::vector<TensorImpl*> as_last_call(const CapturedGraph& graph,
                                      std::span<const at::Tensor* const> operands) {
  const std::vector<const graph::TensorType*>& types = graph.last_call->types;
  std::vector<TensorImpl*> impls;
  if (operands.size() + graph.constants.size() != types.size()) return impls;
  impls.reserve(types.size());
  const auto add = [&](const at::Tensor& tensor) {
    TensorImpl* const impl = as_xla(tensor);
    if (impl == nullptr || impl->xla_type() != types[impls.size()]) return false;
    impls.push_back(impl);
    return &impl->xla_device() == &impls.front()->xla_device();
  };
  for (const at::Tensor* operand : operands) {
    if (!add(*operand)) return {};
  }
  for (const at::Tensor& constant : graph.constants) {
    if (!add(constant)) return {};
  }
  return impls;
}

std::optional<std::vector<at::Tensor>> run_as_last(const CapturedGraph& graph,
                                                   std::span<const at::Tensor* const> operands) {
  const CapturedGraph::LastCall& last = *graph.last_call;
  // Arrays made this way know no line.
  if (last.launch == nullptr || graph::locations_are_wanted.load(std::memory_order_relaxed)) {
    return std::nullopt;
  }
  const std::vector<TensorImpl*> impls = as_last_call(graph, operands);
  if (impls.empty()) return std::nullopt;
  runtime::Device& device = impls.front()->xla_device();
  // Other threads may replace them while the interpreter's lock is released.
  const graph::Entry& entry = *last.entry;
  const std::shared_ptr<const runtime::GraphCall> call = last.launch;
  std::vector<graph::NodeRef> garbage;
  const auto read = [&](std::vector<const graph::DataPtr*>& leaves) {
    leaves.reserve(impls.size());
    for (TensorImpl* const impl : impls) {
      const graph::Value& value = impl->read(garbage);
      const graph::DataPtr& data = value.node->data(value.output);
      if (data == nullptr) return false;
      leaves.push_back(&data);
    }
    return true;
  };
  std::optional<std::vector<runtime::ArrayPtr>> arrays;
  blocking(
      [&] { translating([&] { arrays = runtime::compute_again(device, *call, read, kWhere); }); });
  if (!arrays.has_value()) return std::nullopt;
  std::vector<at::Tensor> results;
  results.reserve(arrays->size());
  for (std::size_t i = 0; i < arrays->size(); ++i) {
    results.push_back(make_tensor_from_data(device, std::move((*arrays)[i]), entry.outputs[i]));
  }
  return results;
}

}  // namespace

std::vector<at::Tensor> run_graph(const CapturedGraph& graph,
                                  std::span<const at::Tensor* const> operands) {
  if (auto results = run_as_last(graph, operands)) return std::move(*results);
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

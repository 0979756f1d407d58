// Restoring aliases after a failure, taking a plan back, and finding out which part of a program it
// is that can't be compiled.
#include "runtime/recovery.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include "base/stored_dtype.h"
#include "runtime/device.h"
#include "runtime/origin.h"
#include "runtime/plan.h"

namespace torch_xla::runtime {
namespace {

// As find_failed, of the leaves for which `is_failed` holds.
template <typename IsFailed>
std::vector<std::uint32_t> find_dependents(const graph::Trace& trace, const IsFailed& is_failed) {
  std::vector<bool> failed_leaves(trace.leaves.size());
  bool is_any = false;
  for (std::size_t i = 0; i < trace.leaves.size(); ++i) {
    const Array* const array = as_array(trace.leaves[i]);
    failed_leaves[i] = array != nullptr && is_failed(*array);
    is_any = is_any || failed_leaves[i];
  }
  if (!is_any) return {};
  std::vector<std::uint32_t> failed(trace.steps.size(), Replaced::kNoLeaf);
  for (std::size_t i = 0; i < trace.steps.size(); ++i) {
    const std::size_t first = trace.steps[i].first_source;
    const std::size_t end =
        i + 1 < trace.steps.size() ? trace.steps[i + 1].first_source : trace.sources.size();
    for (std::size_t k = first; k < end && failed[i] == Replaced::kNoLeaf; ++k) {
      const graph::Source& source = trace.sources[k];
      if (!source.is_leaf) {
        failed[i] = failed[source.index];
      } else if (failed_leaves[source.index]) {
        failed[i] = source.index;
      }
    }
  }
  return failed;
}

// The last array that the alias stood for and that did not fail with `error`, or null.
graph::DataPtr array_before(graph::Alias& alias, const std::exception_ptr& error) {
  graph::DataPtr before = alias.settled();
  for (Array* array = as_array(before); array != nullptr && array->error() == error;
       array = as_array(before)) {
    before = array->take_replaced(alias.number());
  }
  const graph::Value& value = alias.value();
  // Since resized, it can't be what it was.
  const bool fits =
      before != nullptr && before->shape() == base::stored_shape(value.node->shape(value.output));
  return fits ? before : nullptr;
}

}  // namespace

ArrayPtr fail_value(Device& device, const graph::Value& value, const std::exception_ptr& error) {
  if (const graph::DataPtr& data = value.node->data(value.output)) {
    return std::static_pointer_cast<Array>(data);
  }
  ArrayPtr array = Array::make_pending(device, base::stored_shape(value.node->shape(value.output)));
  array->set_location(value.node->location());
  graph::Trace trace = graph::walk(std::span(&value, 1));
  const graph::Source root = trace.roots[0];
  array->set_failed(error, {make_origin(device, std::move(trace)), root});
  value.node->set_data(value.output, array);
  return array;
}

std::vector<std::uint32_t> find_failed(const graph::Trace& trace) {
  return find_dependents(trace, [](const Array& array) { return array.is_failed(); });
}

std::uint32_t failed_leaf(const graph::Trace& trace, const graph::Source& root,
                          const std::vector<std::uint32_t>& failed_of_steps) {
  if (!root.is_leaf) return failed_of_steps[root.index];
  const Array* const array = as_array(trace.leaves[root.index]);
  return array != nullptr && array->is_failed() ? root.index : Replaced::kNoLeaf;
}

void restore_values(Device& device, const std::exception_ptr& error) {
  // Freed outside the lock.
  std::vector<graph::NodeRef> garbage;
  std::vector<graph::DataPtr> freed;
  graph::Trace trace;
  std::vector<graph::Value> values;
  std::vector<graph::Alias*> owners;
  const std::lock_guard lock(device.live().mutex);
  device.live().for_each([&](graph::Alias& alias) {
    if (!alias.value()) return;
    values.push_back(alias.value());
    owners.push_back(&alias);
  });
  trace = graph::walk(values);
  const std::vector<std::uint32_t> failed =
      find_dependents(trace, [&](const Array& array) { return array.error() == error; });
  const auto set_raised = [&](const graph::DataPtr& data) {
    Array* const array = as_array(data);
    if (array != nullptr && array->error() == error) array->set_raised();
  };
  std::ranges::for_each(trace.leaves, set_raised);
  const auto is_lost = [&](const graph::Source& root) {
    if (!root.is_leaf) return !failed.empty() && failed[root.index] != Replaced::kNoLeaf;
    const Array* const array = as_array(trace.leaves[root.index]);
    return array != nullptr && array->error() == error;
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!is_lost(trace.roots[i])) continue;
    graph::Alias& alias = *owners[i];
    graph::DataPtr data = array_before(alias, error);
    if (data == nullptr) set_raised(data = fail_value(device, values[i], error));
    alias.write({graph::Node::make_leaf(data), 0}, garbage);
    freed.push_back(alias.settle(std::move(data)));
  }
}

void undo(Device& device, Plan& plan, const std::exception_ptr& error) {
  std::vector<graph::NodeRef> garbage;  // freed outside the lock, as what the plan holds
  std::map<const graph::Data*, graph::Value> values;
  std::map<std::uint64_t, Replaced*> replaced;
  for (Replaced& before : plan.replaced) replaced.emplace(before.alias, &before);
  for (const ops::Donation& donation : plan.donations) {
    static_cast<Array&>(*plan.trace.leaves[donation.leaf]).take_back();
  }
  const std::lock_guard lock(device.live().mutex);
  for (std::size_t i = 0; i < plan.outputs.size(); ++i) {
    const graph::Source& root = plan.trace.roots[i];
    const graph::NodeRef& node = plan.trace.steps[root.index].node;
    values.emplace(plan.outputs[i].get(), graph::Value{node, root.output});
    if (node->data(root.output) == plan.outputs[i]) node->set_data(root.output, nullptr);
    plan.outputs[i]->set_failed(error);
  }
  for (graph::Node* node : plan.emptied) node->take_operands_back();
  plan.emptied.clear();
  device.live().for_each([&](graph::Alias& alias) {
    if (values.contains(alias.settled().get())) {
      const auto before = replaced.find(alias.number());
      alias.settle(before != replaced.end() ? std::move(before->second->before) : nullptr);
    }
    const graph::Value& value = alias.value();
    if (!value || value.node->entry() != nullptr) return;
    const auto found = values.find(value.node->data(value.output).get());
    if (found != values.end()) alias.write(found->second, garbage);
  });
}

namespace {

// What `isolate` knows of values that are still to be computed: which depend on each other.
struct Dependencies {
  std::vector<graph::Value> values;
  std::vector<std::size_t> components;  // by value; some step's number
  std::vector<std::size_t> levels;      // how many others it is made from, one after the other
};

Dependencies dependencies_of(Device& device, const std::vector<graph::Value>& values) {
  Dependencies result;
  graph::Trace trace;
  const std::lock_guard lock(device.live().mutex);
  for (const graph::Value& value : values) {
    if (value.node->data(value.output) == nullptr) result.values.push_back(value);
  }
  trace = graph::walk(result.values);
  std::vector<std::size_t> parents(trace.steps.size());
  std::iota(parents.begin(), parents.end(), 0);
  const auto find = [&](std::size_t step) {
    while (parents[step] != step) step = parents[step] = parents[parents[step]];
    return step;
  };
  std::vector<std::size_t> levels(trace.steps.size());
  std::vector<std::size_t> is_root(trace.steps.size());
  for (const graph::Source& root : trace.roots) is_root[root.index] = 1;
  for (std::size_t i = 0; i < trace.steps.size(); ++i) {
    const std::size_t end =
        i + 1 < trace.steps.size() ? trace.steps[i + 1].first_source : trace.sources.size();
    for (std::size_t k = trace.steps[i].first_source; k < end; ++k) {
      const graph::Source& source = trace.sources[k];
      if (source.is_leaf) continue;
      parents[find(source.index)] = find(i);
      levels[i] = std::max(levels[i], levels[source.index] + is_root[source.index]);
    }
  }
  for (const graph::Source& root : trace.roots) {
    result.components.push_back(find(root.index));
    result.levels.push_back(levels[root.index]);
  }
  return result;
}

void fail_values(Device& device, const std::vector<graph::Value>& values,
                 const std::exception_ptr& error) {
  {
    const std::lock_guard lock(device.live().mutex);
    for (const graph::Value& value : values) fail_value(device, value, error);
  }
  restore_values(device, error);
}

}  // namespace

void isolate(Device& device, const std::vector<graph::Value>& values,
             const std::exception_ptr& error, const TryToRun& run) {
  const Dependencies known = dependencies_of(device, values);
  std::map<std::size_t, std::vector<std::size_t>> components;
  for (std::size_t i = 0; i < known.values.size(); ++i) {
    components[known.components[i]].push_back(i);
  }
  const auto try_part = [&](const std::vector<graph::Value>& part) {
    if (const std::exception_ptr failure = run(part)) isolate(device, part, failure, run);
  };
  for (const auto& [step, members] : components) {
    std::vector<graph::Value> all;
    std::size_t first = known.levels[members.front()];
    std::size_t last = first;
    for (const std::size_t i : members) {
      all.push_back(known.values[i]);
      first = std::min(first, known.levels[i]);
      last = std::max(last, known.levels[i]);
    }
    const std::exception_ptr failure = components.size() > 1 ? run(all) : error;
    if (failure == nullptr) continue;
    if (first == last) {
      fail_values(device, all, failure);
      continue;
    }
    std::vector<graph::Value> low;
    std::vector<graph::Value> high;
    for (const std::size_t i : members) {
      (known.levels[i] <= first + (last - first) / 2 ? low : high).push_back(known.values[i]);
    }
    try_part(low);
    try_part(high);
  }
}

}  // namespace torch_xla::runtime

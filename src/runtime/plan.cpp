// Planning under the recording lock. What nodes and aliases are left as after each kind of run is
// said where it is done.
#include "runtime/plan.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/metrics.h"
#include "base/settings.h"
#include "base/stored_dtype.h"
#include "graph/alias.h"
#include "runtime/capture.h"
#include "runtime/device.h"
#include "runtime/result_shardings.h"

namespace torch_xla::runtime {
namespace {

thread_local bool uses_donors = false;

class RecordingLock {
 public:
  explicit RecordingLock(Device& device) : lock_(device.live().mutex, std::defer_lock) {
    static base::Metric& wait = base::metric("DeviceLockWait");
    const base::TimedSection timed(wait);
    lock_.lock();
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

// How long the host has been recording what is now computed. Under the recording lock.
void record_tracing(Device& device) {
  static base::Metric& time = base::metric("LazyTracing");
  const auto since = device.live().take_recording_since();
  if (!since.has_value()) return;
  const auto elapsed = std::chrono::steady_clock::now() - *since;
  time.record(
      static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count()));
}

// A node that a barrier of another thread has used up has no operands left. Returns whether a leaf
// has failed already.
bool check_complete(const graph::Trace& trace) {
  bool has_failed = false;
  for (const graph::DataPtr& leaf : trace.leaves) {
    check_is_array(*leaf);
    has_failed |= static_cast<const Array&>(*leaf).is_failed();
  }
  for (const graph::Trace::Step& step : trace.steps) {
    base::internal_check(step.node->operands().size() == step.node->entry()->operands.size(),
                         "a value of aten::", step.node->entry()->op->name,
                         " was read before a barrier, or made in a captured function, and used "
                         "after it");
  }
  return has_failed;
}

void drop_operands(Plan& plan, graph::Node& node) {
  if (node.operands().empty()) return;
  node.drop_operands(plan.garbage);
  plan.emptied.push_back(&node);
}

// True when something beside this trace refers to the step's node.
bool is_external(const graph::Trace::Step& step) {
  return step.node->use_count() > step.uses + 1;  // 1: the trace's own reference
}

struct LiveValues {
  std::vector<graph::Value> roots;
  std::vector<graph::Alias*> owners;
};

// Those that are to be computed; `settle` is called with the others.
template <typename Settle>
LiveValues collect_live(Device& device, const Settle& settle) {
  LiveValues live;
  device.live().for_each([&](graph::Alias& alias) {
    const graph::Value& value = alias.value();
    if (!value) return;
    if (value.node->data(value.output) != nullptr) return settle(alias);
    live.roots.push_back(value);
    live.owners.push_back(&alias);
  });
  return live;
}

void settle_computed(graph::Alias& alias, std::vector<graph::NodeRef>& garbage) {
  const graph::Value& value = alias.value();
  if (value.node->entry() == nullptr) return alias.expire_views();
  // A read computed it, or is about to; if that fails, what was before comes back.
  const graph::DataPtr data = value.node->data(value.output);
  Array& array = static_cast<Array&>(*data);
  if (array.is_failed()) return;
  alias.write({graph::Node::make_leaf(data), 0}, garbage);
  array.add_replaced(alias.number(), alias.settle(data));
}

// What replaces an array comes first: a step that makes its state along with other new tensors has
// the order of those that only update it.
void put_replacing_first(LiveValues& live) {
  const auto replaces = [](const graph::Alias* owner) { return owner->settled() != nullptr; };
  if (std::ranges::is_partitioned(live.owners, replaces)) return;
  LiveValues ordered;
  ordered.roots.reserve(live.roots.size());
  ordered.owners.reserve(live.owners.size());
  for (const bool is_replacing : {true, false}) {
    for (std::size_t i = 0; i < live.roots.size(); ++i) {
      if (replaces(live.owners[i]) != is_replacing) continue;
      ordered.roots.push_back(std::move(live.roots[i]));
      ordered.owners.push_back(live.owners[i]);
    }
  }
  live = std::move(ordered);
}

// Lets the trace start from arrays, still to be filled, in the place of constants as which memory
// was born: as later steps will.
std::vector<Newborn> settle_births(Device& device, LiveValues& live, graph::Trace& trace) {
  std::vector<Newborn> found = find_births(trace, device, live.owners);
  if (found.empty()) return found;
  for (const Newborn& each : found) {
    each.constant.node->set_data(each.constant.output, each.birth.array);
    each.alias->settle(each.birth.array);
  }
  put_replacing_first(live);
  trace = graph::walk(live.roots);
  return found;
}

// Which arrays the new values of aliases may replace. A function of the graph alone; whether an
// array is free to be donated this time is decided at the launch.
class DonationFinder {
 public:
  explicit DonationFinder(const graph::Trace& trace)
      : trace_(trace),
        is_enabled_(base::settings().enable_param_aliasing()),
        is_taken_(trace.leaves.size()) {}

  // `leaf` is where the trace reads what is replaced by `value`, which will lie by `sharding`; or
  // kNoLeaf.
  void add(std::size_t root, const graph::Value& value, const base::Sharding* sharding,
           std::uint32_t leaf, std::vector<ops::Donation>& donations) {
    if (!is_enabled_ || leaf == Replaced::kNoLeaf || is_taken_[leaf]) return;
    const base::Shape stored = base::stored_shape(value.node->shape(value.output));
    const Array& before = static_cast<const Array&>(*trace_.leaves[leaf]);
    if (before.shape() != stored || before.sharding() != sharding) return;
    is_taken_[leaf] = true;
    donations.push_back({static_cast<std::uint32_t>(root), leaf});
  }

  // The arrays that the user gives away, for results of their types that replace none. Returns
  // these leaves.
  std::vector<std::uint32_t> add_donors(std::span<const ArrayPtr> roots,
                                        std::vector<ops::Donation>& donations) {
    std::vector<std::uint32_t> given;
    std::vector<bool> has_memory(roots.size());
    for (const ops::Donation& donation : donations) has_memory[donation.root] = true;
    for (std::uint32_t leaf = 0; leaf < trace_.leaves.size(); ++leaf) {
      const Array& array = static_cast<const Array&>(*trace_.leaves[leaf]);
      if (!array.is_donor() || is_taken_[leaf]) continue;
      for (std::uint32_t root = 0; root < roots.size(); ++root) {
        if (has_memory[root] || roots[root]->shape() != array.shape() ||
            roots[root]->sharding() != array.sharding()) {
          continue;
        }
        has_memory[root] = is_taken_[leaf] = true;
        given.push_back(leaf);
        donations.push_back({root, leaf});
        break;
      }
    }
    return given;
  }

 private:
  const graph::Trace& trace_;
  const bool is_enabled_;
  std::vector<bool> is_taken_;
};

std::uint32_t find_leaf(const graph::Trace& trace, const graph::DataPtr& data) {
  return data == nullptr ? Replaced::kNoLeaf
                         : graph::find_leaf(trace, *data).value_or(Replaced::kNoLeaf);
}

std::exception_ptr error_of(const graph::Data& data) {
  return static_cast<const Array&>(data).error();
}

// A live value that needs what has failed.
struct Failing {
  graph::Value value;
  graph::Alias* owner;
  graph::DataPtr cause;
};

// The program of a barrier. Barriers and previews choose it in one pass, so that the ones run what
// the others have compiled. Until a preview takes that back, values and births have arrays.
struct Choice {
  LiveValues live;
  // By live value: where the trace reads what it replaces, or kNoLeaf.
  std::vector<std::uint32_t> leaves;
  std::vector<Failing> failing;
  // The graph, as which births are known.
  base::Hash128 recorded;
  std::vector<Newborn> births;
  graph::Trace trace;  // with each value once
  std::vector<ArrayPtr> outputs;
  std::vector<ops::Donation> donations;
  std::vector<std::uint32_t> given_away;
};

// The others can be computed without them.
void take_failing_out(Choice& choice) {
  LiveValues rest;
  const std::vector<std::uint32_t> failed = find_failed(choice.trace);
  for (std::size_t i = 0; i < choice.live.roots.size(); ++i) {
    graph::Value& value = choice.live.roots[i];
    graph::Alias* const owner = choice.live.owners[i];
    const std::uint32_t leaf = failed_leaf(choice.trace, choice.trace.roots[i], failed);
    if (leaf == Replaced::kNoLeaf) {
      rest.roots.push_back(std::move(value));
      rest.owners.push_back(owner);
    } else {
      choice.failing.push_back({std::move(value), owner, choice.trace.leaves[leaf]});
    }
  }
  choice.live = std::move(rest);
  choice.trace = graph::walk(choice.live.roots);
}

void choose_results(Device& device, Choice& choice) {
  const ResultShardings shardings(device, choice.trace);
  DonationFinder donations(choice.trace);
  std::vector<graph::Source> roots;
  choice.leaves.reserve(choice.live.roots.size());
  for (std::size_t i = 0; i < choice.live.roots.size(); ++i) {
    const graph::Value& value = choice.live.roots[i];
    const std::uint32_t leaf = find_leaf(choice.trace, choice.live.owners[i]->settled());
    choice.leaves.push_back(leaf);
    if (value.node->data(value.output) != nullptr) continue;  // an earlier alias's value
    const base::Sharding* const sharding = shardings.of(choice.trace.roots[i]);
    ArrayPtr array =
        Array::make_pending(device, base::stored_shape(value.node->shape(value.output)), sharding);
    array->set_location(value.node->location());
    donations.add(roots.size(), value, sharding, leaf, choice.donations);
    roots.push_back(choice.trace.roots[i]);
    value.node->set_data(value.output, array);
    choice.outputs.push_back(std::move(array));
  }
  choice.trace.roots = std::move(roots);
  if (uses_donors) [[unlikely]]
    choice.given_away = donations.add_donors(choice.outputs, choice.donations);
}

Choice choose(Device& device, LiveValues live) {
  Choice choice;
  choice.live = std::move(live);
  put_replacing_first(choice.live);
  choice.trace = graph::walk(choice.live.roots);
  if (check_complete(choice.trace)) [[unlikely]]
    take_failing_out(choice);
  choice.recorded = choice.trace.relaxed_key;
  choice.births = settle_births(device, choice.live, choice.trace);
  choose_results(device, choice);
  return choice;
}

// Makes the graph what it was.
void take_back(const Choice& choice) {
  for (const graph::Value& value : choice.live.roots) {
    value.node->set_data(value.output, nullptr);
  }
  for (const Newborn& each : choice.births) {
    each.constant.node->set_data(each.constant.output, nullptr);
    each.alias->settle(nullptr);
  }
}

void commit_failing(Device& device, Choice& choice, Plan& plan) {
  for (Failing& each : choice.failing) {
    ArrayPtr array = fail_value(device, each.value, error_of(*each.cause));
    plan.failed = array;
    each.owner->write({graph::Node::make_leaf(array), 0}, plan.garbage);
    graph::DataPtr before = each.owner->settle(array);
    array->add_replaced(each.owner->number(), std::move(before));
  }
  // Whoever waits for all launches waits for it too.
  if (!choice.failing.empty() && choice.live.roots.empty()) plan.place = {};
}

void commit_births(Device& device, Choice& choice, Plan& plan) {
  for (graph::Alias* const owner : choice.live.owners) {
    if (owner->is_newborn()) device.births().note_lived_on(*owner);
  }
  for (Newborn& each : choice.births) {
    device.births().add(choice.recorded, *each.alias);
    drop_operands(plan, *each.constant.node);
    plan.garbage.push_back(std::move(each.constant.node));
    plan.births.push_back(std::move(each.birth));
  }
}

// Aliases start from the arrays.
void commit_results(Choice& choice, Plan& plan) {
  plan.replaced.reserve(choice.live.roots.size());
  for (std::size_t i = 0; i < choice.live.roots.size(); ++i) {
    const graph::Value& value = choice.live.roots[i];
    graph::Alias& alias = *choice.live.owners[i];
    graph::DataPtr data = value.node->data(value.output);
    alias.write({graph::Node::make_leaf(data), 0}, plan.garbage);
    auto* const result = static_cast<Array*>(data.get());
    if (graph::DataPtr before = alias.settle(std::move(data))) {
      plan.replaced.push_back({alias.number(), result, choice.leaves[i], std::move(before)});
    }
  }
  for (const std::uint32_t leaf : choice.given_away) {
    static_cast<Array&>(*choice.trace.leaves[leaf]).give_away();
  }
}

}  // namespace

bool set_donors_are_used(bool are_used) { return std::exchange(uses_donors, are_used); }

namespace {

// What is new comes first: the steps that it needs, as all of a backward pass, stand together then,
// and those that update what was there behind them.
GraphCut find_cut_of(const LiveValues& live, const FindCut& find_cut) {
  std::vector<graph::Value> ordered;
  std::size_t num_new = 0;
  for (const bool is_replacing : {false, true}) {
    for (std::size_t i = 0; i < live.roots.size(); ++i) {
      if ((live.owners[i]->settled() != nullptr) == is_replacing) ordered.push_back(live.roots[i]);
    }
    if (!is_replacing) num_new = ordered.size();
  }
  const graph::Trace trace = graph::walk(ordered);
  return check_complete(trace) ? GraphCut() : find_cut(trace, num_new);
}

}  // namespace

Plan plan_sync(Device& device, const FindCut& find_cut) {
  Plan plan;
  LiveValues live;  // freed outside the lock
  Choice choice;
  const BarrierScope barrier(device);
  const RecordingLock lock(device);
  device.live().reset_recorded();
  record_tracing(device);
  live = collect_live(device, [&](graph::Alias& alias) { settle_computed(alias, plan.garbage); });
  if (live.roots.empty()) return plan;
  check_runs_allowed();
  if (find_cut) plan.cut = find_cut_of(live, find_cut);
  if (!plan.cut.is_empty()) return plan;
  plan.freed = forget_arguments_locked(device);
  plan.place = device.launches().reserve();
  choice = choose(device, std::move(live));
  commit_failing(device, choice, plan);
  commit_births(device, choice, plan);
  commit_results(choice, plan);
  plan.trace = std::move(choice.trace);
  plan.outputs = std::move(choice.outputs);
  plan.donations = std::move(choice.donations);
  // Nobody may compute from these nodes again. One that is held from elsewhere, as a view's stale
  // reading, must not keep the arrays behind it.
  for (const graph::Trace::Step& step : plan.trace.steps) {
    if (is_external(step)) drop_operands(plan, *step.node);
  }
  return plan;
}

namespace {

// Makes output `output` of step `index` a result of the plan.
void add_output(Device& device, Plan& plan, const ResultShardings& shardings, std::uint32_t index,
                std::uint32_t output) {
  graph::Node& node = *plan.trace.steps[index].node;
  ArrayPtr array = Array::make_pending(device, base::stored_shape(node.shape(output)),
                                       shardings.of(index, output));
  array->set_location(node.location());
  node.set_data(output, array);
  plan.outputs.push_back(std::move(array));
  plan.trace.roots.push_back({index, output, false});
}

// By step: whether it is memory that a later step writes, so that it is a stale version of it.
std::vector<bool> find_overwritten(const graph::Trace& trace) {
  std::vector<bool> is_overwritten(trace.steps.size());
  for (const graph::Trace::Step& step : trace.steps) {
    if (!step.node->entry()->op->is_write) continue;
    const graph::Source& memory = trace.sources[step.first_source];
    if (!memory.is_leaf) is_overwritten[memory.index] = true;
  }
  return is_overwritten;
}

// All outputs of the steps that are held from outside the trace, but views and the stale versions
// of memory, which only readings of views hold that nobody asked for since.
void add_external(Device& device, Plan& plan, const ResultShardings& shardings) {
  const std::vector<bool> is_overwritten = find_overwritten(plan.trace);
  for (std::uint32_t i = 0; i < plan.trace.steps.size(); ++i) {
    const graph::Trace::Step& step = plan.trace.steps[i];
    const graph::Entry& entry = *step.node->entry();
    if (entry.op->is_view || !is_external(step)) continue;
    if (entry.op->is_write && is_overwritten[i]) continue;
    for (std::uint32_t output = 0; output < entry.outputs.size(); ++output) {
      if (entry.outputs[output] == nullptr || step.node->data(output) != nullptr) continue;
      add_output(device, plan, shardings, i, output);
    }
  }
}

// The walk's keys know the values that were asked for, not the results added since.
void extend_keys(graph::Trace& trace, std::size_t first_added) {
  for (base::Hash128* key : {&trace.strict_key, &trace.relaxed_key}) {
    base::Hasher hasher;
    hasher.add(*key);
    for (std::size_t i = first_added; i < trace.roots.size(); ++i) {
      hasher.add(static_cast<std::uint64_t>(trace.roots[i].index) << 32 | trace.roots[i].output);
    }
    *key = hasher.finish();
  }
}

std::vector<graph::DataPtr> find_lost(const graph::Trace& trace) {
  std::vector<graph::DataPtr> lost;
  std::ranges::copy_if(trace.leaves, std::back_inserter(lost), [](const graph::DataPtr& leaf) {
    return static_cast<const Array&>(*leaf).can_be_revived();
  });
  return lost;
}

// Of the values that are asked for.
void fail_dependents(Device& device, Plan& plan, std::vector<graph::Value>& values) {
  const std::vector<std::uint32_t> failed = find_failed(plan.trace);
  std::vector<graph::Value> rest;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t leaf = failed_leaf(plan.trace, plan.trace.roots[i], failed);
    if (leaf == Replaced::kNoLeaf) {
      rest.push_back(std::move(values[i]));
    } else {
      fail_value(device, values[i], error_of(*plan.trace.leaves[leaf]));
    }
  }
  values = std::move(rest);
  plan.trace = graph::walk(values);
}

ArrayPtr array_of(const graph::Value& value) {
  return std::static_pointer_cast<Array>(value.node->data(value.output));
}

}  // namespace

Plan plan_compute(Device& device, const ReadValues& read, std::vector<ArrayPtr>& arrays,
                  const FindCut& find_cut) {
  Plan plan;
  std::vector<graph::Value> values;  // freed outside the lock
  std::vector<graph::Value> missing;
  const RecordingLock lock(device);
  record_tracing(device);
  values = read(plan.garbage);
  for (const graph::Value& value : values) {
    const graph::DataPtr& data = value.node->data(value.output);
    if (data == nullptr) {
      missing.push_back(value);
    } else {
      check_is_array(*data);
    }
  }
  if (!missing.empty()) {
    check_runs_allowed();
    plan.trace = graph::walk(missing);
    if (find_cut) plan.cut = find_cut(plan.trace, plan.trace.roots.size());
    const bool has_failed = check_complete(plan.trace);
    if (has_failed) plan.lost = find_lost(plan.trace);
    if (!plan.cut.is_empty() || !plan.lost.empty()) {
      plan.trace = {};
      plan.values = std::move(values);
      return plan;
    }
    plan.freed = forget_arguments_locked(device);
    plan.place = device.launches().reserve();
    if (has_failed) [[unlikely]]
      fail_dependents(device, plan, missing);
    const ResultShardings shardings(device, plan.trace);
    const std::vector<graph::Source> wanted = std::move(plan.trace.roots);
    plan.trace.roots.clear();
    for (const graph::Source& source : wanted) {
      const graph::Node& node = *plan.trace.steps[source.index].node;
      if (node.data(source.output) != nullptr) continue;  // asked for twice
      add_output(device, plan, shardings, source.index, source.output);
    }
    const std::size_t num_wanted = plan.trace.roots.size();
    add_external(device, plan, shardings);
    extend_keys(plan.trace, num_wanted);
    for (const graph::Trace::Step& step : plan.trace.steps) {
      if (step.node->is_computed()) drop_operands(plan, *step.node);
    }
  }
  arrays.reserve(values.size());
  for (const graph::Value& value : values) arrays.push_back(array_of(value));
  return plan;
}

Plan plan_again(Device& device, const ReadLeaves& read, const GraphCall& call) {
  Plan plan;
  std::vector<const graph::DataPtr*> leaves;
  ArgumentListPtr kept;  // what leaves may point into, freed outside the lock
  const RecordingLock lock(device);
  kept = call.kept->list();
  if (!read(kept, leaves)) return plan;
  plan.kept = call.kept->divide(device, leaves, plan.trace.leaves, plan.freed);
  for (const graph::DataPtr& leaf : plan.trace.leaves) {
    if (leaf != nullptr) check_is_array(*leaf);
  }
  check_runs_allowed();
  plan.place = device.launches().reserve();
  plan.outputs.reserve(call.outputs.size());
  for (const base::Shape& shape : call.outputs) {
    plan.outputs.push_back(Array::make_pending(device, shape));
  }
  return plan;
}

graph::Trace trace_of(Device& device, std::span<const graph::Value> values) {
  const RecordingLock lock(device);
  graph::Trace trace = graph::walk(values);
  check_complete(trace);
  return trace;
}

Preview preview_sync(Device& device) {
  Preview preview;
  Choice choice;  // freed outside the lock
  const RecordingLock lock(device);
  choice = choose(device, collect_live(device, [](const graph::Alias&) {}));
  for (const ArrayPtr& output : choice.outputs) {
    if (output->sharding() != nullptr) preview.shardings.push_back(output->sharding());
  }
  take_back(choice);
  preview.trace = std::move(choice.trace);
  preview.donations = std::move(choice.donations);
  return preview;
}

}  // namespace torch_xla::runtime

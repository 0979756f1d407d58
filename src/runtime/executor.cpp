// From a plan to a launch: asking for its program, and submitting it.
#include "runtime/executor.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "base/metrics.h"
#include "base/settings.h"
#include "base/trace_events.h"
#include "base/user_code.h"
#include "ops/lower.h"
#include "runtime/background.h"
#include "runtime/client.h"
#include "runtime/host_reads.h"
#include "runtime/launch.h"
#include "runtime/observe.h"
#include "runtime/origin.h"
#include "runtime/plan.h"
#include "runtime/platform_options.h"
#include "runtime/programs.h"
#include "runtime/replica_programs.h"
#include "runtime/uncompiled.h"

namespace torch_xla::runtime {
namespace {

std::atomic<std::int64_t> launch_count{0};
thread_local LastRun last;

std::string describe(const graph::Trace& trace) {
  return base::str("graph ", base::to_string(trace.strict_key).substr(0, 8), " of ",
                   trace.steps.size(), " operations");
}

std::vector<std::uint64_t> numbers_at(const Plan& plan,
                                      const std::vector<std::uint32_t>& positions) {
  const std::vector<std::uint64_t>& all = plan.numbers.empty() ? plan.trace.numbers : plan.numbers;
  std::vector<std::uint64_t> numbers;
  numbers.reserve(positions.size());
  for (const std::uint32_t position : positions) numbers.push_back(all[position]);
  return numbers;
}

base::Error compile_error(const Launch& launch, const base::Error& error, const std::string& rest) {
  const std::string where =
      launch.description.where.empty() ? "" : base::str(" (at ", launch.description.where, ")");
  return {error.kind(), base::str("compiling ", launch.description.program, where,
                                  " failed: ", error.what(), rest)};
}

// Errors of `body` tell what was to be compiled.
template <typename Body>
void compiling(const Launch& launch, const Run& observed, const Body& body) {
  try {
    body();
  } catch (const base::Error& error) {
    throw compile_error(launch, error, observe_failure(observed));
  }
}

// Makes everything as it was before the plan, whose launch has no program.
void take_back(Plan& plan, Launch& launch, const std::exception_ptr& error) {
  plan.outputs = std::move(launch.outputs);
  plan.donations = std::move(launch.donations);
  undo(*launch.device, plan, error);
}

// Once its program is there. Frees what the plan holds, so that arrays which only the graph used
// may be donated.
void complete(Launch& launch, Plan& plan) {
  for (Replaced& replaced : plan.replaced) replaced.before.reset();
  launch.replaced = std::move(plan.replaced);
  launch.inputs = std::move(plan.trace.leaves);
  launch.floats = numbers_at(plan, launch.program->floats);
  launch.ints = numbers_at(plan, launch.program->ints);
  launch.roots = std::move(plan.trace.roots);
  launch.recipe = graph::recipe_of(std::move(plan.trace));
  plan.emptied.clear();
  plan.garbage.clear();
  plan.freed.clear();
  plan.trace = {};
}

// The launch of an interrupted wait, on a thread of its own once there is a program. It has given
// up its place in the queue, where others would wait for it: who needs its results waits for these.
void launch_in_background(const std::shared_ptr<Launch>& launch, Plan& plan, Uncompiled& uncompiled,
                          const CompileCache::Future& program) {
  program.wait();
  try {
    uncompiled.take();
  } catch (const base::Error&) {
    return;  // a shutdown has failed it
  }
  try {
    launch->program = program.get();
  } catch (const base::Error& error) {
    return take_back(plan, *launch, std::make_exception_ptr(compile_error(*launch, error, "")));
  } catch (...) {
    return take_back(plan, *launch, std::current_exception());
  }
  complete(*launch, plan);
  if (std::ranges::all_of(launch->outputs, [](const ArrayPtr& a) { return a.use_count() == 1; })) {
    return;  // nobody wants them any more
  }
  for (const pjrt::Event& event : launch->start()) {
    try {
      event.await();
    } catch (const base::Error&) {
      // The outputs report it.
    }
  }
}

void postpone(const std::shared_ptr<Launch>& launch, Plan& plan, Uncompiled uncompiled,
              const CompileCache::Future& program) {
  plan.place = {};
  run_in_background(
      [launch, plan = std::move(plan), uncompiled = std::move(uncompiled), program]() mutable {
        launch_in_background(launch, plan, uncompiled, program);
      });
}

// Fills the memory that the plan's state is born as while the compiler is at work, and also where
// the program can't be lowered.
FoundProgram begin_finding(Launch& launch, Plan& plan, const Run& observed,
                           Uncompiled& uncompiled) {
  const FilledAtEnd births(plan.births);
  FoundProgram found;
  compiling(launch, observed, [&] {
    if (is_observed()) [[unlikely]]
      observe_graph(observed);
    ProgramSpec spec = spec_with_replicas(*launch.device, plan.trace, launch.donations);
    for (const ArrayPtr& output : launch.outputs) {
      if (output->sharding() != nullptr) spec.results.push_back(output->sharding());
    }
    const bool may_be_bounded = launch.device->num_devices() == 1 && !plan.trace.steps.empty() &&
                                spec.placement.is_portable();
    found = client().programs().find(
        plan.trace, std::move(spec), [&] { uncompiled.list(); }, may_be_bounded);
    plan.numbers = found.numbers;
    last.key = found.key;
  });
  return found;
}

// An interruption leaves the launch to the background, and the plan empty.
void find_program(const std::shared_ptr<Launch>& launch, Plan& plan, RunKind kind) {
  const Run observed{*launch->device, plan.trace, launch->donations, kind,
                     launch->description.where};
  const bool is_seen = is_observed();
  Uncompiled uncompiled(launch);
  const FoundProgram found = begin_finding(*launch, plan, observed, uncompiled);
  if (!CompileCache::is_ready(found.program)) {
    uncompiled.list();
    try {
      CompileCache::wait(found.program);
    } catch (...) {
      postpone(launch, plan, std::move(uncompiled), found.program);
      throw;
    }
  }
  uncompiled.take();
  compiling(*launch, observed, [&] {
    launch->program = await_program(found);
    last.program = launch->program;
    if (is_seen) [[unlikely]]
      observe_program(observed, *launch->program,
                      found.was_compiled() ? *found.compile_seconds : -1);
  });
}

// What launches the plan. Frees what the plan holds, so that arrays which only the graph used may
// be donated. Throws if the plan can't be compiled: then it has been undone.
std::shared_ptr<Launch> make_launch(Device& device, Plan& plan, std::string_view where,
                                    RunKind kind) {
  static base::Metric& graph_size = base::metric("TensorsGraphSize", base::MetricKind::kNumber);
  graph_size.record(static_cast<double>(plan.trace.steps.size()));
  const auto launch = std::make_shared<Launch>();
  launch->device = &device;
  launch->outputs = std::move(plan.outputs);
  launch->donations = std::move(plan.donations);
  launch->description = {describe(plan.trace),
                         where.empty() ? base::user_line() : std::string(where),
                         launch->outputs.size(), 0};
  try {
    find_program(launch, plan, kind);
  } catch (...) {
    // Unless it was left to the background.
    if (!plan.trace.steps.empty()) take_back(plan, *launch, std::current_exception());
    throw;
  }
  complete(*launch, plan);
  return launch;
}

void submit(Device& device, Plan& plan, const std::shared_ptr<Launch>& launch) {
  launch_count.fetch_add(1, std::memory_order_relaxed);
  std::string name = base::tracing_is_on() ? launch->description.program : std::string();
  device.launches().submit(
      std::move(plan.place), [launch] { return launch->start(); }, std::move(name));
}

// Plans a read. What it reads that has failed, as the user knows, is computed first if it can be.
Plan plan_read(Device& device, const ReadValues& read, std::vector<ArrayPtr>& arrays,
               const FindCut& find_cut = nullptr) {
  Plan plan = plan_compute(device, read, arrays, find_cut);
  while (!plan.lost.empty()) {
    std::vector<Array*> lost;
    for (const graph::DataPtr& data : plan.lost) lost.push_back(static_cast<Array*>(data.get()));
    revive(device, lost);
    const std::vector<graph::Value> values = std::move(plan.values);
    plan = plan_compute(
        device, [&](std::vector<graph::NodeRef>&) { return values; }, arrays, find_cut);
  }
  return plan;
}

std::exception_ptr try_to_run(Device& device, const std::vector<graph::Value>& values,
                              std::string_view where) {
  try {
    std::vector<ArrayPtr> arrays;
    Plan plan = plan_read(device, [&](std::vector<graph::NodeRef>&) { return values; }, arrays);
    if (plan.is_empty()) return nullptr;
    submit(device, plan, make_launch(device, plan, where, RunKind::kRead));
    return nullptr;
  } catch (const base::Error&) {
    return std::current_exception();
  }
}

// Before the error of the compilation is thrown: whoever catches it must be able to go on. A read
// leaves its values as they were: they stand in nobody's way, and the next one may be luckier. But
// a barrier would fail for ever, and where memory runs out, also the reads of later steps.
void isolate_failure(Device& device, const Plan& plan, const base::Error& error,
                     std::string_view where, RunKind kind) {
  const bool is_barrier = kind == RunKind::kBarrier || kind == RunKind::kEager;
  if (!is_barrier && error.kind() != base::ErrorKind::kOutOfMemory) return;
  std::vector<graph::Value> values;
  for (const graph::Source& root : plan.trace.roots) {
    values.push_back({plan.trace.steps[root.index].node, root.output});
  }
  isolate(device, values, std::current_exception(),
          [&](const std::vector<graph::Value>& part) { return try_to_run(device, part, where); });
}

void run(Device& device, Plan plan, std::string_view where, RunKind kind) {
  std::shared_ptr<Launch> launch;
  try {
    launch = make_launch(device, plan, where, kind);
  } catch (const base::Error& error) {
    plan.place = {};  // other launches need not wait for it
    isolate_failure(device, plan, error, where, kind);
    throw;
  }
  submit(device, plan, launch);
}

// What stays the same when the plan's graph is called again; nothing when something may not.
std::optional<GraphCall> call_of(const Plan& plan) {
  const graph::Trace& trace = plan.trace;
  const bool is_alone = trace.steps.size() == 1 && trace.leaves.size() == trace.sources.size();
  // Of a program on several devices the arguments' shardings would have to be compared, too.
  const auto is_portable = [&] {
    return spec_with_replicas(plan.outputs[0]->device(), trace).placement.is_portable();
  };
  if (!is_alone || !trace.numbers.empty() || !is_portable()) return std::nullopt;
  GraphCall call{.key = trace.strict_key, .program = describe(trace), .outputs = {}};
  for (const ArrayPtr& output : plan.outputs) call.outputs.push_back(output->shape());
  return call;
}

FindCut cut_always(const Device& device) {
  if (device.num_devices() > 1) return nullptr;
  const bool at_groups = client().spans_processes();
  const bool at_layers = base::settings().layer_programs();
  if (!at_groups && !at_layers) return nullptr;
  return [&device, at_groups, at_layers](const graph::Trace& trace, std::size_t num_new) {
    GraphCut cut = at_groups ? cut_at_groups(client(), device, trace) : GraphCut();
    if (!cut.is_empty() || !at_layers) return cut;
    return client().programs().layer_cuts().find(trace, num_new);
  };
}

FindCut cut_for_read(const Device& device) {
  FindCut always = cut_always(device);
  if (!base::settings().graph_cuts() || device.num_devices() > 1) return always;
  return [always = std::move(always), &programs = client().programs()](const graph::Trace& trace,
                                                                       std::size_t num_new) {
    GraphCut cut = always ? always(trace, num_new) : GraphCut();
    return cut.is_empty() ? programs.graph_cuts().find(trace) : cut;
  };
}

// Computes what comes before the rest of a cut graph.
void compute_parts(Device& device, GraphCut cut, std::string_view where) {
  static base::Counter& count = base::counter("GraphCut");
  count.add();
  if (debug_level() > 0) write_explanation(cut.reason + "\n");
  for (std::vector<graph::Value>& part : cut.parts) {
    const std::vector<graph::Value> values = std::move(part);
    std::vector<ArrayPtr> arrays;
    Plan plan = plan_read(device, [&](std::vector<graph::NodeRef>&) { return values; }, arrays);
    if (!plan.is_empty()) run(device, std::move(plan), where, RunKind::kRead);
  }
}

// Plans a barrier. Where a part of it fails, all is computed as one: the failure is told then, and
// what can be computed without it is.
Plan plan_barrier(Device& device, std::string_view where) {
  Plan plan = plan_sync(device, cut_always(device));
  if (plan.cut.is_empty()) return plan;
  try {
    compute_parts(device, std::move(plan.cut), where);
  } catch (const base::Error&) {
    // The values are as they were.
  }
  return plan_sync(device);
}

}  // namespace

void sync(Device& device, bool wait_for_values, std::string_view where, RunKind kind) {
  Plan plan = plan_barrier(device, where);
  const ArrayPtr failed = std::move(plan.failed);
  ArrayPtr output;
  if (plan.is_empty()) {
    fill(plan.births);
  } else {
    output = plan.outputs.front();
    run(device, std::move(plan), where, kind);
  }
  if (is_observed()) [[unlikely]]
    observe_barrier();
  if (!wait_for_values) return;
  device.launches().wait_idle();
  // If the program failed, so has each of its outputs.
  if (output != nullptr) output->wait_ready();
  if (failed != nullptr) failed->wait_ready();
}

std::vector<ArrayPtr> compute(Device& device, const ReadValues& read, std::string_view where) {
  std::vector<ArrayPtr> arrays;
  Plan plan = plan_read(device, read, arrays, cut_for_read(device));
  if (!plan.cut.is_empty()) {
    const std::vector<graph::Value> values = std::move(plan.values);
    compute_parts(device, std::move(plan.cut), where);
    plan = plan_read(device, [&](std::vector<graph::NodeRef>&) { return values; }, arrays);
  }
  if (plan.is_empty()) return arrays;
  bool is_done = false;
  try {
    is_done = compute_on_host(device, plan);
  } catch (...) {
    run(device, std::move(plan), where, RunKind::kRead);
    throw;
  }
  if (!is_done) run(device, std::move(plan), where, RunKind::kRead);
  return arrays;
}

bool compute_arguments(Device& device, const ReadValues& read, std::string_view where) {
  static base::Counter& count = base::counter("DynamoSyncInputExecuteTime");
  std::vector<ArrayPtr> arrays;
  Plan plan = plan_read(device, read, arrays);
  if (plan.is_empty()) return false;
  count.add();
  run(device, std::move(plan), where, RunKind::kGraph);
  return true;
}

std::optional<GraphCall> compute_graph(Device& device, const ReadValues& read,
                                       std::string_view where) {
  std::vector<ArrayPtr> arrays;
  Plan plan = plan_read(device, read, arrays);
  if (plan.is_empty()) return std::nullopt;
  std::optional<GraphCall> call = call_of(plan);
  run(device, std::move(plan), where, RunKind::kGraph);
  return call;
}

std::optional<std::vector<ArrayPtr>> compute_again(Device& device, const GraphCall& call,
                                                   const ReadLeaves& read, std::string_view where) {
  static base::Counter& cached = base::counter("CachedCompile");
  static base::Metric& graph_size = base::metric("TensorsGraphSize", base::MetricKind::kNumber);
  if (is_observed()) [[unlikely]]
    return std::nullopt;
  ProgramSpec spec = spec_of(device, {});
  spec.program = call.key;
  const base::Hash128 key = key_of(spec);
  CompiledProgramPtr program = client().programs().find(key);
  if (program == nullptr) return std::nullopt;
  Plan plan = plan_again(device, read, call);
  if (plan.is_empty()) return std::nullopt;
  cached.add();
  graph_size.record(1);
  last = {key, program};
  std::vector<ArrayPtr> arrays = plan.outputs;
  const auto launch = std::make_shared<Launch>();
  launch->device = &device;
  launch->program = std::move(program);
  launch->inputs = std::move(plan.trace.leaves);
  launch->kept = std::move(plan.kept);
  launch->description = {call.program, std::string(where), plan.outputs.size(), 0};
  launch->outputs = std::move(plan.outputs);
  submit(device, plan, launch);
  return arrays;
}

std::vector<ArrayPtr> compute(Device& device, std::span<const graph::Value> values,
                              std::string_view where) {
  return compute(
      device,
      [&](std::vector<graph::NodeRef>&) {
        return std::vector<graph::Value>(values.begin(), values.end());
      },
      where);
}

std::vector<double> time_launches(Device& device, int count) {
  std::vector<double> seconds;
  Plan plan = plan_sync(device);
  if (plan.is_empty()) {
    fill(plan.births);
    return seconds;
  }
  const ArrayPtr output = plan.outputs.front();
  const std::shared_ptr<Launch> launch =
      make_launch(device, plan, "time_launches", RunKind::kBarrier);
  launch_count.fetch_add(count, std::memory_order_relaxed);
  device.launches().submit(std::move(plan.place), [&] {
    for (int i = 1; i < count; ++i) {
      const auto start = std::chrono::steady_clock::now();
      if (!launch->rehearse()) return std::vector<pjrt::Event>();
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      seconds.push_back(elapsed.count());
    }
    return launch->start();
  });
  device.launches().wait_idle();
  output->wait_ready();
  return seconds;
}

std::vector<ArrayPtr> run_program(Device& device, const std::string& text, const base::Hash128& key,
                                  std::vector<graph::DataPtr> inputs,
                                  std::span<const ResultType> results) {
  const auto launch = std::make_shared<Launch>();
  launch->device = &device;
  ProgramSpec spec = spec_of(device, inputs);
  spec.program = key;
  for (const ResultType& result : results) spec.results.push_back(result.sharding);
  launch->program = client().programs().find(text, spec);
  launch->inputs = std::move(inputs);
  for (const ResultType& result : results) {
    launch->outputs.push_back(Array::make_pending(device, result.shape, result.sharding));
  }
  if (results.empty()) {
    for (base::Shape& shape : launch->program->executable->output_shapes()) {
      launch->outputs.push_back(Array::make_pending(device, std::move(shape)));
    }
  }
  const std::string name = base::str("program ", base::to_string(key).substr(0, 8));
  launch->description = {name, base::user_line(), launch->outputs.size(), 0};
  std::vector<ArrayPtr> outputs = launch->outputs;
  launch_count.fetch_add(1, std::memory_order_relaxed);
  device.launches().submit(device.launches().reserve(), [launch] { return launch->start(); }, name);
  return outputs;
}

void wait(Device& device) { device.launches().wait_idle(); }

ComputationStats computation_stats() {
  return {num_compiled(), launch_count.load(std::memory_order_relaxed)};
}

const LastRun& last_run() { return last; }

void compile_program(Device& device, const std::string& text, const base::Hash128& key,
                     std::span<const graph::DataPtr> inputs) {
  ProgramSpec spec = spec_of(device, inputs);
  spec.program = key;
  client().programs().find(text, spec);
}

void clear_compilation_cache() {
  if (const std::shared_ptr<Client> client = existing_client()) client->programs().clear();
}

std::size_t compilation_cache_size() {
  const std::shared_ptr<Client> client = existing_client();
  return client == nullptr ? 0 : client->programs().size();
}

}  // namespace torch_xla::runtime

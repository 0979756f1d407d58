// From a plan to a launch: finding or compiling its program, and submitting it.
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
#include "runtime/compile.h"
#include "runtime/compile_cache.h"
#include "runtime/launch.h"
#include "runtime/observe.h"
#include "runtime/plan.h"
#include "runtime/platform_options.h"
#include "runtime/target.h"
#include "runtime/uncompiled.h"

namespace torch_xla::runtime {
namespace {

std::atomic<std::int64_t> compile_count{0};
std::atomic<std::int64_t> launch_count{0};
std::atomic<bool> constants_stay{false};
thread_local base::Hash128 last_key;
thread_local std::weak_ptr<const CompiledProgram> last_program;

CompileCache& cache() {
  static auto* const instance = new CompileCache();
  return *instance;
}

std::string describe(const graph::Trace& trace) {
  return base::str("graph ", base::to_string(trace.strict_key).substr(0, 8), " of ",
                   trace.steps.size(), " operations");
}

ops::Program lower(const graph::Trace& trace, std::span<const ops::Donation> donations,
                   const std::vector<bool>& promoted, bool has_locations) {
  static base::Metric& time = base::metric("LoweringTime");
  const base::TimedSection timed(time);
  ops::Target target = target_of(client());
  target.has_locations = has_locations;
  return ops::lower(trace, target, donations, promoted);
}

// The CPU's plugin allocates results and working memory when a program begins, and by then the
// memory of replaced inputs is gone: what can't fit must be known before.
std::size_t working_bytes(const pjrt::Executable& executable) {
  constexpr std::int64_t kWorthALook = std::int64_t{1} << 28;
  try {
    const pjrt::CompiledMemoryStats stats = executable.compiled_memory_stats();
    const std::int64_t num_bytes =
        stats.temp_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes;
    return num_bytes < kWorthALook ? 0 : static_cast<std::size_t>(num_bytes);
  } catch (const base::Error&) {
    return 0;
  }
}

// Lowers, and returns what compiles. `seconds` becomes the time of both, unless the program comes
// from the disk.
CompileCache::Compile begin_compiling(const graph::Trace& trace,
                                      std::span<const ops::Donation> donations,
                                      const std::vector<bool>& promoted,
                                      const std::shared_ptr<double>& seconds) {
  static base::Metric& aliases = base::metric("InputOutputAliasCount", base::MetricKind::kNumber);
  const auto start = std::chrono::steady_clock::now();
  ops::Program program = lower(trace, donations, promoted, false);
  Compilation compilation =
      base::settings().hlo_debug()
          ? Compilation(lower(trace, donations, promoted, true).text, std::move(program.text))
          : Compilation(std::move(program.text));
  return [compilation = std::move(compilation), floats = std::move(program.promoted_floats),
          ints = std::move(program.promoted_ints), num_donations = donations.size(), start, seconds,
          is_cpu = platform() == "cpu"] {
    Compiled compiled = compilation.run();
    if (compiled.was_compiled) {
      compile_count.fetch_add(1, std::memory_order_relaxed);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      *seconds = elapsed.count();
    }
    aliases.record(static_cast<double>(num_donations));
    const std::size_t bytes = is_cpu ? working_bytes(*compiled.executable) : 0;
    return std::make_shared<const CompiledProgram>(
        CompiledProgram{std::move(compiled.executable), floats, ints, bytes});
  };
}

// Of what every executable depends on beside the graph.
base::Hash128 key_of(const base::Hash128& graph_key, const base::Hash128& options_key,
                     std::span<const ops::Donation> donations) {
  base::Hasher hasher;
  hasher.add(graph_key);
  hasher.add(options_key);
  hasher.add(donations.size());
  for (const ops::Donation& donation : donations) {
    hasher.add(static_cast<std::uint64_t>(donation.root) << 32 | donation.leaf);
  }
  return hasher.finish();
}

struct FoundProgram {
  CompileCache::Future program;
  // When it is there: null or negative if it was not compiled for this.
  std::shared_ptr<const double> compile_seconds;

  bool was_compiled() const { return compile_seconds != nullptr && *compile_seconds >= 0; }
};

// `uncompiled`, if it is given, is listed before anything is compiled.
FoundProgram find_program(const graph::Trace& trace, std::span<const ops::Donation> donations,
                          Uncompiled* uncompiled = nullptr) {
  const base::Hash128 options_key = compile_options_key(platform());
  const base::Hash128 strict = key_of(trace.strict_key, options_key, donations);
  FoundProgram found{cache().look_up(strict), nullptr};
  last_key = strict;
  if (found.program.valid()) return found;
  std::vector<bool> promoted = trace.promoted;
  base::Hash128 key = strict;
  if (!promoted.empty() && !constants_stay.load(std::memory_order_relaxed)) {
    const base::Hash128 relaxed = key_of(trace.relaxed_key, options_key, donations);
    promoted = cache().changed_constants(relaxed, trace.promotables, std::move(promoted));
    key = key_of(graph::key_of(trace, promoted), options_key, donations);
  }
  last_key = key;
  found.program = cache().look_up_or_compile(key, [&] {
    if (uncompiled != nullptr) uncompiled->list();
    const auto seconds = std::make_shared<double>(-1);
    found.compile_seconds = seconds;
    return begin_compiling(trace, donations, promoted, seconds);
  });
  return found;
}

CompiledProgramPtr await_program(const FoundProgram& found) {
  static base::Counter& cached = base::counter("CachedCompile");
  CompiledProgramPtr program = CompileCache::await(found.program);
  if (!found.was_compiled()) cached.add();
  return program;
}

void append_promoted(std::vector<std::uint64_t>& numbers, const graph::Trace& trace,
                     const std::vector<std::uint32_t>& positions) {
  for (const std::uint32_t position : positions) {
    numbers.push_back(trace.promotables[position]);
  }
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
  launch.floats = std::move(plan.trace.floats);
  launch.ints = std::move(plan.trace.ints);
  append_promoted(launch.floats, plan.trace, launch.program->promoted_floats);
  append_promoted(launch.ints, plan.trace, launch.program->promoted_ints);
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
  const std::optional<pjrt::Event> event = launch->start();
  if (!event.has_value()) return;
  try {
    event->await();
  } catch (const base::Error&) {
    // The outputs report it.
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

// An interruption leaves the launch to the background, and the plan empty.
void find_program(const std::shared_ptr<Launch>& launch, Plan& plan, RunKind kind) {
  const Run observed{*launch->device, plan.trace, launch->donations, kind,
                     launch->description.where};
  const bool is_seen = is_observed();
  Uncompiled uncompiled(launch);
  FoundProgram found;
  compiling(*launch, observed, [&] {
    if (is_seen) [[unlikely]]
      observe_graph(observed);
    found = find_program(plan.trace, launch->donations, &uncompiled);
  });
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
    last_program = launch->program;
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

std::exception_ptr try_to_run(Device& device, const std::vector<graph::Value>& values,
                              std::string_view where) {
  try {
    std::vector<ArrayPtr> arrays;
    Plan plan = plan_compute(device, [&](std::vector<graph::NodeRef>&) { return values; }, arrays);
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
  if (!is_alone || !trace.floats.empty() || !trace.ints.empty() || !trace.promotables.empty()) {
    return std::nullopt;
  }
  GraphCall call{.key = trace.strict_key, .program = describe(trace), .outputs = {}};
  for (const ArrayPtr& output : plan.outputs) call.outputs.push_back(output->shape());
  return call;
}

std::map<std::string, std::int64_t> memory_of(const CompiledProgram& program) {
  const pjrt::CompiledMemoryStats stats = program.executable->compiled_memory_stats();
  return {{"argument", stats.argument_size_in_bytes},
          {"output", stats.output_size_in_bytes},
          {"alias", stats.alias_size_in_bytes},
          {"temp", stats.temp_size_in_bytes},
          {"generated_code", stats.generated_code_size_in_bytes},
          {"peak", stats.peak_memory_in_bytes}};
}

CompiledProgramPtr find_text(const std::string& text, const base::Hash128& key) {
  const Compilation compilation(text);
  const bool is_cpu = platform() == "cpu";
  const auto compile = [compilation, is_cpu] {
    Compiled compiled = compilation.run();
    if (compiled.was_compiled) compile_count.fetch_add(1, std::memory_order_relaxed);
    const std::size_t bytes = is_cpu ? working_bytes(*compiled.executable) : 0;
    return std::make_shared<const CompiledProgram>(
        CompiledProgram{std::move(compiled.executable), {}, {}, bytes});
  };
  return cache().find_or_compile(key_of(key, compile_options_key(platform()), {}), compile);
}

}  // namespace

void sync(Device& device, bool wait_for_values, std::string_view where, RunKind kind) {
  Plan plan = plan_sync(device);
  const ArrayPtr failed = std::move(plan.failed);
  ArrayPtr output;
  if (!plan.is_empty()) {
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
  Plan plan = plan_compute(device, read, arrays);
  if (!plan.is_empty()) run(device, std::move(plan), where, RunKind::kRead);
  return arrays;
}

std::optional<GraphCall> compute_graph(Device& device, const ReadValues& read,
                                       std::string_view where) {
  std::vector<ArrayPtr> arrays;
  Plan plan = plan_compute(device, read, arrays);
  if (plan.is_empty()) return std::nullopt;
  if (plan.trace.steps.size() > 1) {
    // The graph's arguments were still to be computed.
    static base::Counter& count = base::counter("DynamoSyncInputExecuteTime");
    count.add();
  }
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
  const base::Hash128 key = key_of(call.key, compile_options_key(platform()), {});
  CompiledProgramPtr program = cache().find(key);
  if (program == nullptr) return std::nullopt;
  Plan plan = plan_again(device, read, call);
  if (plan.is_empty()) return std::nullopt;
  cached.add();
  graph_size.record(1);
  last_key = key;
  last_program = program;
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
  if (plan.is_empty()) return seconds;
  const ArrayPtr output = plan.outputs.front();
  const std::shared_ptr<Launch> launch =
      make_launch(device, plan, "time_launches", RunKind::kBarrier);
  launch_count.fetch_add(count, std::memory_order_relaxed);
  device.launches().submit(std::move(plan.place), [&] {
    for (int i = 1; i < count; ++i) {
      const auto start = std::chrono::steady_clock::now();
      if (!launch->rehearse()) return std::optional<pjrt::Event>();
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      seconds.push_back(elapsed.count());
    }
    return launch->start();
  });
  device.launches().wait_idle();
  output->wait_ready();
  return seconds;
}

std::map<std::string, std::int64_t> estimate_memory(Device& device) {
  const Preview preview = preview_sync(device);
  return memory_of(*await_program(find_program(preview.trace, preview.donations)));
}

std::map<std::string, std::int64_t> estimate_memory(Device& device,
                                                    std::span<const graph::Value> values) {
  return memory_of(*await_program(find_program(trace_of(device, values), {})));
}

std::vector<ArrayPtr> run_program(Device& device, const std::string& text, const base::Hash128& key,
                                  std::vector<graph::DataPtr> inputs) {
  const auto launch = std::make_shared<Launch>();
  launch->device = &device;
  launch->program = find_text(text, key);
  launch->inputs = std::move(inputs);
  for (base::Shape& shape : launch->program->executable->output_shapes()) {
    launch->outputs.push_back(Array::make_pending(device, std::move(shape)));
  }
  const std::string name = base::str("program ", base::to_string(key).substr(0, 8));
  launch->description = {name, base::user_line(), launch->outputs.size(), 0};
  std::vector<ArrayPtr> outputs = launch->outputs;
  launch_count.fetch_add(1, std::memory_order_relaxed);
  device.launches().submit(device.launches().reserve(), [launch] { return launch->start(); }, name);
  return outputs;
}

void wait(Device& device) { device.launches().wait_idle(); }

std::string pending_graph(Device& device, std::span<const graph::Value> values,
                          std::string_view format) {
  return print_graph(trace_of(device, values), parse_graph_format(format));
}

std::string pending_graph(Device& device, std::string_view format) {
  return print_graph(trace_of_live(device), parse_graph_format(format));
}

std::string pending_graph_key(Device& device, std::span<const graph::Value> values) {
  return base::to_string(trace_of(device, values).strict_key);
}

ComputationStats computation_stats() {
  return {compile_count.load(std::memory_order_relaxed),
          launch_count.load(std::memory_order_relaxed)};
}

std::string last_program_key() {
  return last_key == base::Hash128{} ? std::string() : base::to_string(last_key);
}

std::map<std::string, std::int64_t> last_program_memory() {
  const CompiledProgramPtr program = last_program.lock();
  if (program == nullptr) return {};
  const pjrt::CompiledMemoryStats stats = program->executable->compiled_memory_stats();
  return {{"generated_code_size_in_bytes", stats.generated_code_size_in_bytes},
          {"argument_size_in_bytes", stats.argument_size_in_bytes},
          {"output_size_in_bytes", stats.output_size_in_bytes},
          {"alias_size_in_bytes", stats.alias_size_in_bytes},
          {"temp_size_in_bytes", stats.temp_size_in_bytes},
          {"host_temp_size_in_bytes", stats.host_temp_size_in_bytes},
          {"peak_memory_in_bytes", stats.peak_memory_in_bytes}};
}

void compile_program(const std::string& text, const base::Hash128& key) { find_text(text, key); }

void set_constants_stay(bool stay) { constants_stay.store(stay); }

void clear_compilation_cache() { cache().clear(); }

std::size_t compilation_cache_size() { return cache().size(); }

}  // namespace torch_xla::runtime

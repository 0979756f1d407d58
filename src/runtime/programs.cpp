// Keys, lowering, and what is kept of a compiled program.
#include "runtime/programs.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/metrics.h"
#include "base/settings.h"
#include "graph/inlined.h"
#include "ops/lower.h"
#include "runtime/client.h"
#include "runtime/compile.h"
#include "runtime/device.h"
#include "runtime/observe.h"
#include "runtime/platform_options.h"
#include "runtime/replica_programs.h"
#include "runtime/target.h"

namespace torch_xla::runtime {
namespace {

std::atomic<std::int64_t> compile_count{0};
std::atomic<bool> constants_stay{false};
std::atomic<bool> is_replica{false};
thread_local std::optional<bool> bounded_sizes;
std::atomic<bool (*)()> determinism_is_asked_for{nullptr};

// What runs beside others, which might switch to the other executable at another launch, is
// compiled once: it would no longer meet them in the same collectives, or round as they do.
bool may_be_quick(const Device& device) {
  if (!base::settings().tiered_compilation()) return false;
  const auto is_deterministic = determinism_is_asked_for.load(std::memory_order_relaxed);
  return device.num_devices() == 1 && device.placement().is_portable() && !is_replica.load() &&
         (is_deterministic == nullptr || !is_deterministic());
}

ops::Program lower(const Client& client, const graph::Trace& trace, const ProgramSpec& spec,
                   const ops::Numbers& numbers, bool has_locations, const ops::Bounds* bounds) {
  static base::Metric& time = base::metric("LoweringTime");
  const base::TimedSection timed(time);
  const auto num_devices = static_cast<std::size_t>(spec.placement.num_partitions);
  ops::Target target = target_of(client, spec);
  target.has_locations = has_locations;
  return ops::lower(trace, target, spec.donations, numbers,
                    {num_devices, spec.inputs, spec.results}, bounds);
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

CompiledProgram program_of(const Compilation& compilation, Compiled compiled) {
  const bool is_cpu = compilation.client().platform() == "cpu";
  const std::size_t bytes = is_cpu ? working_bytes(*compiled.executable) : 0;
  return {.executable = std::move(compiled.executable),
          .floats = {},
          .ints = {},
          .working_bytes = bytes,
          .kept_bytes = compilation.estimate_bytes()};
}

// Of one that someone waited for.
Compiled counted(Compiled compiled) {
  if (compiled.was_compiled) compile_count.fetch_add(1, std::memory_order_relaxed);
  return compiled;
}

}  // namespace

// What becomes executables, and how each is fed.
struct Programs::Lowered {
  Compilation compilation;
  ops::Program program;  // without its text
  std::vector<ReplicaMeeting> meetings;

  CompiledProgram with(Compiled compiled) const {
    CompiledProgram result = program_of(compilation, std::move(compiled));
    result.floats = program.floats;
    result.ints = program.ints;
    result.input_dims = program.leaves;
    result.output_dims = program.roots;
    result.meetings = meetings;
    return result;
  }
};

ProgramSpec spec_of(const Device& device, std::span<const graph::DataPtr> inputs,
                    std::span<const ops::Donation> donations) {
  ProgramSpec spec{.options = compile_options_key(platform()),
                   .donations = donations,
                   .placement = device.placement(),
                   .may_be_quick = may_be_quick(device)};
  if (device.num_devices() == 1) return spec;  // nothing of it has a sharding
  for (const graph::DataPtr& input : inputs) {
    spec.inputs.push_back(static_cast<const Array&>(*input).sharding());
  }
  return spec;
}

ProgramSpec spec_with_replicas(const Device& device, const graph::Trace& trace,
                               std::span<const ops::Donation> donations) {
  ProgramSpec spec = spec_of(device, trace.leaves, donations);
  place_replicas(client(), device, trace, spec);
  return spec;
}

CompiledProgramPtr await_program(const FoundProgram& found) {
  static base::Counter& cached = base::counter("CachedCompile");
  CompiledProgramPtr program = CompileCache::await(found.program);
  if (!found.was_compiled()) cached.add();
  return program;
}

// Lowers, and returns what compiles. `seconds` becomes the time of both, unless the program comes
// from the disk.
CompileCache::Compile Programs::begin_compiling(const graph::Trace& trace, const ProgramSpec& spec,
                                                const ops::Numbers& numbers,
                                                const std::shared_ptr<double>& seconds,
                                                const ops::Bounds* bounds) {
  static base::Metric& aliases = base::metric("InputOutputAliasCount", base::MetricKind::kNumber);
  const auto start = std::chrono::steady_clock::now();
  ops::Program program = lower(client_, trace, spec, numbers, false, bounds);
  std::string known_as;
  if (base::settings().hlo_debug()) {
    known_as = std::exchange(program.text, lower(client_, trace, spec, numbers, true, bounds).text);
  }
  Compilation compilation(client_.shared_from_this(), spec, std::move(program.text), known_as);
  const auto lowered = std::make_shared<const Lowered>(
      Lowered{std::move(compilation), std::move(program), meetings_of(client_, trace, spec)});
  return [this, lowered, key = key_of(spec), tier = spec.may_be_quick ? Tier::kFirst : Tier::kOnly,
          num_donations = spec.donations.size(), start, seconds] {
    Compiled compiled = counted(lowered->compilation.run(tier));
    if (compiled.was_compiled) {
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      *seconds = elapsed.count();
    }
    aliases.record(static_cast<double>(num_donations));
    const bool is_quick = compiled.is_quick;
    CompiledProgram result = lowered->with(std::move(compiled));
    if (is_quick) result.quick = quick_program(lowered, key);
    return std::make_shared<const CompiledProgram>(std::move(result));
  };
}

// It holds the client until it is launched often or dropped, and is dropped when that is closed.
std::shared_ptr<QuickProgram> Programs::quick_program(std::shared_ptr<const Lowered> lowered,
                                                      const base::Hash128& key) {
  return std::make_shared<QuickProgram>([this, lowered = std::move(lowered), key] {
    full_compilations_.add([this, lowered, key] { compile_fully(*lowered, key); });
  });
}

// The quick program stays if this fails.
void Programs::compile_fully(const Lowered& lowered, const base::Hash128& key) noexcept {
  static base::Counter& failures = base::counter("FullCompileFailure");
  const std::string name = base::str("program ", base::to_string(key).substr(0, 8));
  std::string told;
  try {
    const auto start = std::chrono::steady_clock::now();
    Compiled compiled = lowered.compilation.run(Tier::kSecond);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    const char* const from = compiled.was_compiled ? "compiled" : "loaded";
    const auto program = std::make_shared<const CompiledProgram>(lowered.with(std::move(compiled)));
    told = cache_.replace_quick(key, program)
               ? base::str(name, " was ", from, " with all optimizations in the background, in ",
                           elapsed.count(), " s, and replaces the quick one\n")
               : base::str(name, " was ", from, " with all optimizations, and had been dropped\n");
  } catch (const std::exception& error) {
    failures.add();
    told = base::str(name, " stays the quick one: compiling it with all optimizations failed: ",
                     error.what(), "\n");
  }
  if (debug_level() > 0) write_explanation(told);
}

// False if the graph is to be compiled for its own sizes.
bool Programs::find_bounded(const graph::Trace& trace, ProgramSpec spec,
                            const std::function<void()>& before_compiling, FoundProgram& found) {
  static base::Counter& compiled = base::counter("BoundedCompile");
  static base::Counter& refused = base::counter("BoundedRefusal");
  const bool are_all = bounded_sizes.value_or(base::settings().bounded_sizes());
  const std::optional<graph::Trace> inlined = graph::inlined(trace);
  const graph::Trace& whole = inlined.has_value() ? *inlined : trace;
  std::optional<BoundedGraph> graph = bounded_graphs_.see(whole, /*growing_alone=*/!are_all);
  if (!graph.has_value()) return false;
  spec.program = graph->key;
  const base::Hash128 key = key_of(spec);
  try {
    found.program = cache_.look_up_or_compile(key, [&] {
      const auto seconds = std::make_shared<double>(-1);
      CompileCache::Compile compile =
          begin_compiling(whole, spec, graph->numbers, seconds, &graph->bounds);
      if (before_compiling) before_compiling();
      compiled.add();
      found.compile_seconds = seconds;
      return compile;
    });
  } catch (const base::Error& error) {
    if (debug_level() > 0) {
      write_explanation(base::str("Compiled for each of its sizes: ", error.what(), "\n"));
    }
    refused.add();
    bounded_graphs_.refuse(graph->form);
    return false;
  }
  found.key = key;
  found.numbers = whole.numbers;
  found.numbers.insert(found.numbers.end(), graph->values.begin(), graph->values.end());
  return true;
}

FoundProgram Programs::find(const graph::Trace& trace, ProgramSpec spec,
                            const std::function<void()>& before_compiling, bool may_be_bounded) {
  const bool are_alike = !spec.replica_groups.empty() && run_one_program(client_);
  const NumbersOf of = are_alike           ? NumbersOf::kReplicasOfOneProgram
                       : is_replica.load() ? NumbersOf::kReplica
                                           : NumbersOf::kOneProcess;
  const SeenNumbersPtr seen = trace.numbers.empty() ? nullptr : cache_.see_numbers(trace, of);
  const auto key_with = [&](const base::Hash128& graph_key) {
    spec.program = seen == nullptr ? graph_key : seen->key_with(graph_key);
    return key_of(spec);
  };
  const base::Hash128 strict = key_with(trace.strict_key);
  FoundProgram found{cache_.look_up(strict), strict};
  if (found.program.valid()) return found;
  ops::Numbers numbers;
  if (seen != nullptr) {
    numbers = {trace.is_data, seen->same_as()};
    if (!constants_stay.load(std::memory_order_relaxed)) numbers.is_data = seen->is_data();
    found.key = key_with(graph::key_of(trace, numbers.is_data));
  }
  const bool is_bounded =
      bounded_sizes.value_or(base::settings().bounded_sizes() || base::settings().bounded_growth());
  if (may_be_bounded && is_bounded && !constants_stay.load()) {
    found.program = cache_.look_up(found.key);
    if (found.program.valid()) return found;
    if (find_bounded(trace, spec, before_compiling, found)) return found;
  }
  found.program = cache_.look_up_or_compile(found.key, [&] {
    if (before_compiling) before_compiling();
    const auto seconds = std::make_shared<double>(-1);
    found.compile_seconds = seconds;
    return begin_compiling(trace, spec, numbers, seconds);
  });
  return found;
}

CompiledProgramPtr Programs::find(const std::string& text, ProgramSpec spec) {
  spec.may_be_quick = false;
  const auto compile = [compilation = Compilation(client_.shared_from_this(), spec, text)] {
    return std::make_shared<const CompiledProgram>(
        program_of(compilation, counted(compilation.run())));
  };
  return cache_.find_or_compile(key_of(spec), compile);
}

void Programs::close() {
  persistent_cache_.stop_preloading();
  clear();
}

std::int64_t num_compiled() { return compile_count.load(std::memory_order_relaxed); }

void set_constants_stay(bool stay) { constants_stay.store(stay); }

std::optional<bool> set_thread_bounded_sizes(std::optional<bool> are_bounded) {
  return std::exchange(bounded_sizes, are_bounded);
}

void set_is_replica(bool is_one) { is_replica.store(is_one); }

void set_determinism(bool (*is_asked_for)()) { determinism_is_asked_for.store(is_asked_for); }

}  // namespace torch_xla::runtime

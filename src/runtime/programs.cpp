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
#include "ops/lower.h"
#include "runtime/client.h"
#include "runtime/compile.h"
#include "runtime/device.h"
#include "runtime/observe.h"
#include "runtime/platform_options.h"
#include "runtime/target.h"

namespace torch_xla::runtime {
namespace {

std::atomic<std::int64_t> compile_count{0};
std::atomic<bool> constants_stay{false};
std::atomic<bool> is_replica{false};

ops::Program lower(const Client& client, const graph::Trace& trace, const ProgramSpec& spec,
                   const ops::Numbers& numbers, bool has_locations, const ops::Bounds* bounds) {
  static base::Metric& time = base::metric("LoweringTime");
  const base::TimedSection timed(time);
  const auto num_devices = static_cast<std::size_t>(spec.placement.num_partitions);
  ops::Target target = target_of(client, num_devices > 1);
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
  if (compiled.was_compiled) compile_count.fetch_add(1, std::memory_order_relaxed);
  const bool is_cpu = compilation.client().platform() == "cpu";
  const std::size_t bytes = is_cpu ? working_bytes(*compiled.executable) : 0;
  return {.executable = std::move(compiled.executable),
          .floats = {},
          .ints = {},
          .working_bytes = bytes,
          .kept_bytes = compilation.estimate_bytes()};
}

}  // namespace

ProgramSpec spec_of(const Device& device, std::span<const graph::DataPtr> inputs,
                    std::span<const ops::Donation> donations) {
  ProgramSpec spec{.options = compile_options_key(platform()),
                   .donations = donations,
                   .placement = device.placement()};
  if (device.num_devices() == 1) return spec;  // nothing of it has a sharding
  for (const graph::DataPtr& input : inputs) {
    spec.inputs.push_back(static_cast<const Array&>(*input).sharding());
  }
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
  return [compilation =
              Compilation(client_.shared_from_this(), spec, std::move(program.text), known_as),
          floats = std::move(program.floats), ints = std::move(program.ints),
          input_dims = std::move(program.leaves), output_dims = std::move(program.roots),
          num_donations = spec.donations.size(), start, seconds] {
    Compiled compiled = compilation.run();
    if (compiled.was_compiled) {
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      *seconds = elapsed.count();
    }
    aliases.record(static_cast<double>(num_donations));
    CompiledProgram result = program_of(compilation, std::move(compiled));
    result.floats = floats;
    result.ints = ints;
    result.input_dims = input_dims;
    result.output_dims = output_dims;
    return std::make_shared<const CompiledProgram>(std::move(result));
  };
}

// False if the graph is to be compiled for its own sizes.
bool Programs::find_bounded(const graph::Trace& trace, ProgramSpec spec,
                            const std::function<void()>& before_compiling, FoundProgram& found) {
  static base::Counter& compiled = base::counter("BoundedCompile");
  static base::Counter& refused = base::counter("BoundedRefusal");
  std::optional<BoundedGraph> graph = bounded_graphs_.see(trace);
  if (!graph.has_value()) return false;
  spec.program = graph->key;
  const base::Hash128 key = key_of(spec);
  try {
    found.program = cache_.look_up_or_compile(key, [&] {
      const auto seconds = std::make_shared<double>(-1);
      CompileCache::Compile compile =
          begin_compiling(trace, spec, graph->numbers, seconds, &graph->bounds);
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
  found.variables = std::move(graph->values);
  return true;
}

FoundProgram Programs::find(const graph::Trace& trace, ProgramSpec spec,
                            const std::function<void()>& before_compiling, bool may_be_bounded) {
  const SeenNumbersPtr seen =
      trace.numbers.empty() ? nullptr : cache_.see_numbers(trace, is_replica.load());
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
  if (may_be_bounded && base::settings().bounded_sizes() && !constants_stay.load()) {
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

CompiledProgramPtr Programs::find(const std::string& text, const ProgramSpec& spec) {
  const auto compile = [compilation = Compilation(client_.shared_from_this(), spec, text)] {
    return std::make_shared<const CompiledProgram>(program_of(compilation, compilation.run()));
  };
  return cache_.find_or_compile(key_of(spec), compile);
}

void Programs::close() {
  persistent_cache_.stop_preloading();
  clear();
}

std::int64_t num_compiled() { return compile_count.load(std::memory_order_relaxed); }

void set_constants_stay(bool stay) { constants_stay.store(stay); }

void set_is_replica(bool is_one) { is_replica.store(is_one); }

}  // namespace torch_xla::runtime

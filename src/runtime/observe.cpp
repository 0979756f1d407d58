// Composing what is told, and where it goes.
#include "runtime/observe.h"

#include <atomic>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/settings.h"
#include "base/user_code.h"
#include "graph/print.h"
#include "runtime/cause.h"
#include "runtime/client.h"
#include "runtime/executor.h"
#include "runtime/graph_history.h"
#include "runtime/hlo_text.h"
#include "runtime/platform_options.h"
#include "runtime/programs.h"
#include "runtime/target.h"

namespace torch_xla::runtime {
namespace {

// Above these, PT_XLA_DEBUG complains.
constexpr double kSlowCompileSeconds = 300;
constexpr double kSlowExecutionSeconds = 30;
constexpr double kEventsPerStep = 0.5;
constexpr std::int64_t kWarmUpSteps = 10;

GraphHistory& history() {
  static auto* const instance = new GraphHistory();
  return *instance;
}

std::mutex& file_mutex() {
  static auto* const mutex = new std::mutex();
  return *mutex;
}

void append_to_file(const std::string& path, const std::string& text) {
  const std::lock_guard lock(file_mutex());
  std::ofstream out(path, std::ios::app);
  out << text;
  out.flush();
  if (!out) base::warn_once("can't write to '" + path + "'");
}

std::string cause_of(const Run& run) {
  if (!cause().empty()) return cause();
  switch (run.kind) {
    case RunKind::kBarrier: return "user sync";
    case RunKind::kEager: return "a group of eager operations is complete";
    case RunKind::kRead: return "a value was read";
    case RunKind::kGraph: return "a graph of torch.compile was called";
  }
  return {};
}

std::string frames_text(const char* indent) {
  std::string out;
  const auto max = static_cast<std::size_t>(
      std::max<std::int64_t>(base::settings().pt_xla_debug_max_frame(), 0));
  for (const base::Frame& frame : base::user_frames(max)) {
    out += base::str(indent, frame.function, " (", base::to_string(frame), ")\n");
  }
  return out;
}

std::string gigabytes(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6f GB", static_cast<double>(bytes) * 1e-9);
  return text;
}

std::string memory_text(const CompiledProgram& program) {
  pjrt::CompiledMemoryStats stats;
  try {
    stats = program.executable->compiled_memory_stats();
  } catch (const base::Error&) {
    return "  the plugin gives no estimate\n";
  }
  return base::str("  inputs ", gigabytes(stats.argument_size_in_bytes), ", outputs ",
                   gigabytes(stats.output_size_in_bytes), ", of these in the memory of inputs ",
                   gigabytes(stats.alias_size_in_bytes), "\n  temporary ",
                   gigabytes(stats.temp_size_in_bytes), ", program ",
                   gigabytes(stats.generated_code_size_in_bytes), "\n");
}

std::string graph_info(const Run& run) {
  return base::str("Graph Info\n  Graph Hash: ", base::to_string(run.trace.strict_key),
                   "\n  Number of Graph Inputs: ", run.trace.leaves.size(),
                   "\n  Number of Graph Outputs: ", run.trace.roots.size(),
                   "\n  Number of Operations: ", run.trace.steps.size(), "\n");
}

std::string options_text() {
  std::string out = "XLA_FLAGS='" + base::settings().xla_flags() + "'";
  for (const auto& [name, value] : custom_compile_options()) {
    std::visit([&](const auto& v) { out += base::str(" ", name, "=", v); }, value);
  }
  return out;
}

void explain_compilation(const Run& run, const CompiledProgram& program, double seconds) {
  std::string why =
      history().explain_and_add({run.trace, run.donations, options_text(), std::string(run.where)});
  if (!program.output_dims.empty()) why += "\n  now compiled for all sizes up to a bound";
  if (program.quick != nullptr) {
    why += base::str("\n  compiled quickly, and with all optimizations after ", kQuickLaunches,
                     " launches");
  }
  write_explanation(
      base::str("================ Compilation Analysis ================\nCompilation Cause\n  ",
                cause_of(run), "\nCompiled Anew Because\n  ", why, "\n", graph_info(run),
                "Compile Time\n  ", seconds, " s\nMemory\n", memory_text(program),
                "Python Frame Triggered Compilation:\n", frames_text("  ")));
  if (seconds > kSlowCompileSeconds) {
    write_explanation(base::str("CompileTime too slow: one took ", seconds,
                                " s; identical layers may be compiled once, see scan_layers, "
                                "and equal turns of a loop, see scan\n"));
  }
}

void explain_execution(const Run& run) {
  if (run.kind == RunKind::kRead && cause().empty()) {
    write_explanation(base::str(
        "================ Unexpected Execution Analysis ================\nExecution Cause\n  ",
        "a value was read between barriers: the host waits, and the step is split in two "
        "programs\n  to avoid it, read after torch_xla.sync(), or in xm.add_step_closure\n",
        graph_info(run), "Python Frame Triggered Execution:\n", frames_text("  ")));
    return;
  }
  write_explanation(base::str(
      "================ Execution Analysis ================\nExecution Cause\n  ", cause_of(run),
      "\n", graph_info(run), "Python Frame Triggered Execution:\n", frames_text("  ")));
}

// Whether something that should settle after the first steps goes on happening.
class StepRule {
 public:
  StepRule(const char* what, const char* advice) : what_(what), advice_(advice) {}

  void at_barrier(std::int64_t step, std::int64_t events) {
    if (step == kWarmUpSteps) {
      at_start_ = events;
    } else if (step >= 2 * kWarmUpSteps && step % kWarmUpSteps == 0 && !is_told_) {
      const double rate =
          static_cast<double>(events - at_start_) / static_cast<double>(step - kWarmUpSteps);
      if (rate <= kEventsPerStep) return;
      is_told_ = true;
      write_explanation(base::str(what_, " too frequent: ", rate, " per step after the first ",
                                  kWarmUpSteps, "; ", advice_, "\n"));
    }
  }

 private:
  const char* what_;
  const char* advice_;
  std::int64_t at_start_ = 0;
  bool is_told_ = false;
};

std::int64_t sample_count(std::string_view metric) {
  const std::optional<base::MetricData> data = base::metric_data(metric);
  return data.has_value() ? data->total_samples : 0;
}

void apply_step_rules() {
  static auto* const mutex = new std::mutex();
  static StepRule compiles("CompileTime", "see 'Compiled Anew Because' above");
  static StepRule downloads("TransferFromDeviceTime",
                            "something reads values in every step (print, .item(), logging)");
  static std::int64_t step = 0;
  const std::lock_guard lock(*mutex);
  ++step;
  if (step % kWarmUpSteps != 0) return;
  compiles.at_barrier(step, sample_count("CompileTime"));
  downloads.at_barrier(step, sample_count("TransferFromDeviceTime"));
}

void write_metrics(const std::string& target) {
  const std::string report = base::metrics_report();
  if (target == "STDERR" || target == "STDOUT") {
    std::FILE* const stream = target == "STDERR" ? stderr : stdout;
    std::fwrite(report.data(), 1, report.size(), stream);
    std::fflush(stream);
  } else {
    append_to_file(target, report);
  }
}

}  // namespace

int debug_level() {
  base::Settings& settings = base::settings();
  if (const std::int64_t level = settings.pt_xla_debug_level(); level > 0) {
    return static_cast<int>(level);
  }
  return settings.pt_xla_debug() ? 2 : 0;
}

bool is_observed() {
  return debug_level() > 0 || !base::settings().save_tensors_file().empty() ||
         !base::settings().metrics_file().empty();
}

void observe_graph(const Run& run) {
  const std::string path = base::settings().save_tensors_file();
  if (path.empty()) return;
  const GraphFormat format = parse_graph_format(base::settings().save_tensors_fmt());
  std::string text = base::str("[", cause_of(run), "]\nTensorsGraphInfo:\n", frames_text("  "),
                               "\nGraph Hash: ", base::to_string(run.trace.strict_key),
                               "\nRoots: ", run.trace.roots.size(), "\n\n## BEGIN_GRAPH\n");
  try {
    text += print_graph(run.device, run.trace, format);
  } catch (const base::Error& error) {
    text += base::str("not printed: ", error.what(), "\n");
  }
  text += "\n## END_GRAPH\n\n";
  append_to_file(base::str(path, ".", run.device.ordinal()), text);
}

void observe_program(const Run& run, const CompiledProgram& program, double compile_seconds) {
  const int level = debug_level();
  if (level >= 1 && compile_seconds >= 0) explain_compilation(run, program, compile_seconds);
  // In eager mode everything runs at once, which is no news.
  if (level >= 2 && run.kind != RunKind::kEager) explain_execution(run);
}

std::string observe_failure(const Run& run) {
  base::Settings& settings = base::settings();
  std::string told;
  if (const std::string path = settings.save_hlo_file(); !path.empty()) {
    std::string program;
    try {
      program = print_graph(run.device, run.trace, GraphFormat::kStableHlo);
    } catch (const base::Error&) {  // what failed is the lowering itself
      program = graph::to_text(run.trace);
    }
    append_to_file(path, program);
    told += base::str("\nThe program was written to ", path);
  }
  if (settings.dump_hlo_graph()) told += "\nThe graph:\n" + graph::to_text(run.trace);
  if (settings.dump_fatal_stack()) told += "\nThe Python stack:\n" + frames_text("  ");
  return told;
}

void observe_barrier() {
  if (debug_level() > 0) apply_step_rules();
  if (const std::string target = base::settings().metrics_file(); !target.empty()) {
    write_metrics(target);
  }
}

void observe_execution_time(double seconds) {
  if (seconds > kSlowExecutionSeconds && debug_level() > 0) {
    write_explanation(base::str("ExecuteTime too slow: a program ran for ", seconds, " s\n"));
  }
}

GraphFormat parse_graph_format(std::string_view name) {
  if (name == "text") return GraphFormat::kText;
  if (name == "dot") return GraphFormat::kDot;
  if (name == "stablehlo") return GraphFormat::kStableHlo;
  if (name == "hlo") return GraphFormat::kHlo;
  base::fail(base::ErrorKind::kValue, "a graph's format must be text, dot, hlo or stablehlo, got '",
             name, "'");
}

std::string print_graph(const Device& device, const graph::Trace& trace, GraphFormat format,
                        std::span<const base::Sharding* const> results) {
  if (format == GraphFormat::kText) return graph::to_text(trace);
  if (format == GraphFormat::kDot) return graph::to_dot(trace);
  const std::size_t num_devices = device.num_devices();
  const ProgramSpec spec = spec_with_replicas(device, trace);
  std::string program =
      ops::lower(trace, target_of(client(), spec), {}, {}, {num_devices, spec.inputs, results})
          .text;
  if (format == GraphFormat::kStableHlo) return program;
  return hlo_text(program, base::settings().dump_post_optimizations());
}

void write_explanation(std::string_view text) {
  std::string out;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) out += "pt-xla-profiler: " + line + "\n";
  const std::string path = base::settings().pt_xla_debug_file();
  if (path.empty()) {
    std::fwrite(out.data(), 1, out.size(), stderr);
  } else {
    append_to_file(path, out);
  }
}

}  // namespace torch_xla::runtime

// Graphs as they are, and executables as the plugin describes them.
#include "runtime/inspect.h"

#include "runtime/client.h"
#include "runtime/executor.h"
#include "runtime/observe.h"
#include "runtime/plan.h"
#include "runtime/programs.h"

namespace torch_xla::runtime {
namespace {

std::map<std::string, std::int64_t> memory_of(const CompiledProgram& program) {
  const pjrt::CompiledMemoryStats stats = program.executable->compiled_memory_stats();
  return {{"argument", stats.argument_size_in_bytes},
          {"output", stats.output_size_in_bytes},
          {"alias", stats.alias_size_in_bytes},
          {"temp", stats.temp_size_in_bytes},
          {"generated_code", stats.generated_code_size_in_bytes},
          {"peak", stats.peak_memory_in_bytes}};
}

}  // namespace

std::string pending_graph(Device& device, std::span<const graph::Value> values,
                          std::string_view format) {
  return print_graph(device, trace_of(device, values), parse_graph_format(format));
}

std::string pending_graph(Device& device, std::string_view format) {
  const Preview preview = preview_sync(device);
  return print_graph(device, preview.trace, parse_graph_format(format), preview.shardings);
}

std::string pending_graph_key(Device& device, std::span<const graph::Value> values) {
  return base::to_string(trace_of(device, values).strict_key);
}

std::map<std::string, std::int64_t> estimate_memory(Device& device) {
  const Preview preview = preview_sync(device);
  ProgramSpec spec = spec_with_replicas(device, preview.trace, preview.donations);
  spec.results = preview.shardings;
  return memory_of(*await_program(client().programs().find(preview.trace, spec)));
}

std::map<std::string, std::int64_t> estimate_memory(Device& device,
                                                    std::span<const graph::Value> values) {
  const graph::Trace trace = trace_of(device, values);
  return memory_of(
      *await_program(client().programs().find(trace, spec_with_replicas(device, trace))));
}

std::string last_program_key() {
  const base::Hash128 key = last_run().key;
  return key == base::Hash128{} ? std::string() : base::to_string(key);
}

std::map<std::string, std::int64_t> last_program_memory() {
  CompiledProgramPtr program = last_run().program.lock();
  const std::shared_ptr<Client> client = existing_client();
  if (program == nullptr && client != nullptr) program = client->programs().find(last_run().key);
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

}  // namespace torch_xla::runtime

// Launching a loaded executable, and what the plugin knows of it.
#include "pjrt/executable.h"

#include <utility>

#include "pjrt/api.h"
#include "pjrt/client.h"
#include "pjrt/live_objects.h"

namespace torch_xla::pjrt {
namespace {

// The arrays of pointers that PJRT_LoadedExecutable_Execute takes: [device][argument] in,
// [device][output] out.
class LaunchLists {
 public:
  LaunchLists(std::span<Buffer* const> arguments, std::size_t num_devices, std::size_t num_outputs)
      : num_devices_(num_devices),
        num_arguments_(arguments.size() / num_devices),
        num_outputs_(num_outputs),
        buffers_(arguments.size() + num_devices * num_outputs),
        rows_(2 * num_devices) {
    base::internal_check(num_devices_ * num_arguments_ == arguments.size(),
                         "execute: devices with different numbers of arguments");
    for (std::size_t i = 0; i < arguments.size(); ++i) buffers_[i] = arguments[i]->c_buffer();
    for (std::size_t d = 0; d < num_devices_; ++d) {
      rows_[d] = buffers_.data() + d * num_arguments_;
      rows_[num_devices_ + d] = buffers_.data() + arguments.size() + d * num_outputs_;
    }
  }

  std::size_t num_devices() const { return num_devices_; }
  std::size_t num_arguments() const { return num_arguments_; }
  PJRT_Buffer* const* const* arguments() const { return rows_.data(); }
  PJRT_Buffer** const* outputs() const { return rows_.data() + num_devices_; }

 private:
  std::size_t num_devices_;
  std::size_t num_arguments_;
  std::size_t num_outputs_;
  std::vector<PJRT_Buffer*> buffers_;
  std::vector<PJRT_Buffer**> rows_;
};

PJRT_ExecuteOptions to_c(const ExecuteOptions& options) {
  auto result = PJRT_MAKE(PJRT_ExecuteOptions);
  result.launch_id = options.launch_id;
  result.non_donatable_input_indices = options.non_donatable_input_indices.data();
  result.num_non_donatable_input_indices = options.non_donatable_input_indices.size();
  result.call_location = options.call_location;
  return result;
}

}  // namespace

Executable::Executable(std::shared_ptr<Client> client, PJRT_LoadedExecutable* executable)
    : client_(std::move(client)), loaded_(executable) {
  live_counters().executables.fetch_add(1, std::memory_order_relaxed);
  try {
    auto unloaded = PJRT_MAKE(PJRT_LoadedExecutable_GetExecutable_Args);
    unloaded.loaded_executable = loaded_;
    PJRT_CALL(api(), PJRT_LoadedExecutable_GetExecutable, unloaded);
    executable_ = unloaded.executable;
    auto outputs = PJRT_MAKE(PJRT_Executable_NumOutputs_Args);
    outputs.executable = executable_;
    PJRT_CALL(api(), PJRT_Executable_NumOutputs, outputs);
    num_outputs_ = outputs.num_outputs;
  } catch (...) {
    destroy();
    throw;
  }
}

Executable::~Executable() { destroy(); }

void Executable::destroy() noexcept {
  if (executable_ != nullptr) {
    auto args = PJRT_MAKE(PJRT_Executable_Destroy_Args);
    args.executable = executable_;
    PJRT_CALL_NOEXCEPT(api(), PJRT_Executable_Destroy, args);
  }
  auto args = PJRT_MAKE(PJRT_LoadedExecutable_Destroy_Args);
  args.executable = loaded_;
  PJRT_CALL_NOEXCEPT(api(), PJRT_LoadedExecutable_Destroy, args);
  live_counters().executables.fetch_sub(1, std::memory_order_relaxed);
}

const PJRT_Api* Executable::api() const { return client_->api(); }

ExecuteResult Executable::execute(std::span<Buffer* const> arguments, const ExecuteOptions& options,
                                  std::size_t num_devices) const {
  const LaunchLists lists(arguments, num_devices, num_outputs_);
  PJRT_ExecuteOptions c_options = to_c(options);
  std::vector<PJRT_Event*> events(options.want_events ? lists.num_devices() : 0);
  auto args = PJRT_MAKE(PJRT_LoadedExecutable_Execute_Args);
  args.executable = loaded_;
  args.options = &c_options;
  args.argument_lists = lists.arguments();
  args.num_devices = lists.num_devices();
  args.num_args = lists.num_arguments();
  args.output_lists = lists.outputs();
  args.device_complete_events = options.want_events ? events.data() : nullptr;
  if (options.execute_device != nullptr) args.execute_device = options.execute_device->c_device();
  PJRT_CALL(api(), PJRT_LoadedExecutable_Execute, args);

  ExecuteResult result;
  result.outputs.resize(lists.num_devices());
  for (std::size_t d = 0; d < lists.num_devices(); ++d) {
    result.outputs[d].reserve(num_outputs_);
    for (std::size_t i = 0; i < num_outputs_; ++i) {
      result.outputs[d].emplace_back(client_, lists.outputs()[d][i]);
    }
  }
  result.events.reserve(events.size());
  for (PJRT_Event* event : events) {
    result.events.emplace_back(api(), event, "PJRT_LoadedExecutable_Execute");
  }
  return result;
}

std::string Executable::name() const {
  auto args = PJRT_MAKE(PJRT_Executable_Name_Args);
  args.executable = executable_;
  PJRT_CALL(api(), PJRT_Executable_Name, args);
  return std::string(args.executable_name, args.executable_name_size);
}

int Executable::num_replicas() const {
  auto args = PJRT_MAKE(PJRT_Executable_NumReplicas_Args);
  args.executable = executable_;
  PJRT_CALL(api(), PJRT_Executable_NumReplicas, args);
  return static_cast<int>(args.num_replicas);
}

int Executable::num_partitions() const {
  auto args = PJRT_MAKE(PJRT_Executable_NumPartitions_Args);
  args.executable = executable_;
  PJRT_CALL(api(), PJRT_Executable_NumPartitions, args);
  return static_cast<int>(args.num_partitions);
}

std::vector<base::Shape> Executable::output_shapes() const {
  auto types = PJRT_MAKE(PJRT_Executable_OutputElementTypes_Args);
  types.executable = executable_;
  PJRT_CALL(api(), PJRT_Executable_OutputElementTypes, types);
  auto sizes = PJRT_MAKE(PJRT_Executable_OutputDimensions_Args);
  sizes.executable = executable_;
  PJRT_CALL(api(), PJRT_Executable_OutputDimensions, sizes);
  std::vector<base::Shape> shapes;
  const std::int64_t* dims = sizes.dims;
  for (std::size_t i = 0; i < types.num_output_types; ++i) {
    const std::size_t rank = sizes.dim_sizes[i];
    shapes.push_back({from_buffer_type(types.output_types[i]), base::Dims(dims, dims + rank)});
    dims += rank;
  }
  return shapes;
}

std::vector<Device*> Executable::addressable_devices() const {
  auto args = PJRT_MAKE(PJRT_LoadedExecutable_AddressableDevices_Args);
  args.executable = loaded_;
  PJRT_CALL(api(), PJRT_LoadedExecutable_AddressableDevices, args);
  std::vector<Device*> devices;
  for (PJRT_Device* device : std::span(args.addressable_devices, args.num_addressable_devices)) {
    devices.push_back(client_->find_device(device));
  }
  return devices;
}

std::string Executable::serialize() const {
  auto args = PJRT_MAKE(PJRT_Executable_Serialize_Args);
  args.executable = executable_;
  PJRT_CALL(api(), PJRT_Executable_Serialize, args);
  using Owner = std::unique_ptr<PJRT_SerializedExecutable, void (*)(PJRT_SerializedExecutable*)>;
  const Owner owner(args.serialized_executable, args.serialized_executable_deleter);
  return std::string(args.serialized_bytes, args.serialized_bytes_size);
}

NamedValues Executable::cost_analysis() const {
  auto args = PJRT_MAKE(PJRT_Executable_GetCostAnalysis_Args);
  args.executable = executable_;
  PJRT_CALL(api(), PJRT_Executable_GetCostAnalysis, args);
  return from_named_values(args.properties, args.num_properties);
}

CompiledMemoryStats Executable::compiled_memory_stats() const {
  auto args = PJRT_MAKE(PJRT_Executable_GetCompiledMemoryStats_Args);
  args.executable = executable_;
  PJRT_CALL(api(), PJRT_Executable_GetCompiledMemoryStats, args);
  return {.generated_code_size_in_bytes = args.generated_code_size_in_bytes,
          .argument_size_in_bytes = args.argument_size_in_bytes,
          .output_size_in_bytes = args.output_size_in_bytes,
          .alias_size_in_bytes = args.alias_size_in_bytes,
          .temp_size_in_bytes = args.temp_size_in_bytes,
          .host_temp_size_in_bytes = args.host_temp_size_in_bytes,
          .peak_memory_in_bytes = args.peak_memory_in_bytes};
}

Program Executable::optimized_program() const {
  auto c_program = PJRT_MAKE(PJRT_Program);
  auto args = PJRT_MAKE(PJRT_Executable_OptimizedProgram_Args);
  args.executable = executable_;
  args.program = &c_program;
  PJRT_CALL(api(), PJRT_Executable_OptimizedProgram, args);  // asks for the size
  Program program;
  program.code.resize(c_program.code_size);
  c_program.code = program.code.data();
  PJRT_CALL(api(), PJRT_Executable_OptimizedProgram, args);
  program.format.assign(c_program.format, c_program.format_size);
  return program;
}

std::string Executable::fingerprint() const {
  auto args = PJRT_MAKE(PJRT_Executable_Fingerprint_Args);
  args.executable = executable_;
  PJRT_CALL(api(), PJRT_Executable_Fingerprint, args);
  return std::string(args.executable_fingerprint, args.executable_fingerprint_size);
}

}  // namespace torch_xla::pjrt

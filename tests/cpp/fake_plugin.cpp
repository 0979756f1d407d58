// A PJRT plugin over plain host memory for tests: small, instrumented by the sanitizers (the real
// plugins are not), and its calls fail or hang on demand through the functions of fake_plugin.h. It
// checks what callers must get right: struct sizes, use after deletion, leaks, what meets in a
// collective. Programs are those of fake_program.h, on as many replicas and partitions as their
// compile options say (fake_launch.h). Everything that a launch does is asynchronous when the test
// asks for it.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fake_launch.h"
#include "fake_objects.h"
#include "fake_profiler.h"
#include "fake_program.h"
#include "pjrt_c_api.h"

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using fake::Completion;
using fake::control;
using fake::fail_argument;
using fake::Status;
using fake::Storage;

// ---- One C function per FAKE: counted, hanging or failing on demand, checked, exceptions caught.

template <typename Args, typename Body>
PJRT_Error* run_call(const char* name, std::size_t expected_size, Args* args, Body body) {
  try {
    if (args->struct_size < expected_size)
      fail_argument(std::string(name) + ": struct_size too small");
    if (std::optional<Status> failure = control().enter(name)) throw *failure;
    body(args);
    return nullptr;
  } catch (const Status& status) {
    return new PJRT_Error(status);
  } catch (const std::exception& error) {
    return new PJRT_Error(Status{PJRT_Error_Code_INVALID_ARGUMENT, error.what()});
  }
}

#define FAKE(function)                                                                 \
  void body_of_##function(function##_Args* args);                                      \
  PJRT_Error* fake_##function(function##_Args* args) {                                 \
    return run_call(#function, function##_Args_STRUCT_SIZE, args, body_of_##function); \
  }                                                                                    \
  void body_of_##function([[maybe_unused]] function##_Args* args)

void give_string(const std::string& text, const char*& data, std::size_t& size) {
  data = text.data();
  size = text.size();
}

PJRT_NamedValue named_integer(const char* name, std::int64_t value) {
  PJRT_NamedValue result = {};
  result.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  result.name = name;
  result.name_size = std::string_view(name).size();
  result.type = PJRT_NamedValue_kInt64;
  result.int64_value = value;
  result.value_size = 1;
  return result;
}

void error_destroy(PJRT_Error_Destroy_Args* args) { delete args->error; }

void error_message(PJRT_Error_Message_Args* args) {
  give_string(args->error->status.message, args->message, args->message_size);
}

PJRT_Error* error_code(PJRT_Error_GetCode_Args* args) {
  args->code = args->error->status.code;
  return nullptr;
}

FAKE(PJRT_Plugin_Initialize) {}

FAKE(PJRT_Plugin_Attributes) {
  static const std::int64_t version[3] = {1, 13, 3};
  static const PJRT_NamedValue value = [] {
    PJRT_NamedValue result = named_integer("stablehlo_current_version", 0);
    result.type = PJRT_NamedValue_kInt64List;
    result.int64_array_value = version;
    result.value_size = 3;
    return result;
  }();
  args->attributes = &value;
  args->num_attributes = 1;
}

// ---- Events

FAKE(PJRT_Event_Destroy) { delete args->event; }
FAKE(PJRT_Event_IsReady) { args->is_ready = args->event->completion->is_done(); }

PJRT_Error* fake_PJRT_Event_Await(PJRT_Event_Await_Args* args) {
  if (std::optional<Status> failure = control().enter("PJRT_Event_Await")) {
    return new PJRT_Error(*failure);
  }
  const std::optional<Status> error = args->event->completion->wait();
  return error ? new PJRT_Error(*error) : nullptr;
}

FAKE(PJRT_Event_OnReady) {
  const std::shared_ptr<Completion> completion = args->event->completion;
  // A raw pointer, since the callback is a member of the completion itself.
  completion->then([c = completion.get(), callback = args->callback, user_arg = args->user_arg] {
    const std::optional<Status> error = c->wait();
    callback(error ? new PJRT_Error(*error) : nullptr, user_arg);
  });
}

// ---- Clients and devices

PJRT_Error* make_callback_error(PJRT_Error_Code code, const char* message, std::size_t size) {
  return new PJRT_Error(Status{code, std::string(message, size)});
}

void must_work(PJRT_Error* error) {
  if (error == nullptr) return;
  const Status status = error->status;
  delete error;
  throw status;
}

void put_value(const PJRT_Client_Create_Args* args, const std::string& key,
               const std::string& value) {
  PJRT_CallbackError make_error = &make_callback_error;
  PJRT_KeyValuePutCallback_Args put = {};
  put.struct_size = PJRT_KeyValuePutCallback_Args_STRUCT_SIZE;
  give_string(key, put.key, put.key_size);
  give_string(value, put.value, put.value_size);
  put.callback_error = &make_error;
  put.user_arg = args->kv_put_user_arg;
  must_work(args->kv_put_callback(&put));
}

std::string get_value(const PJRT_Client_Create_Args* args, const std::string& key,
                      int timeout_in_ms) {
  PJRT_CallbackError make_error = &make_callback_error;
  PJRT_KeyValueGetCallback_Args get = {};
  get.struct_size = PJRT_KeyValueGetCallback_Args_STRUCT_SIZE;
  give_string(key, get.key, get.key_size);
  get.timeout_in_ms = timeout_in_ms;
  get.callback_error = &make_error;
  get.user_arg = args->kv_get_user_arg;
  must_work(args->kv_get_callback(&get));
  std::string value(get.value, get.value_size);
  get.value_deleter_callback(get.value);
  return value;
}

// Tests of the key-value callbacks: writes a key, reads it back, and looks for one that is not
// there. Returns what it read.
std::string use_store(const PJRT_Client_Create_Args* args) {
  if (args->kv_get_callback == nullptr) fail_argument("use_store needs a key-value store");
  put_value(args, "fake/key", "stored");
  std::string result = get_value(args, "fake/key", 50);
  if (args->kv_try_get_callback == nullptr) return result;
  PJRT_CallbackError make_error = &make_callback_error;
  PJRT_KeyValueTryGetCallback_Args try_get = {};
  try_get.struct_size = PJRT_KeyValueTryGetCallback_Args_STRUCT_SIZE;
  const std::string missing = "fake/missing";
  give_string(missing, try_get.key, try_get.key_size);
  try_get.callback_error = &make_error;
  try_get.user_arg = args->kv_try_get_user_arg;
  PJRT_Error* error = args->kv_try_get_callback(&try_get);
  const bool is_missing = error != nullptr && error->status.code == PJRT_Error_Code_NOT_FOUND;
  delete error;
  return result + (is_missing ? ", missing" : ", found");
}

// How many devices each process has. They tell each other by the store.
std::vector<std::int64_t> devices_by_node(const PJRT_Client_Create_Args* args, std::int64_t own,
                                          std::int64_t node_id, std::int64_t num_nodes) {
  if (num_nodes == 1) return {own};
  if (args->kv_get_callback == nullptr) fail_argument("num_nodes needs a key-value store");
  put_value(args, "devices of " + std::to_string(node_id), std::to_string(own));
  constexpr int kTimeoutMs = 5000;
  std::vector<std::int64_t> counts;
  for (std::int64_t node = 0; node < num_nodes; ++node) {
    counts.push_back(std::stoll(get_value(args, "devices of " + std::to_string(node), kTimeoutMs)));
  }
  return counts;
}

void make_devices(PJRT_Client& client, const std::vector<std::int64_t>& counts) {
  bool is_async = false;
  {
    const std::lock_guard lock(control().mutex);
    is_async = control().is_async;
  }
  for (std::size_t node = 0; node < counts.size(); ++node) {
    for (std::int64_t i = 0; i < counts[node]; ++i) {
      const auto id = static_cast<int>(client.owned.size());
      client.owned.push_back(std::make_unique<PJRT_Device>(id, static_cast<int>(node), is_async));
      PJRT_Device* const device = client.owned.back().get();
      client.devices.push_back(device);
      if (client.owns(device)) client.addressable_devices.push_back(device);
    }
  }
}

// The clients of several processes, which are of one here, have one place for all their devices.
std::shared_ptr<fake::Meetings> meetings_of(std::int64_t num_nodes) {
  static const auto shared = std::make_shared<fake::Meetings>();
  return num_nodes > 1 ? shared : std::make_shared<fake::Meetings>();
}

FAKE(PJRT_Client_Create) {
  std::int64_t num_devices = 1;
  std::int64_t node_id = 0;
  std::int64_t num_nodes = 1;
  auto client = std::make_unique<PJRT_Client>();
  for (std::size_t i = 0; i < args->num_options; ++i) {
    const PJRT_NamedValue& option = args->create_options[i];
    const std::string_view name(option.name, option.name_size);
    if (name == "cpu_device_count" && option.type == PJRT_NamedValue_kInt64) {
      num_devices = option.int64_value;
    } else if (name == "node_id" && option.type == PJRT_NamedValue_kInt64) {
      node_id = option.int64_value;
    } else if (name == "num_nodes" && option.type == PJRT_NamedValue_kInt64) {
      num_nodes = option.int64_value;
    } else if (name == "use_store" && option.type == PJRT_NamedValue_kBool) {
      if (option.bool_value) client->platform_version = use_store(args);
    } else if (name == "version" && option.type == PJRT_NamedValue_kString) {
      client->platform_version.assign(option.string_value, option.value_size);
    } else {
      fail_argument("unknown option " + std::string(name));
    }
  }
  client->process_index = static_cast<int>(node_id);
  client->meetings = meetings_of(num_nodes);
  make_devices(*client, devices_by_node(args, num_devices, node_id, num_nodes));
  args->client = client.release();
}

FAKE(PJRT_Client_Destroy) { delete args->client; }
FAKE(PJRT_Client_PlatformName) {
  static const std::string name = "fake";
  give_string(name, args->platform_name, args->platform_name_size);
}
FAKE(PJRT_Client_PlatformVersion) {
  give_string(args->client->platform_version, args->platform_version, args->platform_version_size);
}
FAKE(PJRT_Client_ProcessIndex) { args->process_index = args->client->process_index; }
FAKE(PJRT_Client_Devices) {
  args->devices = args->client->devices.data();
  args->num_devices = args->client->devices.size();
}
FAKE(PJRT_Client_AddressableDevices) {
  args->addressable_devices = args->client->addressable_devices.data();
  args->num_addressable_devices = args->client->addressable_devices.size();
}
FAKE(PJRT_Client_DefaultDeviceAssignment) {
  const int count = args->num_replicas * args->num_partitions;
  if (count > static_cast<int>(args->client->devices.size())) fail_argument("not enough devices");
  for (int i = 0; i < count; ++i) args->default_assignment[i] = i;
}

FAKE(PJRT_DeviceDescription_Id) { args->id = args->device_description->id; }
FAKE(PJRT_DeviceDescription_ProcessIndex) {
  args->process_index = args->device_description->process_index;
}
FAKE(PJRT_DeviceDescription_Attributes) {
  static const PJRT_NamedValue value = named_integer("num_cores", 2);
  args->attributes = &value;
  args->num_attributes = 1;
}
FAKE(PJRT_DeviceDescription_Kind) {
  static const std::string kind = "fake device";
  give_string(kind, args->device_kind, args->device_kind_size);
}
FAKE(PJRT_DeviceDescription_DebugString) {
  give_string(args->device_description->text, args->debug_string, args->debug_string_size);
}
FAKE(PJRT_DeviceDescription_ToString) {
  give_string(args->device_description->text, args->to_string, args->to_string_size);
}
FAKE(PJRT_Device_GetDescription) { args->device_description = &args->device->description; }
FAKE(PJRT_Device_LocalHardwareId) { args->local_hardware_id = args->device->description.id; }
FAKE(PJRT_Device_AddressableMemories) {
  args->memories = args->device->memories;
  args->num_memories = 1;
}
FAKE(PJRT_Device_DefaultMemory) { args->memory = &args->device->memory; }
FAKE(PJRT_Device_MemoryStats) {
  args->bytes_in_use = args->device->bytes_in_use;
  args->bytes_limit = std::int64_t{1} << 30;
  args->bytes_limit_is_set = true;
}
FAKE(PJRT_Memory_Kind) {
  static const std::string kind = "device";
  give_string(kind, args->kind, args->kind_size);
}

// ---- Buffers

PJRT_Buffer* new_buffer(PJRT_Device* device, fake::ArrayType type, std::shared_ptr<Storage> storage,
                        std::shared_ptr<Completion> ready) {
  auto buffer = std::make_unique<PJRT_Buffer>();
  buffer->device = device;
  buffer->type = std::move(type);
  buffer->storage = std::move(storage);
  buffer->ready = std::move(ready);
  return buffer.release();
}

std::size_t dense_size(const fake::ArrayType& type) { return fake::size_bytes(type); }

// Copies the array at `from` with the given strides to the dense array at `to`.
void copy_strided(const fake::ArrayType& type, const std::int64_t* byte_strides, const char* from,
                  char* to) {
  const int element_size = fake::info_of(type.type).size_bytes;
  std::vector<std::int64_t> index(type.dims.size(), 0);
  for (std::int64_t n = type.num_elements(); n > 0; --n) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < index.size(); ++d) offset += index[d] * byte_strides[d];
    to = std::copy_n(from + offset, element_size, to);
    for (std::size_t d = index.size(); d-- > 0;) {
      if (++index[d] < type.dims[d]) break;
      index[d] = 0;
    }
  }
}

FAKE(PJRT_Client_BufferFromHostBuffer) {
  const fake::ArrayType type{args->type, {args->dims, args->dims + args->num_dims}};
  if (!args->client->owns(args->device)) fail_argument("a device of another process");
  const bool may_alias =
      args->host_buffer_semantics == PJRT_HostBufferSemantics_kImmutableZeroCopy ||
      args->host_buffer_semantics == PJRT_HostBufferSemantics_kMutableZeroCopy;
  const auto transferred = std::make_shared<Completion>();
  std::shared_ptr<Storage> storage;
  std::atomic<std::int64_t>& counter = args->device->bytes_in_use;
  if (may_alias && args->num_byte_strides == 0) {
    storage = std::make_shared<Storage>(counter, const_cast<void*>(args->data),
                                        [transferred] { transferred->complete(std::nullopt); });
  } else {
    storage = std::make_shared<Storage>(counter, dense_size(type));
    const auto* from = static_cast<const char*>(args->data);
    if (args->num_byte_strides == 0) {
      std::copy_n(from, dense_size(type), storage->data);
    } else {
      copy_strided(type, args->byte_strides, from, storage->data);
    }
    transferred->complete(std::nullopt);
  }
  args->buffer = new_buffer(args->device, type, std::move(storage), fake::completed());
  args->done_with_host_buffer = new PJRT_Event(transferred);
}

FAKE(PJRT_Client_CreateViewOfDeviceBuffer) {
  const fake::ArrayType type{args->element_type, {args->dims, args->dims + args->num_dims}};
  const auto release = [callback = args->on_delete_callback, data = args->device_buffer_ptr,
                        user_arg = args->on_delete_callback_arg] {
    if (callback != nullptr) callback(data, user_arg);
  };
  auto storage =
      std::make_shared<Storage>(args->device->bytes_in_use, args->device_buffer_ptr, release);
  args->buffer = new_buffer(args->device, type, std::move(storage), fake::completed());
}

FAKE(PJRT_Buffer_Destroy) {
  args->buffer->wait_taken();
  delete args->buffer;
}
FAKE(PJRT_Buffer_ElementType) { args->type = args->buffer->type.type; }
FAKE(PJRT_Buffer_Dimensions) {
  args->dims = args->buffer->type.dims.data();
  args->num_dims = args->buffer->type.dims.size();
}
FAKE(PJRT_Buffer_OnDeviceSizeInBytes) {
  args->on_device_size_in_bytes = dense_size(args->buffer->type);
}
FAKE(PJRT_Buffer_Device) { args->device = args->buffer->device; }
FAKE(PJRT_Buffer_IsOnCpu) { args->is_on_cpu = true; }
FAKE(PJRT_Buffer_Delete) { args->buffer->drop(); }
FAKE(PJRT_Buffer_IsDeleted) {
  const std::lock_guard lock(args->buffer->mutex);
  args->is_deleted = args->buffer->storage == nullptr;
}
FAKE(PJRT_Buffer_ReadyEvent) {
  args->buffer->live_storage();
  args->event = new PJRT_Event(args->buffer->ready);
}
FAKE(PJRT_Buffer_UnsafePointer) {
  args->buffer_pointer = reinterpret_cast<std::uintptr_t>(args->buffer->live_storage()->data);
}
FAKE(PJRT_Buffer_OpaqueDeviceMemoryDataPointer) {
  args->device_memory_ptr = args->buffer->live_storage()->data;
}
FAKE(PJRT_Buffer_IncreaseExternalReferenceCount) {
  const std::lock_guard lock(args->buffer->mutex);
  ++args->buffer->external_references;
}
FAKE(PJRT_Buffer_DecreaseExternalReferenceCount) {
  const std::lock_guard lock(args->buffer->mutex);
  if (args->buffer->external_references == 0) fail_argument("no external reference");
  --args->buffer->external_references;
}

FAKE(PJRT_Buffer_ToHostBuffer) {
  PJRT_Buffer* buffer = args->src;
  const std::size_t size = dense_size(buffer->type);
  if (args->dst == nullptr) {
    args->dst_size = size;
    return;
  }
  if (args->dst_size < size) fail_argument("dst_size is too small");
  const std::shared_ptr<Storage> storage = buffer->live_storage();
  const auto done = std::make_shared<Completion>();
  args->event = new PJRT_Event(done);
  const auto copy = [done, size, storage, ready = buffer->ready,
                     dst = static_cast<char*>(args->dst)] {
    std::optional<Status> error = control().enter("Transfer");
    if (!error) error = ready->wait();
    if (!error) std::copy_n(storage->data, size, dst);
    done->complete(error);
  };
  buffer->device->stream.add(copy);
}

FAKE(PJRT_Buffer_CopyToDevice) {
  PJRT_Buffer* from = args->buffer;
  const auto source = from->live_storage();
  const auto target =
      std::make_shared<Storage>(args->dst_device->bytes_in_use, dense_size(from->type));
  const auto done = std::make_shared<Completion>();
  args->dst_buffer = new_buffer(args->dst_device, from->type, target, done);
  args->dst_device->stream.add([source, target, done, ready = from->ready] {
    const std::optional<Status> error = ready->wait();
    if (!error) std::copy_n(source->data, target->own.size(), target->data);
    done->complete(error);
  });
}

// ---- Executables

PJRT_LoadedExecutable* new_executable(PJRT_Client* client, std::string text, std::string options) {
  auto executable = std::make_unique<PJRT_LoadedExecutable>();
  executable->client = client;
  executable->program = std::make_shared<fake::Program>(std::move(text));
  executable->options = fake::parse_compile_options(options);
  executable->serialized_options = std::move(options);
  std::vector<int> ids = executable->options.device_assignment;
  const auto count = static_cast<std::size_t>(executable->options.num_devices());
  for (int id = 0; ids.size() < count; ++id) ids.push_back(id);
  if (executable->options.is_portable && count != 1) fail_argument("portable, for many devices");
  for (const int id : ids) {
    if (id < 0 || id >= static_cast<int>(client->devices.size())) {
      fail_argument("the program is for device " + std::to_string(id) + ", which does not exist");
    }
    executable->devices.push_back(client->devices[id]);
    if (client->owns(client->devices[id])) {
      executable->addressable_devices.push_back(client->devices[id]);
    }
  }
  return executable.release();
}

FAKE(PJRT_Client_Compile) {
  if (std::string_view(args->program->format, args->program->format_size) != "mlir") {
    fail_argument("unknown program format");
  }
  args->executable =
      new_executable(args->client, std::string(args->program->code, args->program->code_size),
                     std::string(args->compile_options, args->compile_options_size));
  const std::lock_guard lock(control().mutex);
  for (const std::string& flag : args->executable->options.flags) ++control().calls[flag];
}

FAKE(PJRT_LoadedExecutable_Destroy) { delete args->executable; }
FAKE(PJRT_LoadedExecutable_AddressableDevices) {
  const std::vector<PJRT_Device*>& devices = args->executable->addressable_devices;
  args->addressable_devices = devices.data();
  args->num_addressable_devices = args->executable->options.is_portable ? 0 : devices.size();
}

FAKE(PJRT_LoadedExecutable_GetExecutable) {
  auto executable = std::make_unique<PJRT_Executable>();
  executable->program = args->loaded_executable->program;
  executable->options = args->loaded_executable->options;
  executable->serialized_options = args->loaded_executable->serialized_options;
  executable->fingerprint = std::to_string(
      std::hash<std::string>()(executable->program->text() + executable->serialized_options));
  for (std::size_t i = 0; i < executable->program->results().size(); ++i) {
    const fake::ArrayType type = executable->result_part(i, 0).type;
    executable->output_types.push_back(type.type);
    executable->output_ranks.push_back(type.dims.size());
    executable->output_dims.insert(executable->output_dims.end(), type.dims.begin(),
                                   type.dims.end());
  }
  executable->cost[0] =
      named_integer("operations", static_cast<std::int64_t>(executable->program->num_operations()));
  args->executable = executable.release();
}

FAKE(PJRT_Executable_Destroy) { delete args->executable; }
FAKE(PJRT_Executable_Name) {
  static const std::string name = "main";
  give_string(name, args->executable_name, args->executable_name_size);
}
FAKE(PJRT_Executable_NumReplicas) {
  args->num_replicas = static_cast<std::size_t>(args->executable->options.num_replicas);
}
FAKE(PJRT_Executable_NumPartitions) {
  args->num_partitions = static_cast<std::size_t>(args->executable->options.num_partitions);
}
FAKE(PJRT_Executable_NumOutputs) {
  args->num_outputs = args->executable->program->results().size();
}
FAKE(PJRT_Executable_OutputElementTypes) {
  args->output_types = args->executable->output_types.data();
  args->num_output_types = args->executable->output_types.size();
}
FAKE(PJRT_Executable_OutputDimensions) {
  args->num_outputs = args->executable->output_ranks.size();
  args->dims = args->executable->output_dims.data();
  args->dim_sizes = args->executable->output_ranks.data();
}
FAKE(PJRT_Executable_GetCostAnalysis) {
  args->properties = args->executable->cost;
  args->num_properties = 1;
}
FAKE(PJRT_Executable_Fingerprint) {
  give_string(args->executable->fingerprint, args->executable_fingerprint,
              args->executable_fingerprint_size);
}
FAKE(PJRT_Executable_GetCompiledMemoryStats) {
  const PJRT_Executable& executable = *args->executable;
  for (std::size_t i = 0; i < executable.program->parameters().size(); ++i) {
    const auto size = static_cast<std::int64_t>(dense_size(executable.parameter_part(i, 0).type));
    args->argument_size_in_bytes += size;
    if (executable.program->donates(i)) args->alias_size_in_bytes += size;
  }
  for (std::size_t i = 0; i < executable.program->results().size(); ++i) {
    args->output_size_in_bytes +=
        static_cast<std::int64_t>(dense_size(executable.result_part(i, 0).type));
  }
}
FAKE(PJRT_Executable_OptimizedProgram) {
  static const std::string format = "mlir";
  const std::string& text = args->executable->program->text();
  give_string(format, args->program->format, args->program->format_size);
  args->program->code_size = text.size();
  if (args->program->code != nullptr) std::copy(text.begin(), text.end(), args->program->code);
}
FAKE(PJRT_Executable_Serialize) {
  const std::string& options = args->executable->serialized_options;
  auto* serialized = new PJRT_SerializedExecutable{"fake:" + std::to_string(options.size()) + ":" +
                                                   options + args->executable->program->text()};
  give_string(serialized->bytes, args->serialized_bytes, args->serialized_bytes_size);
  args->serialized_executable = serialized;
  args->serialized_executable_deleter = [](PJRT_SerializedExecutable* owned) { delete owned; };
}
FAKE(PJRT_Executable_DeserializeAndLoad) {
  const std::string_view bytes(args->serialized_executable, args->serialized_executable_size);
  if (!bytes.starts_with("fake:")) fail_argument("not an executable of this plugin");
  const std::size_t colon = bytes.find(':', 5);
  const std::size_t size = std::stoul(std::string(bytes.substr(5, colon - 5)));
  std::string options(bytes.substr(colon + 1, size));
  if (args->overridden_serialized_compile_options_size != 0) {
    options.assign(args->overridden_serialized_compile_options,
                   args->overridden_serialized_compile_options_size);
  }
  args->loaded_executable =
      new_executable(args->client, std::string(bytes.substr(colon + 1 + size)), options);
}

// The rows of a launch: the device, or the executable's own.
std::vector<PJRT_Device*> devices_of(const PJRT_LoadedExecutable_Execute_Args& args) {
  const PJRT_LoadedExecutable& executable = *args.executable;
  const std::vector<PJRT_Device*>& own = executable.addressable_devices;
  if (args.execute_device == nullptr) {
    if (own.size() != args.num_devices) fail_argument("wrong number of devices");
    return own;
  }
  if (args.num_devices != 1) fail_argument("execute_device is for a single row of arguments");
  const bool may_run =
      executable.options.is_portable || std::ranges::find(own, args.execute_device) != own.end();
  if (!may_run) fail_argument("the executable was compiled for another device");
  return {args.execute_device};
}

FAKE(PJRT_LoadedExecutable_Execute) {
  const PJRT_LoadedExecutable& executable = *args->executable;
  const std::size_t num_results = executable.program->results().size();
  if (args->num_args != executable.program->parameters().size()) {
    fail_argument("wrong number of arguments");
  }
  const PJRT_ExecuteOptions& options = *args->options;
  const std::int64_t* indices = options.non_donatable_input_indices;
  const std::set<std::int64_t> non_donatable(indices,
                                             indices + options.num_non_donatable_input_indices);
  std::vector<std::shared_ptr<fake::Launch>> launches;
  for (PJRT_Device* device : devices_of(*args)) {
    launches.push_back(std::make_shared<fake::Launch>(executable, device, options.launch_id));
    launches.back()->take_arguments(args->argument_lists[launches.size() - 1], non_donatable);
  }
  if (const std::optional<Status> failure = control().enter("Allocation")) {
    for (const auto& launch : launches) launch->begun->complete(failure);
    throw *failure;
  }
  for (std::size_t d = 0; d < launches.size(); ++d) {
    fake::Launch& launch = *launches[d];
    launch.allocate_outputs();
    for (std::size_t i = 0; i < num_results; ++i) {
      args->output_lists[d][i] =
          new_buffer(launch.device, launch.output_type(i), launch.outputs[i], launch.done);
    }
    if (args->device_complete_events != nullptr) {
      args->device_complete_events[d] = new PJRT_Event(launch.done);
    }
  }
  fake::start(launches);
}

// ---- The table of functions

#define FAKE_FILL(function) api.function = &fake_##function

void fill_platform(PJRT_Api& api) {
  api.struct_size = PJRT_Api_STRUCT_SIZE;
  api.pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
  api.pjrt_api_version.major_version = PJRT_API_MAJOR;
  api.pjrt_api_version.minor_version = PJRT_API_MINOR;
  api.extension_start = fake::profiler_extension();
  api.PJRT_Error_Destroy = &error_destroy;
  api.PJRT_Error_Message = &error_message;
  api.PJRT_Error_GetCode = &error_code;
  FAKE_FILL(PJRT_Plugin_Initialize);
  FAKE_FILL(PJRT_Plugin_Attributes);
  FAKE_FILL(PJRT_Event_Destroy);
  FAKE_FILL(PJRT_Event_IsReady);
  FAKE_FILL(PJRT_Event_Await);
  FAKE_FILL(PJRT_Event_OnReady);
  FAKE_FILL(PJRT_Client_Create);
  FAKE_FILL(PJRT_Client_Destroy);
  FAKE_FILL(PJRT_Client_PlatformName);
  FAKE_FILL(PJRT_Client_PlatformVersion);
  FAKE_FILL(PJRT_Client_ProcessIndex);
  FAKE_FILL(PJRT_Client_Devices);
  FAKE_FILL(PJRT_Client_AddressableDevices);
  FAKE_FILL(PJRT_Client_DefaultDeviceAssignment);
  FAKE_FILL(PJRT_Client_Compile);
  FAKE_FILL(PJRT_Client_BufferFromHostBuffer);
  FAKE_FILL(PJRT_Client_CreateViewOfDeviceBuffer);
  FAKE_FILL(PJRT_DeviceDescription_Id);
  FAKE_FILL(PJRT_DeviceDescription_ProcessIndex);
  FAKE_FILL(PJRT_DeviceDescription_Attributes);
  FAKE_FILL(PJRT_DeviceDescription_Kind);
  FAKE_FILL(PJRT_DeviceDescription_DebugString);
  FAKE_FILL(PJRT_DeviceDescription_ToString);
  FAKE_FILL(PJRT_Device_GetDescription);
  FAKE_FILL(PJRT_Device_LocalHardwareId);
  FAKE_FILL(PJRT_Device_AddressableMemories);
  FAKE_FILL(PJRT_Device_DefaultMemory);
  FAKE_FILL(PJRT_Device_MemoryStats);
  FAKE_FILL(PJRT_Memory_Kind);
}

void fill_buffers_and_executables(PJRT_Api& api) {
  FAKE_FILL(PJRT_Buffer_Destroy);
  FAKE_FILL(PJRT_Buffer_ElementType);
  FAKE_FILL(PJRT_Buffer_Dimensions);
  FAKE_FILL(PJRT_Buffer_OnDeviceSizeInBytes);
  FAKE_FILL(PJRT_Buffer_Device);
  FAKE_FILL(PJRT_Buffer_IsOnCpu);
  FAKE_FILL(PJRT_Buffer_Delete);
  FAKE_FILL(PJRT_Buffer_IsDeleted);
  FAKE_FILL(PJRT_Buffer_ReadyEvent);
  FAKE_FILL(PJRT_Buffer_UnsafePointer);
  FAKE_FILL(PJRT_Buffer_OpaqueDeviceMemoryDataPointer);
  FAKE_FILL(PJRT_Buffer_IncreaseExternalReferenceCount);
  FAKE_FILL(PJRT_Buffer_DecreaseExternalReferenceCount);
  FAKE_FILL(PJRT_Buffer_ToHostBuffer);
  FAKE_FILL(PJRT_Buffer_CopyToDevice);
  FAKE_FILL(PJRT_LoadedExecutable_Destroy);
  FAKE_FILL(PJRT_LoadedExecutable_AddressableDevices);
  FAKE_FILL(PJRT_LoadedExecutable_GetExecutable);
  FAKE_FILL(PJRT_LoadedExecutable_Execute);
  FAKE_FILL(PJRT_Executable_Destroy);
  FAKE_FILL(PJRT_Executable_Name);
  FAKE_FILL(PJRT_Executable_NumReplicas);
  FAKE_FILL(PJRT_Executable_NumPartitions);
  FAKE_FILL(PJRT_Executable_NumOutputs);
  FAKE_FILL(PJRT_Executable_OutputElementTypes);
  FAKE_FILL(PJRT_Executable_OutputDimensions);
  FAKE_FILL(PJRT_Executable_GetCostAnalysis);
  FAKE_FILL(PJRT_Executable_Fingerprint);
  FAKE_FILL(PJRT_Executable_GetCompiledMemoryStats);
  FAKE_FILL(PJRT_Executable_OptimizedProgram);
  FAKE_FILL(PJRT_Executable_Serialize);
  FAKE_FILL(PJRT_Executable_DeserializeAndLoad);
}

#undef FAKE_FILL

PJRT_Api& fake_api() {
  static PJRT_Api& api = *[] {
    auto* made = new PJRT_Api{};
    fill_platform(*made);
    fill_buffers_and_executables(*made);
    return made;
  }();
  return api;
}

}  // namespace

FAKE_EXPORT const PJRT_Api* GetPjrtApi() { return &fake_api(); }

FAKE_EXPORT void fake_plugin_fail(const char* call, int code, const char* message) {
  const std::lock_guard lock(control().mutex);
  control().failures.erase(call);
  if (code != 0) control().failures[call] = {static_cast<PJRT_Error_Code>(code), message};
}

FAKE_EXPORT void fake_plugin_hang(const char* call, int num_passing) {
  {
    const std::lock_guard lock(control().mutex);
    control().hanging[call] = num_passing;
  }
  control().changed.notify_all();
}

FAKE_EXPORT void fake_plugin_release() {
  {
    const std::lock_guard lock(control().mutex);
    control().hanging.clear();
    ++control().releases;
  }
  control().changed.notify_all();
}

FAKE_EXPORT void fake_plugin_let_mismatches_pass(int pass) {
  const std::lock_guard lock(control().mutex);
  control().mismatches_pass = pass != 0;
}

FAKE_EXPORT int fake_plugin_waiting(const char* call) {
  const std::lock_guard lock(control().mutex);
  return control().waiting[call];
}

FAKE_EXPORT int fake_plugin_calls(const char* call) {
  const std::lock_guard lock(control().mutex);
  return control().calls[call];
}

FAKE_EXPORT void fake_plugin_set_async(int is_async) {
  const std::lock_guard lock(control().mutex);
  control().is_async = is_async != 0;
}

FAKE_EXPORT void fake_plugin_set_version(int major_version, int minor_version) {
  fake_api().pjrt_api_version.major_version = major_version;
  fake_api().pjrt_api_version.minor_version = minor_version;
}

FAKE_EXPORT void fake_plugin_set_struct_size(std::size_t size) {
  fake_api().struct_size = size != 0 ? size : std::size_t{PJRT_Api_STRUCT_SIZE};
}

FAKE_EXPORT int fake_plugin_live(const char* kind) {
  const std::lock_guard lock(control().mutex);
  return control().live[kind];
}

FAKE_EXPORT void fake_plugin_reset() {
  fake_plugin_release();
  // Threads of a test that still runs read the table: it is written where a test has changed it.
  if (fake_api().struct_size != PJRT_Api_STRUCT_SIZE) fake_plugin_set_struct_size(0);
  const PJRT_Api_Version& version = fake_api().pjrt_api_version;
  if (version.major_version != PJRT_API_MAJOR || version.minor_version != PJRT_API_MINOR) {
    fake_plugin_set_version(PJRT_API_MAJOR, PJRT_API_MINOR);
  }
  const std::lock_guard lock(control().mutex);
  control().failures.clear();
  control().calls.clear();
  control().is_async = false;
  control().mismatches_pass = false;
}

// Starting a client, compiling with it, and moving host memory to its devices.
#include "pjrt/client.h"

#include <utility>

#include "pjrt/api.h"
#include "pjrt/key_value_callbacks.h"
#include "pjrt/live_objects.h"

namespace torch_xla::pjrt {
namespace {

// Empty arrays may come with a null pointer, which some plugins refuse.
constexpr char kNoData[1] = {};

PJRT_HostBufferSemantics to_c(HostBufferSemantics semantics) {
  switch (semantics) {
    case HostBufferSemantics::kImmutableOnlyDuringCall:
      return PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
    case HostBufferSemantics::kImmutableUntilTransferCompletes:
      return PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
    case HostBufferSemantics::kImmutableZeroCopy:
      return PJRT_HostBufferSemantics_kImmutableZeroCopy;
    case HostBufferSemantics::kMutableZeroCopy: return PJRT_HostBufferSemantics_kMutableZeroCopy;
  }
  return PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
}

}  // namespace

Client::Client(std::shared_ptr<const Plugin> plugin, std::unique_ptr<KeyValueStore> store)
    : plugin_(std::move(plugin)), store_(std::move(store)) {}

std::shared_ptr<Client> Client::create(std::shared_ptr<const Plugin> plugin,
                                       const NamedValues& options,
                                       std::optional<KeyValueStore> store) {
  std::unique_ptr<KeyValueStore> owned_store;
  if (store) owned_store = std::make_unique<KeyValueStore>(std::move(*store));
  std::shared_ptr<Client> client(new Client(std::move(plugin), std::move(owned_store)));
  client->start(options);
  return client;
}

void Client::start(const NamedValues& options) {
  const std::vector<PJRT_NamedValue> c_options = to_named_values(options);
  auto args = PJRT_MAKE(PJRT_Client_Create_Args);
  args.create_options = c_options.data();
  args.num_options = c_options.size();
  if (store_ != nullptr) set_key_value_callbacks(*store_, args);
  PJRT_CALL(api(), PJRT_Client_Create, args);
  client_ = args.client;
  live_counters().clients.fetch_add(1, std::memory_order_relaxed);
  list_devices();
}

void Client::list_devices() {
  auto addressable = PJRT_MAKE(PJRT_Client_AddressableDevices_Args);
  addressable.client = client_;
  PJRT_CALL(api(), PJRT_Client_AddressableDevices, addressable);
  const std::span local(addressable.addressable_devices, addressable.num_addressable_devices);
  for (PJRT_Device* device : local) {
    owned_devices_.push_back(std::make_unique<Device>(*this, device, true));
    addressable_devices_.push_back(owned_devices_.back().get());
  }
  auto all = PJRT_MAKE(PJRT_Client_Devices_Args);
  all.client = client_;
  PJRT_CALL(api(), PJRT_Client_Devices, all);
  for (PJRT_Device* device : std::span(all.devices, all.num_devices)) {
    Device* known = find_device(device);
    if (known == nullptr) {
      owned_devices_.push_back(std::make_unique<Device>(*this, device, false));
      known = owned_devices_.back().get();
    }
    devices_.push_back(known);
  }
}

Client::~Client() {
  if (client_ == nullptr) return;
  auto args = PJRT_MAKE(PJRT_Client_Destroy_Args);
  args.client = client_;
  PJRT_CALL_NOEXCEPT(api(), PJRT_Client_Destroy, args);
  live_counters().clients.fetch_sub(1, std::memory_order_relaxed);
}

std::string Client::platform_name() const {
  auto args = PJRT_MAKE(PJRT_Client_PlatformName_Args);
  args.client = client_;
  PJRT_CALL(api(), PJRT_Client_PlatformName, args);
  return std::string(args.platform_name, args.platform_name_size);
}

std::string Client::platform_version() const {
  auto args = PJRT_MAKE(PJRT_Client_PlatformVersion_Args);
  args.client = client_;
  PJRT_CALL(api(), PJRT_Client_PlatformVersion, args);
  return std::string(args.platform_version, args.platform_version_size);
}

int Client::process_index() const {
  auto args = PJRT_MAKE(PJRT_Client_ProcessIndex_Args);
  args.client = client_;
  PJRT_CALL(api(), PJRT_Client_ProcessIndex, args);
  return args.process_index;
}

Device* Client::lookup_device(int id) const {
  for (Device* device : devices_) {
    if (device->id() == id) return device;
  }
  std::string ids;
  for (const Device* device : devices_) ids += base::str(ids.empty() ? "" : ", ", device->id());
  base::fail(base::ErrorKind::kInvalidArgument, "there is no device with id ", id,
             "; the devices of platform ", platform_name(), " are ", ids);
}

Device* Client::find_device(PJRT_Device* device) const {
  for (const auto& known : owned_devices_) {
    if (known->c_device() == device) return known.get();
  }
  return nullptr;
}

std::vector<int> Client::default_device_assignment(int num_replicas, int num_partitions) const {
  std::vector<int> assignment(static_cast<std::size_t>(num_replicas) * num_partitions);
  auto args = PJRT_MAKE(PJRT_Client_DefaultDeviceAssignment_Args);
  args.client = client_;
  args.num_replicas = num_replicas;
  args.num_partitions = num_partitions;
  args.default_assignment_size = assignment.size();
  args.default_assignment = assignment.data();
  PJRT_CALL(api(), PJRT_Client_DefaultDeviceAssignment, args);
  return assignment;
}

std::unique_ptr<Executable> Client::compile(std::string_view program,
                                            const CompileOptions& options) {
  constexpr std::string_view kFormat = "mlir";
  const std::string serialized_options = options.serialize();
  auto c_program = PJRT_MAKE(PJRT_Program);
  // Only read here; the field is not const because it is an output elsewhere.
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast)
  c_program.code = const_cast<char*>(program.data());
  c_program.code_size = program.size();
  c_program.format = kFormat.data();
  c_program.format_size = kFormat.size();
  auto args = PJRT_MAKE(PJRT_Client_Compile_Args);
  args.client = client_;
  args.program = &c_program;
  args.compile_options = serialized_options.data();
  args.compile_options_size = serialized_options.size();
  PJRT_CALL(api(), PJRT_Client_Compile, args);
  return std::make_unique<Executable>(shared_from_this(), args.executable);
}

std::unique_ptr<Executable> Client::deserialize(std::string_view serialized,
                                                const std::optional<CompileOptions>& options) {
  const std::string serialized_options = options ? options->serialize() : std::string();
  auto args = PJRT_MAKE(PJRT_Executable_DeserializeAndLoad_Args);
  args.client = client_;
  args.serialized_executable = serialized.data();
  args.serialized_executable_size = serialized.size();
  if (options) {
    args.overridden_serialized_compile_options = serialized_options.data();
    args.overridden_serialized_compile_options_size = serialized_options.size();
  }
  PJRT_CALL(api(), PJRT_Executable_DeserializeAndLoad, args);
  return std::make_unique<Executable>(shared_from_this(), args.loaded_executable);
}

Buffer Client::buffer_from_host_buffer(const void* data, base::DType dtype,
                                       std::span<const std::int64_t> dims,
                                       std::span<const std::int64_t> byte_strides, Device* device,
                                       HostBufferSemantics semantics, std::function<void()> done) {
  auto args = PJRT_MAKE(PJRT_Client_BufferFromHostBuffer_Args);
  args.client = client_;
  args.data = data != nullptr ? data : kNoData;
  args.type = to_buffer_type(dtype);
  args.dims = dims.data();
  args.num_dims = dims.size();
  args.byte_strides = byte_strides.data();
  args.num_byte_strides = byte_strides.size();
  args.host_buffer_semantics = to_c(semantics);
  args.device = device->c_device();
  try {
    PJRT_CALL(api(), PJRT_Client_BufferFromHostBuffer, args);
  } catch (...) {
    if (done) done();
    throw;
  }
  Buffer buffer(shared_from_this(), args.buffer);
  const Event transferred(api(), args.done_with_host_buffer, "PJRT_Client_BufferFromHostBuffer");
  if (!done) return buffer;
  if (semantics == HostBufferSemantics::kImmutableOnlyDuringCall) {
    done();
  } else {
    // A failed transfer shows in the buffer.
    transferred.on_ready([done = std::move(done)](const std::optional<Error>&) { done(); });
  }
  return buffer;
}

Buffer Client::create_view_of_device_buffer(void* data, base::DType dtype,
                                            std::span<const std::int64_t> dims, Device* device,
                                            std::function<void()> on_delete, std::intptr_t stream) {
  using Callback = std::function<void()>;
  auto callback = std::make_unique<Callback>(std::move(on_delete));
  auto args = PJRT_MAKE(PJRT_Client_CreateViewOfDeviceBuffer_Args);
  args.client = client_;
  args.device_buffer_ptr = data;
  args.dims = dims.data();
  args.num_dims = dims.size();
  args.element_type = to_buffer_type(dtype);
  args.device = device->c_device();
  args.stream = stream;
  args.on_delete_callback_arg = callback.get();
  args.on_delete_callback = [](void* /*device_buffer_ptr*/, void* user_arg) noexcept {
    const std::unique_ptr<Callback> owned(static_cast<Callback*>(user_arg));
    if (*owned) (*owned)();
  };
  PJRT_CALL(api(), PJRT_Client_CreateViewOfDeviceBuffer, args);
  static_cast<void>(callback.release());  // it frees itself after running
  return Buffer(shared_from_this(), args.buffer);
}

}  // namespace torch_xla::pjrt

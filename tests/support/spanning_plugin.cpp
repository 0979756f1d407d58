// A PJRT plugin whose collectives cross processes, for tests: the CPU's, which SPANNING_PLUGIN_OF
// names, one device of which each process has. As a plugin for NVIDIA's devices it takes
// `num_nodes` and `node_id`, or as libtpu reads the variables that say the same; it has all
// processes' devices, and programs of several replicas. Their collectives become calls of the host
// here, which exchange by the key-value store of the client.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "fake_compile_options.h"
#include "pjrt/ffi_extension.h"
#include "pjrt_c_api.h"
#include "xla/ffi/api/c_api.h"

namespace {

[[noreturn]] void die(const std::string& why) {
  std::fprintf(stderr, "spanning plugin: %s\n", why.c_str());
  std::abort();
}

// ---- The plugin behind this one, and the job

const PJRT_Api* real() {
  static const PJRT_Api* const api = [] {
    const char* const path = std::getenv("SPANNING_PLUGIN_OF");
    void* const library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) die("SPANNING_PLUGIN_OF must be the path of a plugin");
    return reinterpret_cast<const PJRT_Api* (*)()>(dlsym(library, "GetPjrtApi"))();
  }();
  return api;
}

// A device of another process; its address is all that the plugin behind never sees.
struct Elsewhere {
  int node = 0;
};

struct Job {
  std::int64_t num_nodes = 1;
  std::int64_t node = 0;
  PJRT_Client_Create_Args store = {};  // its callbacks
  PJRT_Device* device = nullptr;
  PJRT_DeviceDescription* description = nullptr;
  std::vector<std::unique_ptr<Elsewhere>> elsewhere;
  std::vector<PJRT_Device*> devices;
};

Job& job() {
  static auto* const instance = new Job();
  return *instance;
}

// The process of a device or description, of another one; nothing for this one's.
std::optional<int> node_elsewhere(const void* pointer) {
  for (const auto& device : job().elsewhere) {
    if (device.get() == pointer) return device->node;
  }
  return std::nullopt;
}

// ---- The store

PJRT_Error* told_error(PJRT_Error_Code, const char* message, std::size_t size) {
  return reinterpret_cast<PJRT_Error*>(new std::string(message, size));
}

void must_work(PJRT_Error* error) {
  if (error == nullptr) return;
  const std::unique_ptr<std::string> message(reinterpret_cast<std::string*>(error));
  throw std::runtime_error(*message);
}

void put(const std::string& key, std::string_view value) {
  PJRT_CallbackError make_error = &told_error;
  PJRT_KeyValuePutCallback_Args args = {};
  args.struct_size = PJRT_KeyValuePutCallback_Args_STRUCT_SIZE;
  args.key = key.data();
  args.key_size = key.size();
  args.value = value.data();
  args.value_size = value.size();
  args.callback_error = &make_error;
  args.user_arg = job().store.kv_put_user_arg;
  must_work(job().store.kv_put_callback(&args));
}

std::string get(const std::string& key) {
  constexpr int kTimeoutMs = 60'000;
  PJRT_CallbackError make_error = &told_error;
  PJRT_KeyValueGetCallback_Args args = {};
  args.struct_size = PJRT_KeyValueGetCallback_Args_STRUCT_SIZE;
  args.key = key.data();
  args.key_size = key.size();
  args.timeout_in_ms = kTimeoutMs;
  args.callback_error = &make_error;
  args.user_arg = job().store.kv_get_user_arg;
  must_work(job().store.kv_get_callback(&args));
  std::string value(args.value, args.value_size);
  args.value_deleter_callback(args.value);
  return value;
}

// c10d's store takes values of less than 8 MB.
constexpr std::size_t kMostAtOnce = 4 << 20;

void put_all(const std::string& key, std::string_view value) {
  for (std::size_t part = 0; part * kMostAtOnce < value.size(); ++part) {
    put(key + "/" + std::to_string(part), value.substr(part * kMostAtOnce, kMostAtOnce));
  }
}

std::string get_all(const std::string& key, std::size_t size) {
  std::string value;
  for (std::size_t part = 0; value.size() < size; ++part) {
    value += get(key + "/" + std::to_string(part));
  }
  return value;
}

// ---- One collective of a program

struct Collective {
  std::string op;                      // "all_reduce"
  std::string reduction;               // "add"
  std::vector<std::vector<int>> rows;  // of replicas: groups, or pairs of source and target
  std::vector<int> ranks;              // of all replicas
};

std::mutex& collectives_mutex() {
  static auto* const mutex = new std::mutex();
  return *mutex;
}
std::map<std::string, std::shared_ptr<Collective>>& collectives() {
  static auto* const all = new std::map<std::string, std::shared_ptr<Collective>>();
  return *all;
}

template <typename T>
T reduced(const std::string& reduction, T a, T b) {
  if (reduction == "add") return static_cast<T>(a + b);
  if (reduction == "multiply") return static_cast<T>(a * b);
  if (reduction == "minimum") return std::min(a, b);
  if (reduction == "maximum") return std::max(a, b);
  throw std::runtime_error("no library reduces by " + reduction);
}

template <typename T>
void reduce_as(const std::string& reduction, std::string& into, const std::string& other) {
  for (std::size_t at = 0; at < into.size(); at += sizeof(T)) {
    T a;
    T b;
    std::memcpy(&a, into.data() + at, sizeof(T));
    std::memcpy(&b, other.data() + at, sizeof(T));
    a = reduced(reduction, a, b);
    std::memcpy(into.data() + at, &a, sizeof(T));
  }
}

// The upper half of a float.
struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) {
    std::uint32_t whole = 0;
    std::memcpy(&whole, &value, sizeof(whole));
    bits = static_cast<std::uint16_t>((whole + 0x7fff + (whole >> 16 & 1)) >> 16);
  }
  operator float() const {
    const std::uint32_t whole = std::uint32_t{bits} << 16;
    float value = 0;
    std::memcpy(&value, &whole, sizeof(value));
    return value;
  }
};

std::size_t size_of(XLA_FFI_DataType type) {
  switch (type) {
    case XLA_FFI_DataType_PRED:
    case XLA_FFI_DataType_S8:
    case XLA_FFI_DataType_U8: return 1;
    case XLA_FFI_DataType_F16:
    case XLA_FFI_DataType_BF16: return 2;
    case XLA_FFI_DataType_S32:
    case XLA_FFI_DataType_U32:
    case XLA_FFI_DataType_F32: return 4;
    case XLA_FFI_DataType_S64:
    case XLA_FFI_DataType_U64:
    case XLA_FFI_DataType_F64: return 8;
    default: throw std::runtime_error("no library exchanges type " + std::to_string(type));
  }
}

void reduce(XLA_FFI_DataType type, const std::string& reduction, std::string& into,
            const std::string& other) {
  switch (type) {
    case XLA_FFI_DataType_F32: return reduce_as<float>(reduction, into, other);
    case XLA_FFI_DataType_F64: return reduce_as<double>(reduction, into, other);
    case XLA_FFI_DataType_F16: return reduce_as<_Float16>(reduction, into, other);
    case XLA_FFI_DataType_BF16: return reduce_as<BFloat16>(reduction, into, other);
    case XLA_FFI_DataType_S8: return reduce_as<std::int8_t>(reduction, into, other);
    case XLA_FFI_DataType_S32: return reduce_as<std::int32_t>(reduction, into, other);
    case XLA_FFI_DataType_S64: return reduce_as<std::int64_t>(reduction, into, other);
    case XLA_FFI_DataType_U8: return reduce_as<std::uint8_t>(reduction, into, other);
    case XLA_FFI_DataType_U32: return reduce_as<std::uint32_t>(reduction, into, other);
    case XLA_FFI_DataType_U64: return reduce_as<std::uint64_t>(reduction, into, other);
    default: throw std::runtime_error("no library reduces type " + std::to_string(type));
  }
}

std::string part_of(const std::string& whole, std::size_t index, std::size_t count) {
  const std::size_t size = whole.size() / count;
  return whole.substr(index * size, size);
}

// Who meets, and for which time.
std::string next_meeting(const Collective& collective, int replica) {
  const std::vector<int>* met = nullptr;  // all replicas, in a permutation
  for (const std::vector<int>& row : collective.rows) {
    const bool is_in = std::ranges::find(row, replica) != row.end();
    if (is_in && collective.op != "collective_permute") met = &row;
  }
  std::string who;
  for (std::size_t i = 0; i < (met != nullptr ? met->size() : collective.ranks.size()); ++i) {
    who += std::to_string(collective.ranks[met != nullptr ? (*met)[i] : i]) + ",";
  }
  static auto* const counts = new std::map<std::string, int>();
  const std::lock_guard lock(collectives_mutex());
  return who + "/" + std::to_string(++(*counts)[who]);
}

// What the collective gives this replica; all are along the first dimension.
std::string exchanged(Collective& collective, XLA_FFI_DataType type, const std::string& own) {
  const int rank = static_cast<int>(job().node);
  const int replica =
      static_cast<int>(std::ranges::find(collective.ranks, rank) - collective.ranks.begin());
  // By the order of exchanges, as NVIDIA's library knows what belongs together.
  const std::string key = next_meeting(collective, replica) + "/";
  put_all(key + std::to_string(collective.ranks[replica]), own);
  const auto of = [&](int other) {
    return get_all(key + std::to_string(collective.ranks[other]), own.size());
  };
  if (collective.op == "collective_permute") {
    for (const std::vector<int>& pair : collective.rows) {
      if (pair.at(1) == replica) return of(pair.at(0));
    }
    return std::string(own.size(), '\0');
  }
  for (const std::vector<int>& row : collective.rows) {
    const auto found = std::ranges::find(row, replica);
    if (found == row.end()) continue;
    const auto place = static_cast<std::size_t>(found - row.begin());
    std::vector<std::string> all;
    for (const int other : row) all.push_back(of(other));
    std::string result;
    if (collective.op == "all_gather" || collective.op == "all_to_all") {
      const bool is_whole = collective.op == "all_gather";
      for (const std::string& each : all)
        result += is_whole ? each : part_of(each, place, row.size());
      return result;
    }
    result = all[0];
    for (std::size_t i = 1; i < all.size(); ++i) reduce(type, collective.reduction, result, all[i]);
    return collective.op == "all_reduce" ? result : part_of(result, place, row.size());
  }
  throw std::runtime_error("a replica is in no group");
}

XLA_FFI_Error* fail(const XLA_FFI_CallFrame* frame, const char* message) {
  XLA_FFI_Error_Create_Args args = {};
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = message;
  args.errc = XLA_FFI_Error_Code_INTERNAL;
  return frame->api->XLA_FFI_Error_Create(&args);
}

const void* attribute(const XLA_FFI_Attrs& attributes, std::string_view name) {
  for (std::int64_t i = 0; i < attributes.size; ++i) {
    const XLA_FFI_ByteSpan& span = *attributes.names[i];
    if (std::string_view(span.ptr, span.len) == name) return attributes.attrs[i];
  }
  throw std::runtime_error("an exchange without its attributes");
}

XLA_FFI_Error* exchange(XLA_FFI_CallFrame* frame) {
  XLA_FFI_Extension_Base* const extension = frame->extension_start;
  if (extension != nullptr && extension->type == XLA_FFI_Extension_Metadata) {
    auto* const asked = reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension);
    asked->metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    asked->metadata->api_version.minor_version = frame->api->api_version.minor_version;
    return nullptr;
  }
  try {
    const auto* const id = static_cast<const XLA_FFI_ByteSpan*>(attribute(frame->attrs, "id"));
    std::shared_ptr<Collective> collective;
    {
      const std::lock_guard lock(collectives_mutex());
      collective = collectives().at(std::string(id->ptr, id->len));
    }
    const auto* const input = static_cast<const XLA_FFI_Buffer*>(frame->args.args[0]);
    const auto* const output = static_cast<const XLA_FFI_Buffer*>(frame->rets.rets[0]);
    std::size_t num_bytes = size_of(input->dtype);
    for (std::int64_t i = 0; i < input->rank; ++i) num_bytes *= input->dims[i];
    const std::string result = exchanged(
        *collective, input->dtype, std::string(static_cast<const char*>(input->data), num_bytes));
    std::memcpy(output->data, result.data(), result.size());
    return nullptr;
  } catch (const std::exception& error) {
    return fail(frame, error.what());
  }
}

// ---- Programs of several replicas, as the plugin behind is given them

std::string between(std::string_view text, std::string_view before, std::string_view after) {
  const std::size_t start = text.find(before);
  if (start == text.npos) return "";
  const std::size_t end = text.find(after, start + before.size());
  return std::string(text.substr(start + before.size(), end - start - before.size()));
}

// The rows of `name = dense<[[0, 1], [2, 3]]>`.
std::vector<std::vector<int>> rows_of(std::string_view text, const std::string& name) {
  std::vector<std::vector<int>> rows;
  std::stringstream all(between(text, name + " = dense<[", "]>"));
  for (std::string row; std::getline(all, row, ']');) {
    if (row.find('[') == row.npos) continue;
    std::vector<int>& numbers = rows.emplace_back();
    std::stringstream items(row.substr(row.find('[') + 1));
    for (std::string item; std::getline(items, item, ',');) numbers.push_back(std::stoi(item));
  }
  return rows;
}

class Rewriting {
 public:
  Rewriting(std::string_view program, std::vector<int> ranks)
      : lines_(std::string(program)), ranks_(std::move(ranks)) {
    static std::atomic<int> compilations = 0;
    key_ = std::to_string(++compilations);
  }

  std::string run() {
    for (std::string line; std::getline(lines_, line);) {
      const std::string op = between(line, "\"stablehlo.", "\"");
      if (op == "replica_id") {
        add_number_of_replica(line);
      } else if (op.starts_with("all_") || op.starts_with("collective_") ||
                 op == "reduce_scatter") {
        add_exchange(op, line);
      } else {
        note_depth(line);
        result_ += line + "\n";
      }
    }
    return result_;
  }

 private:
  void note_depth(const std::string& line) {
    depth_ += static_cast<int>(std::ranges::count(line, '{') - std::ranges::count(line, '}'));
    if (depth_ < token_depth_) token_.clear();
  }

  void add_number_of_replica(const std::string& line) {
    const auto own = std::ranges::find(ranks_, static_cast<int>(job().node)) - ranks_.begin();
    result_ += line.substr(0, line.find('"')) + "\"stablehlo.constant\"() <{value = dense<" +
               std::to_string(own) + "> : tensor<ui32>}> : () -> tensor<ui32>\n";
  }

  // In the order of the text: a thread that waits must not keep another exchange from its turn.
  void add_exchange(const std::string& op, std::string line) {
    auto collective = std::make_shared<Collective>();
    collective->op = op;
    collective->rows =
        rows_of(line, op == "collective_permute" ? "source_target_pairs" : "replica_groups");
    collective->ranks = ranks_;
    const std::string name = between(line, "%", " ");
    const std::string operand = between(line, "(", ")");
    if (line.ends_with("({")) {
      for (std::string inner; std::getline(lines_, inner);) {
        if (collective->reduction.empty())
          collective->reduction = between(inner, "\"stablehlo.", "\"");
        line = inner;
        if (inner.starts_with("})")) break;
      }
    }
    const std::string number = std::to_string(num_exchanges_++);
    const std::string id = key_ + "/" + number;
    {
      const std::lock_guard lock(collectives_mutex());
      collectives()[id] = collective;
    }
    if (token_.empty() || token_depth_ != depth_) {
      token_ = "%first" + number;
      result_ += token_ +
                 " = \"stablehlo.constant\"() <{value = dense<0> : tensor<i32>}> : () -> "
                 "tensor<i32>\n";
    }
    const std::string type = between(line, " : (", ")");
    const std::string given = line.substr(line.rfind("-> ") + 3);
    const std::string call = "%exchange" + number;
    result_ += call + ":2 = \"stablehlo.custom_call\"(" + operand + ", " + token_ +
               ") <{call_target_name = \"spanning.exchange\", api_version = 4 : i32, "
               "has_side_effect = true, backend_config = {id = \"" +
               id + "\"}}> : (" + type + ", tensor<i32>) -> (" + given + ", tensor<i32>)\n";
    result_ += "%" + name + " = \"stablehlo.reshape\"(" + call + "#0) : (" + given + ") -> " +
               given + "\n";
    token_ = call + "#1";
    token_depth_ = depth_;
  }

  std::stringstream lines_;
  std::vector<int> ranks_;
  std::string key_;  // of this compilation
  std::string result_;
  std::string token_;
  int token_depth_ = 0;
  int depth_ = 0;
  int num_exchanges_ = 0;
};

// One replica and partition, on whichever device a launch names.
const std::string& portable_options() {
  static const std::string bytes = "\x1a\x04\x20\x01\x28\x01\x20\x01";
  return bytes;
}

// ---- The functions that differ

void register_exchange() {
  static const std::string name = "spanning.exchange";
  static const std::string platform = "Host";
  for (auto* extension = real()->extension_start; extension != nullptr;
       extension = extension->next) {
    if (extension->type != PJRT_Extension_Type_FFI) continue;
    torch_xla::pjrt::RegisterHandlerArgs args{sizeof(args),
                                              name.data(),
                                              name.size(),
                                              reinterpret_cast<void*>(&exchange),
                                              platform.data(),
                                              platform.size(),
                                              0};
    reinterpret_cast<torch_xla::pjrt::FfiExtension*>(extension)->register_handler(&args);
    return;
  }
  die("the plugin behind takes no calls");
}

PJRT_Error* create(PJRT_Client_Create_Args* args) {
  Job& of = job();
  of.store = *args;
  for (std::size_t i = 0; i < args->num_options; ++i) {
    const PJRT_NamedValue& option = args->create_options[i];
    const std::string_view name(option.name, option.name_size);
    if (name == "num_nodes") of.num_nodes = option.int64_value;
    if (name == "node_id") of.node = option.int64_value;
  }
  if (const char* const addresses = std::getenv("TPU_PROCESS_ADDRESSES")) {
    const std::string_view all(addresses);
    of.num_nodes = std::count(all.begin(), all.end(), ',') + 1;
    of.node = std::atoll(std::getenv("CLOUD_TPU_TASK_ID"));
  }
  // A process that is alone has as many devices as the host.
  PJRT_NamedValue count = {};
  count.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  count.name = "cpu_device_count";
  count.name_size = std::strlen(count.name);
  count.type = PJRT_NamedValue_kInt64;
  const char* const on_host = std::getenv("SPANNING_DEVICES");
  count.int64_value = of.num_nodes > 1 || on_host == nullptr ? 1 : std::atoll(on_host);
  count.value_size = 1;
  PJRT_Client_Create_Args changed = *args;
  changed.create_options = &count;
  changed.num_options = 1;
  if (PJRT_Error* const error = real()->PJRT_Client_Create(&changed)) return error;
  args->client = changed.client;
  if (of.num_nodes == 1) return nullptr;
  register_exchange();
  PJRT_Client_AddressableDevices_Args devices = {};
  devices.struct_size = PJRT_Client_AddressableDevices_Args_STRUCT_SIZE;
  devices.client = args->client;
  if (PJRT_Error* const error = real()->PJRT_Client_AddressableDevices(&devices)) return error;
  of.device = devices.addressable_devices[0];
  PJRT_Device_GetDescription_Args description = {};
  description.struct_size = PJRT_Device_GetDescription_Args_STRUCT_SIZE;
  description.device = of.device;
  if (PJRT_Error* const error = real()->PJRT_Device_GetDescription(&description)) return error;
  of.description = description.device_description;
  of.devices.clear();
  of.elsewhere.clear();
  // As a plugin that finds the others does.
  put("device of " + std::to_string(of.node), "there");
  for (int node = 0; node < of.num_nodes; ++node) {
    get("device of " + std::to_string(node));
    if (node == of.node) {
      of.devices.push_back(of.device);
      continue;
    }
    of.elsewhere.push_back(std::make_unique<Elsewhere>(Elsewhere{node}));
    of.devices.push_back(reinterpret_cast<PJRT_Device*>(of.elsewhere.back().get()));
  }
  return nullptr;
}

PJRT_Error* platform_name(PJRT_Client_PlatformName_Args* args) {
  static const std::string name = [] {
    const char* const given = std::getenv("SPANNING_PLATFORM");
    return std::string(given != nullptr ? given : "spanning");
  }();
  args->platform_name = name.data();
  args->platform_name_size = name.size();
  return nullptr;
}

PJRT_Error* process_index(PJRT_Client_ProcessIndex_Args* args) {
  args->process_index = static_cast<int>(job().node);
  return nullptr;
}

PJRT_Error* devices(PJRT_Client_Devices_Args* args) {
  if (job().num_nodes == 1) return real()->PJRT_Client_Devices(args);
  args->devices = job().devices.data();
  args->num_devices = job().devices.size();
  return nullptr;
}

PJRT_Error* addressable_devices(PJRT_Client_AddressableDevices_Args* args) {
  if (job().num_nodes == 1) return real()->PJRT_Client_AddressableDevices(args);
  args->addressable_devices = &job().device;
  args->num_addressable_devices = 1;
  return nullptr;
}

PJRT_Error* description(PJRT_Device_GetDescription_Args* args) {
  if (!node_elsewhere(args->device)) return real()->PJRT_Device_GetDescription(args);
  args->device_description = reinterpret_cast<PJRT_DeviceDescription*>(args->device);
  return nullptr;
}

PJRT_Error* description_id(PJRT_DeviceDescription_Id_Args* args) {
  if (job().num_nodes == 1) return real()->PJRT_DeviceDescription_Id(args);
  args->id = node_elsewhere(args->device_description).value_or(static_cast<int>(job().node));
  return nullptr;
}

PJRT_Error* description_process_index(PJRT_DeviceDescription_ProcessIndex_Args* args) {
  args->process_index =
      node_elsewhere(args->device_description).value_or(static_cast<int>(job().node));
  return nullptr;
}

// Programs that exchange run in the order of their launches, as on a stream: the CPU's plugin may
// begin with any that has its inputs.
class InOrder {
 public:
  static InOrder& instance() {
    static auto* const instance = new InOrder();
    return *instance;
  }

  void add(PJRT_LoadedExecutable* program) {
    const std::lock_guard lock(mutex_);
    programs_.insert(program);
  }

  PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args) {
    if (!begin(args->executable)) return real()->PJRT_LoadedExecutable_Execute(args);
    if (args->device_complete_events == nullptr) die("a launch asks for no event");
    if (PJRT_Error* const error = real()->PJRT_LoadedExecutable_Execute(args)) {
      end();
      return error;
    }
    PJRT_Event_OnReady_Args ready = {};
    ready.struct_size = PJRT_Event_OnReady_Args_STRUCT_SIZE;
    ready.event = args->device_complete_events[0];
    ready.callback = [](PJRT_Error* error, void*) {
      if (error != nullptr) {
        PJRT_Error_Destroy_Args destroy = {};
        destroy.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE;
        destroy.error = error;
        real()->PJRT_Error_Destroy(&destroy);
      }
      instance().end();
    };
    return real()->PJRT_Event_OnReady(&ready);
  }

 private:
  // Blocks until the one before has ended; false of a program that exchanges nothing.
  bool begin(PJRT_LoadedExecutable* program) {
    std::unique_lock lock(mutex_);
    if (!programs_.contains(program)) return false;
    has_ended_.wait(lock, [this] { return !is_running_; });
    is_running_ = true;
    return true;
  }

  void end() {
    const std::lock_guard lock(mutex_);
    is_running_ = false;
    has_ended_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable has_ended_;
  std::set<PJRT_LoadedExecutable*> programs_;
  bool is_running_ = false;
};

PJRT_Error* compile(PJRT_Client_Compile_Args* args) {
  const fake::CompileOptions options =
      fake::parse_compile_options({args->compile_options, args->compile_options_size});
  if (options.is_portable || job().num_nodes == 1) return real()->PJRT_Client_Compile(args);
  std::string text =
      Rewriting({args->program->code, args->program->code_size}, options.device_assignment).run();
  PJRT_Program program = *args->program;
  program.code = text.data();
  program.code_size = text.size();
  PJRT_Client_Compile_Args changed = *args;
  changed.program = &program;
  changed.compile_options = portable_options().data();
  changed.compile_options_size = portable_options().size();
  PJRT_Error* const error = real()->PJRT_Client_Compile(&changed);
  args->executable = changed.executable;
  if (error == nullptr) InOrder::instance().add(changed.executable);
  return error;
}

PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args) {
  if (args->execute_device == nullptr && job().num_nodes > 1) args->execute_device = job().device;
  return InOrder::instance().execute(args);
}

}  // namespace

extern "C" const PJRT_Api* GetPjrtApi() {
  static const PJRT_Api api = [] {
    PJRT_Api changed = *real();
    changed.PJRT_Client_Create = create;
    changed.PJRT_Client_PlatformName = platform_name;
    changed.PJRT_Client_ProcessIndex = process_index;
    changed.PJRT_Client_Devices = devices;
    changed.PJRT_Client_AddressableDevices = addressable_devices;
    changed.PJRT_Device_GetDescription = description;
    changed.PJRT_DeviceDescription_Id = description_id;
    changed.PJRT_DeviceDescription_ProcessIndex = description_process_index;
    changed.PJRT_Client_Compile = compile;
    changed.PJRT_LoadedExecutable_Execute = execute;
    return changed;
  }();
  return &api;
}

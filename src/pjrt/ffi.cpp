// Decodes XLA's call frames, and registers entry points with the plugin. XLA calls plain functions
// without a context pointer, so each registered function gets one of a fixed number of entry points
// that are stamped out from a template.
#include "pjrt/ffi.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "pjrt/ffi_extension.h"
#include "xla/ffi/api/c_api.h"

namespace torch_xla::pjrt {
namespace {

constexpr std::size_t kMaxCustomCalls = 128;

// Never destroyed: the plugin's threads may still run calls while the process exits.
std::array<CustomCall, kMaxCustomCalls>& functions() {
  static auto& table = *new std::array<CustomCall, kMaxCustomCalls>;
  return table;
}

XLA_FFI_Error_Code code_of(base::ErrorKind kind) {
  switch (kind) {
    case base::ErrorKind::kOutOfMemory: return XLA_FFI_Error_Code_RESOURCE_EXHAUSTED;
    case base::ErrorKind::kUnimplemented: return XLA_FFI_Error_Code_UNIMPLEMENTED;
    case base::ErrorKind::kInvalidArgument: return XLA_FFI_Error_Code_INVALID_ARGUMENT;
    default: return XLA_FFI_Error_Code_INTERNAL;
  }
}

XLA_FFI_Error* report(const XLA_FFI_CallFrame* frame, XLA_FFI_Error_Code code,
                      const char* message) noexcept {
  XLA_FFI_Error_Create_Args args = {};
  args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
  args.message = message;
  args.errc = code;
  return frame->api->XLA_FFI_Error_Create(&args);
}

// Before it uses a handler, XLA asks which version of the call frame it was built for, and silently
// drops one that is newer than XLA itself. All that we read is older than any plugin, so the answer
// is the plugin's own version.
bool answer_metadata_query(const XLA_FFI_CallFrame* frame) {
  XLA_FFI_Extension_Base* extension = frame->extension_start;
  if (extension == nullptr || extension->type != XLA_FFI_Extension_Metadata) return false;
  XLA_FFI_Metadata* metadata = reinterpret_cast<XLA_FFI_Metadata_Extension*>(extension)->metadata;
  constexpr int kMinorWithoutApi = 2;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version =
      frame->api == nullptr ? kMinorWithoutApi
                            : std::min(frame->api->api_version.minor_version, XLA_FFI_API_MINOR);
  metadata->traits = 0;
  return true;
}

XLA_FFI_Error* run(std::size_t index, const XLA_FFI_CallFrame* frame) noexcept {
  if (answer_metadata_query(frame)) return nullptr;
  try {
    functions()[index](CustomCallFrame(frame));
    return nullptr;
  } catch (const base::Error& error) {
    return report(frame, code_of(error.kind()), error.what());
  } catch (const std::exception& error) {
    return report(frame, XLA_FFI_Error_Code_INTERNAL, error.what());
  } catch (...) {
    return report(frame, XLA_FFI_Error_Code_INTERNAL, "unknown exception in a custom call");
  }
}

template <std::size_t kIndex>
XLA_FFI_Error* entry_point(XLA_FFI_CallFrame* frame) {
  return run(kIndex, frame);
}

template <std::size_t... kIndices>
constexpr std::array<XLA_FFI_Handler*, sizeof...(kIndices)> entry_points(
    std::index_sequence<kIndices...>) {
  return {&entry_point<kIndices>...};
}

constexpr auto kEntryPoints = entry_points(std::make_index_sequence<kMaxCustomCalls>());

base::DType dtype_of(XLA_FFI_DataType type) {
  using base::DType;
  switch (type) {
    case XLA_FFI_DataType_PRED: return DType::kBool;
    case XLA_FFI_DataType_U8: return DType::kUInt8;
    case XLA_FFI_DataType_U16: return DType::kUInt16;
    case XLA_FFI_DataType_U32: return DType::kUInt32;
    case XLA_FFI_DataType_U64: return DType::kUInt64;
    case XLA_FFI_DataType_S8: return DType::kInt8;
    case XLA_FFI_DataType_S16: return DType::kInt16;
    case XLA_FFI_DataType_S32: return DType::kInt32;
    case XLA_FFI_DataType_S64: return DType::kInt64;
    case XLA_FFI_DataType_F8E4M3FN: return DType::kFloat8E4M3FN;
    case XLA_FFI_DataType_F8E5M2: return DType::kFloat8E5M2;
    case XLA_FFI_DataType_F16: return DType::kFloat16;
    case XLA_FFI_DataType_BF16: return DType::kBFloat16;
    case XLA_FFI_DataType_F32: return DType::kFloat32;
    case XLA_FFI_DataType_F64: return DType::kFloat64;
    case XLA_FFI_DataType_C64: return DType::kComplex64;
    case XLA_FFI_DataType_C128: return DType::kComplex128;
    default:
      base::fail(base::ErrorKind::kUnimplemented, "custom call: no PyTorch dtype for XLA's type ",
                 static_cast<int>(type));
  }
}

CustomCallArray array_of(const void* argument) {
  const auto* buffer = static_cast<const XLA_FFI_Buffer*>(argument);
  return {buffer->data, dtype_of(buffer->dtype),
          std::span<const std::int64_t>(buffer->dims, static_cast<std::size_t>(buffer->rank))};
}

std::string_view view(const XLA_FFI_ByteSpan& span) { return {span.ptr, span.len}; }

constexpr std::int64_t kAbsent = -1;

std::int64_t position(const XLA_FFI_Attrs& attrs, std::string_view name) {
  for (std::int64_t i = 0; i < attrs.size; ++i) {
    if (view(*attrs.names[i]) == name) return i;
  }
  return kAbsent;
}

const void* find_attribute(const XLA_FFI_Attrs& attrs, std::string_view name,
                           XLA_FFI_AttrType type) {
  const std::int64_t i = position(attrs, name);
  base::check(i != kAbsent, "custom call: no attribute '", name, "'");
  base::check(attrs.types[i] == type, "custom call: attribute '", name, "' is of another kind (",
              static_cast<int>(attrs.types[i]), ")");
  return attrs.attrs[i];
}

template <typename T>
T load(const void* value) {
  return *static_cast<const T*>(value);
}

// Whether the plugin has the function, and no error came of it.
template <typename Args>
bool call(const XLA_FFI_CallFrame* frame, std::size_t offset,
          XLA_FFI_Error* (*const XLA_FFI_Api::*function)(Args*), Args& args) {
  if (frame->api->struct_size <= offset || frame->api->*function == nullptr) return false;
  XLA_FFI_Error* const error = (frame->api->*function)(&args);
  if (error == nullptr) return true;
  XLA_FFI_Error_Destroy_Args destroy = {};
  destroy.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE;
  destroy.error = error;
  frame->api->XLA_FFI_Error_Destroy(&destroy);
  return false;
}

PJRT_Error* register_with(const FfiExtension& extension, const std::string& name,
                          XLA_FFI_Handler* handler, const std::string& platform,
                          bool with_api_version) {
  const auto fill = [&](auto args) {
    args.struct_size = offsetof(decltype(args), traits) + sizeof(args.traits);
    args.target_name = name.data();
    args.target_name_size = name.size();
    args.handler = reinterpret_cast<void*>(handler);
    args.platform_name = platform.data();
    args.platform_name_size = platform.size();
    if constexpr (requires { args.api_version; }) args.api_version = 1;
    return extension.register_handler(&args);
  };
  return with_api_version ? fill(RegisterHandlerWithApiVersionArgs{}) : fill(RegisterHandlerArgs{});
}

}  // namespace

std::size_t CustomCallFrame::num_inputs() const {
  return static_cast<std::size_t>(frame_->args.size);
}

std::size_t CustomCallFrame::num_outputs() const {
  return static_cast<std::size_t>(frame_->rets.size);
}

CustomCallArray CustomCallFrame::input(std::size_t index) const {
  base::check(index < num_inputs(), "custom call: input ", index, " of ", num_inputs());
  return array_of(frame_->args.args[index]);
}

CustomCallArray CustomCallFrame::output(std::size_t index) const {
  base::check(index < num_outputs(), "custom call: output ", index, " of ", num_outputs());
  return array_of(frame_->rets.rets[index]);
}

bool CustomCallFrame::has_attribute(std::string_view name) const {
  return position(frame_->attrs, name) != kAbsent;
}

std::int64_t CustomCallFrame::integer(std::string_view name) const {
  const auto* scalar = static_cast<const XLA_FFI_Scalar*>(
      find_attribute(frame_->attrs, name, XLA_FFI_AttrType_SCALAR));
  switch (scalar->dtype) {
    case XLA_FFI_DataType_PRED: return load<bool>(scalar->value) ? 1 : 0;
    case XLA_FFI_DataType_S8: return load<std::int8_t>(scalar->value);
    case XLA_FFI_DataType_S16: return load<std::int16_t>(scalar->value);
    case XLA_FFI_DataType_S32: return load<std::int32_t>(scalar->value);
    case XLA_FFI_DataType_S64: return load<std::int64_t>(scalar->value);
    case XLA_FFI_DataType_U8: return load<std::uint8_t>(scalar->value);
    case XLA_FFI_DataType_U16: return load<std::uint16_t>(scalar->value);
    case XLA_FFI_DataType_U32: return load<std::uint32_t>(scalar->value);
    case XLA_FFI_DataType_U64: return static_cast<std::int64_t>(load<std::uint64_t>(scalar->value));
    default:
      base::fail(base::ErrorKind::kInvalidArgument, "custom call: attribute '", name,
                 "' is not an integer");
  }
}

double CustomCallFrame::real(std::string_view name) const {
  const auto* scalar = static_cast<const XLA_FFI_Scalar*>(
      find_attribute(frame_->attrs, name, XLA_FFI_AttrType_SCALAR));
  if (scalar->dtype == XLA_FFI_DataType_F64) return load<double>(scalar->value);
  base::check(scalar->dtype == XLA_FFI_DataType_F32, "custom call: attribute '", name,
              "' is not an f32 or f64");
  return load<float>(scalar->value);
}

std::string_view CustomCallFrame::text(std::string_view name) const {
  return view(*static_cast<const XLA_FFI_ByteSpan*>(
      find_attribute(frame_->attrs, name, XLA_FFI_AttrType_STRING)));
}

std::span<const std::int64_t> CustomCallFrame::integers(std::string_view name) const {
  const auto* array = static_cast<const XLA_FFI_Array*>(
      find_attribute(frame_->attrs, name, XLA_FFI_AttrType_ARRAY));
  base::check(array->size == 0 || array->dtype == XLA_FFI_DataType_S64, "custom call: attribute '",
              name, "' is not an array of i64");
  return {static_cast<const std::int64_t*>(array->data), array->size};
}

std::size_t CustomCallFrame::num_threads() const {
  std::int64_t num_threads = 1;
  XLA_FFI_ThreadPool_NumThreads_Args args = {};
  args.struct_size = XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE;
  args.ctx = frame_->ctx;
  args.num_threads = &num_threads;
  constexpr std::size_t kOffset = offsetof(XLA_FFI_Api, XLA_FFI_ThreadPool_NumThreads);
  if (!call(frame_, kOffset, &XLA_FFI_Api::XLA_FFI_ThreadPool_NumThreads, args)) return 1;
  return static_cast<std::size_t>(std::max<std::int64_t>(num_threads, 1));
}

void CustomCallFrame::schedule(std::function<void()> task) const {
  auto owned = std::make_unique<std::function<void()>>(std::move(task));
  XLA_FFI_ThreadPool_Schedule_Args args = {};
  args.struct_size = XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE;
  args.ctx = frame_->ctx;
  args.task = [](void* data) {
    const std::unique_ptr<std::function<void()>> own(static_cast<std::function<void()>*>(data));
    (*own)();
  };
  args.data = owned.get();
  constexpr std::size_t kOffset = offsetof(XLA_FFI_Api, XLA_FFI_ThreadPool_Schedule);
  if (call(frame_, kOffset, &XLA_FFI_Api::XLA_FFI_ThreadPool_Schedule, args)) {
    static_cast<void>(owned.release());  // to the task
  }
}

void register_custom_call(const Plugin& plugin, const std::string& name, CustomCall function,
                          const std::string& platform) {
  constexpr const char* kCall = "PJRT_FFI_Register_Handler";
  static std::mutex mutex;
  static auto& taken = *new std::set<std::pair<const PJRT_Api*, std::string>>;
  const auto* extension = reinterpret_cast<const FfiExtension*>(
      plugin.find_extension(static_cast<int>(PJRT_Extension_Type_FFI)));
  if (extension == nullptr || extension->base.struct_size < sizeof(FfiExtension)) {
    throw Error(ErrorCode::kUnimplemented, kCall,
                base::str("the plugin '", plugin.path(), "' takes no custom calls"));
  }
  const std::lock_guard lock(mutex);
  const std::pair key(plugin.api(), platform + '/' + name);
  if (taken.contains(key)) {
    throw Error(ErrorCode::kAlreadyExists, kCall, base::str("the custom call '", name, "'"));
  }
  const std::size_t index = taken.size();
  base::internal_check(index < kMaxCustomCalls, "more than ", kMaxCustomCalls, " custom calls");
  functions()[index] = std::move(function);
  PJRT_Error* error = register_with(*extension, name, kEntryPoints[index], platform, false);
  if (error != nullptr) {
    drop_error(plugin.api(), error);
    error = register_with(*extension, name, kEntryPoints[index], platform, true);
  }
  if (error != nullptr) throw take_error(plugin.api(), error, kCall);
  taken.insert(key);
}

}  // namespace torch_xla::pjrt

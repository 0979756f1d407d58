// The converters between PJRT's C values and ours: errors, element types, named values.
#include "pjrt/api.h"

#include <array>
#include <utility>

namespace torch_xla::pjrt {
namespace {

using base::DType;

constexpr std::array<std::pair<DType, PJRT_Buffer_Type>, base::kNumDTypes> kBufferTypes = {{
    {DType::kBool, PJRT_Buffer_Type_PRED},
    {DType::kUInt8, PJRT_Buffer_Type_U8},
    {DType::kUInt16, PJRT_Buffer_Type_U16},
    {DType::kUInt32, PJRT_Buffer_Type_U32},
    {DType::kUInt64, PJRT_Buffer_Type_U64},
    {DType::kInt8, PJRT_Buffer_Type_S8},
    {DType::kInt16, PJRT_Buffer_Type_S16},
    {DType::kInt32, PJRT_Buffer_Type_S32},
    {DType::kInt64, PJRT_Buffer_Type_S64},
    {DType::kFloat8E4M3FN, PJRT_Buffer_Type_F8E4M3FN},
    {DType::kFloat8E5M2, PJRT_Buffer_Type_F8E5M2},
    {DType::kFloat16, PJRT_Buffer_Type_F16},
    {DType::kBFloat16, PJRT_Buffer_Type_BF16},
    {DType::kFloat32, PJRT_Buffer_Type_F32},
    {DType::kFloat64, PJRT_Buffer_Type_F64},
    {DType::kComplex64, PJRT_Buffer_Type_C64},
    {DType::kComplex128, PJRT_Buffer_Type_C128},
}};

NamedValue from_named_value(const PJRT_NamedValue& value) {
  switch (value.type) {
    case PJRT_NamedValue_kString: return std::string(value.string_value, value.value_size);
    case PJRT_NamedValue_kInt64: return value.int64_value;
    case PJRT_NamedValue_kInt64List:
      return std::vector<std::int64_t>(value.int64_array_value,
                                       value.int64_array_value + value.value_size);
    case PJRT_NamedValue_kFloat: return value.float_value;
    case PJRT_NamedValue_kBool: return value.bool_value;
  }
  return std::string("<a value of a kind unknown to this version>");
}

}  // namespace

Error take_error(const PJRT_Api* api, PJRT_Error* error, std::string_view call) {
  auto message = PJRT_MAKE(PJRT_Error_Message_Args);
  message.error = error;
  api->PJRT_Error_Message(&message);
  auto code = PJRT_MAKE(PJRT_Error_GetCode_Args);
  code.error = error;
  code.code = PJRT_Error_Code_UNKNOWN;
  drop_error(api, api->PJRT_Error_GetCode(&code));
  Error result(static_cast<ErrorCode>(code.code), std::string(call),
               std::string(message.message, message.message_size));
  drop_error(api, error);
  return result;
}

void throw_plugin_too_old(const PJRT_Api* api, std::string_view call) {
  const PJRT_Api_Version& version = api->pjrt_api_version;
  throw Error(ErrorCode::kUnimplemented, std::string(call),
              base::str("the plugin is too old for this call: its PJRT API version is ",
                        version.major_version, ".", version.minor_version, ", this build knows ",
                        PJRT_API_MAJOR, ".", PJRT_API_MINOR));
}

void throw_escaped(const std::exception& exception, std::string_view call) {
  throw Error(ErrorCode::kInternal, std::string(call),
              base::str("the plugin threw an exception: ", exception.what()));
}

void drop_error(const PJRT_Api* api, PJRT_Error* error) noexcept {
  if (error == nullptr) return;
  auto args = PJRT_MAKE(PJRT_Error_Destroy_Args);
  args.error = error;
  api->PJRT_Error_Destroy(&args);
}

PJRT_Buffer_Type to_buffer_type(DType dtype) {
  for (const auto& [ours, theirs] : kBufferTypes) {
    if (ours == dtype) return theirs;
  }
  base::internal_check(false, "no PJRT type for dtype ", base::dtype_info(dtype).name);
  return PJRT_Buffer_Type_INVALID;
}

DType from_buffer_type(PJRT_Buffer_Type type) {
  for (const auto& [ours, theirs] : kBufferTypes) {
    if (theirs == type) return ours;
  }
  throw Error(ErrorCode::kUnimplemented, "PJRT_Buffer_ElementType",
              base::str("no PyTorch dtype for PJRT_Buffer_Type ", static_cast<int>(type)));
}

NamedValues from_named_values(const PJRT_NamedValue* values, std::size_t count) {
  NamedValues result;
  for (std::size_t i = 0; i < count; ++i) {
    result.emplace(std::string(values[i].name, values[i].name_size), from_named_value(values[i]));
  }
  return result;
}

std::vector<PJRT_NamedValue> to_named_values(const NamedValues& values) {
  std::vector<PJRT_NamedValue> result;
  for (const auto& [name, value] : values) {
    auto& out = result.emplace_back(PJRT_MAKE(PJRT_NamedValue));
    out.name = name.data();
    out.name_size = name.size();
    out.value_size = 1;
    if (const auto* text = std::get_if<std::string>(&value)) {
      out.type = PJRT_NamedValue_kString;
      out.string_value = text->data();
      out.value_size = text->size();
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      out.type = PJRT_NamedValue_kBool;
      out.bool_value = *flag;
    } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      out.type = PJRT_NamedValue_kInt64;
      out.int64_value = *integer;
    } else if (const auto* real = std::get_if<float>(&value)) {
      out.type = PJRT_NamedValue_kFloat;
      out.float_value = *real;
    } else {
      const auto& list = std::get<std::vector<std::int64_t>>(value);
      out.type = PJRT_NamedValue_kInt64List;
      out.int64_array_value = list.data();
      out.value_size = list.size();
    }
  }
  return result;
}

}  // namespace torch_xla::pjrt

// Private to src/pjrt: the PJRT C header, and the one way in which its functions are called. Public
// headers of this folder never include it.
#pragma once

#include <cstddef>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/dtype.h"
#include "pjrt/error.h"
#include "pjrt/named_value.h"
#include "pjrt_c_api.h"

namespace torch_xla::pjrt {

// Makes `error` into an Error and frees it.
Error take_error(const PJRT_Api* api, PJRT_Error* error, std::string_view call);

[[noreturn]] void throw_plugin_too_old(const PJRT_Api* api, std::string_view call);
// A plugin in C++ may let an exception out of a C function, for an option of the wrong type say.
[[noreturn]] void throw_escaped(const std::exception& exception, std::string_view call);

// True if the plugin's table of functions reaches as far as `function`, and has it.
template <typename Function>
bool has_function(const PJRT_Api* api, Function* PJRT_Api::* function) {
  const auto* field = reinterpret_cast<const char*>(&(api->*function));
  const std::size_t end = field - reinterpret_cast<const char*>(api) + sizeof(Function*);
  return end <= api->struct_size && api->*function != nullptr;
}

// What the PJRT_CALL macros below expand to; `call` is the function's name.
template <typename Args>
void call(const PJRT_Api* api, PJRT_Error* (*PJRT_Api::*function)(Args*), const char* call,
          std::type_identity_t<Args>& args) {
  if (!has_function(api, function)) throw_plugin_too_old(api, call);
  PJRT_Error* error = nullptr;
  try {
    error = (api->*function)(&args);
  } catch (const std::exception& exception) {
    throw_escaped(exception, call);
  }
  if (error != nullptr) throw take_error(api, error, call);
}

// For destructors: whatever goes wrong is dropped.
void drop_error(const PJRT_Api* api, PJRT_Error* error) noexcept;
template <typename Args>
void call_noexcept(const PJRT_Api* api, PJRT_Error* (*PJRT_Api::*function)(Args*),
                   std::type_identity_t<Args>& args) noexcept {
  if (has_function(api, function)) drop_error(api, (api->*function)(&args));
}

// A zeroed argument struct, padding included.
template <typename Args>
Args make_args(std::size_t struct_size) {
  Args args;
  std::memset(static_cast<void*>(&args), 0, sizeof(args));
  args.struct_size = struct_size;
  return args;
}

// The macros exist because one name stands for a type, a size, a field and a string.
// PJRT_MAKE(PJRT_Client_Compile_Args) is a zeroed struct with its size filled in;
// PJRT_CALL(api, PJRT_Client_Compile, args) calls that function, or throws.
#define PJRT_MAKE(type) ::torch_xla::pjrt::make_args<type>(type##_STRUCT_SIZE)
#define PJRT_CALL(api, function, args) \
  ::torch_xla::pjrt::call(api, &PJRT_Api::function, #function, args)
#define PJRT_CALL_NOEXCEPT(api, function, args) \
  ::torch_xla::pjrt::call_noexcept(api, &PJRT_Api::function, args)

PJRT_Buffer_Type to_buffer_type(base::DType dtype);
// Throws UNIMPLEMENTED for types that PyTorch has no counterpart of.
base::DType from_buffer_type(PJRT_Buffer_Type type);

NamedValues from_named_values(const PJRT_NamedValue* values, std::size_t count);
// The result points into `values`.
std::vector<PJRT_NamedValue> to_named_values(const NamedValues& values);

}  // namespace torch_xla::pjrt

// Private to src/pjrt: the FFI extension of the PJRT C API. The header that comes with plugins only
// names its type, so the parts that register_custom_call needs are declared here.
#pragma once

#include <cstddef>

#include "pjrt/api.h"

namespace torch_xla::pjrt {

// Unlike PJRT's other argument structs these have no `extension_start`. Which of the two a plugin
// takes depends on its age; it refuses a struct that is smaller than it expects.
struct RegisterHandlerArgs {
  std::size_t struct_size;
  const char* target_name;
  std::size_t target_name_size;
  void* handler;
  const char* platform_name;
  std::size_t platform_name_size;
  int traits;
};

struct RegisterHandlerWithApiVersionArgs {
  std::size_t struct_size;
  const char* target_name;
  std::size_t target_name_size;
  int api_version;  // 1: the typed calls of XLA's FFI
  void* handler;
  const char* platform_name;
  std::size_t platform_name_size;
  int traits;
};

struct FfiExtension {
  PJRT_Extension_Base base;
  void* register_type;
  void* add_user_data;
  PJRT_Error* (*register_handler)(void* args);
};

}  // namespace torch_xla::pjrt

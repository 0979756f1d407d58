// Private to src/pjrt: the profiler extension of the PJRT C API, by which a plugin records what its
// devices do. The header that comes with plugins only names its type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pjrt/api.h"

namespace torch_xla::pjrt {

struct PluginProfiler;
struct PluginProfilerError;

struct ProfilerErrorArgs {
  std::size_t struct_size;
  void* state;
  PluginProfilerError* error;
};
struct ProfilerMessageArgs {
  std::size_t struct_size;
  void* state;
  const PluginProfilerError* error;
  const char* message;  // out, lives as long as the error
  std::size_t message_size;
};
struct ProfilerCreateArgs {
  std::size_t struct_size;
  const char* options;  // a serialized ProfileOptions, empty for the defaults
  std::size_t options_size;
  PluginProfiler* profiler;  // out
};
// Of destroy, start and stop.
struct ProfilerArgs {
  std::size_t struct_size;
  PluginProfiler* profiler;
};
struct ProfilerCollectArgs {
  std::size_t struct_size;
  PluginProfiler* profiler;
  std::uint8_t* buffer;  // null: the plugin may lend its own
  std::size_t buffer_size_in_bytes;
};

struct ProfilerApi {
  std::size_t struct_size;
  void* state;
  void (*error_destroy)(ProfilerErrorArgs*);
  void (*error_message)(ProfilerMessageArgs*);
  PluginProfilerError* (*error_get_code)(void*);
  PluginProfilerError* (*create)(ProfilerCreateArgs*);
  PluginProfilerError* (*destroy)(ProfilerArgs*);
  PluginProfilerError* (*start)(ProfilerArgs*);
  PluginProfilerError* (*stop)(ProfilerArgs*);
  PluginProfilerError* (*collect_data)(ProfilerCollectArgs*);
};

struct ProfilerExtension {
  PJRT_Extension_Base base;
  const ProfilerApi* profiler_api;  // may be null
};

}  // namespace torch_xla::pjrt

// The profiler of the fake plugin: remembers whether it was started and stopped in order, and gives
// a text for a trace. Part of fake_plugin.cpp.
#pragma once

#include <cstring>
#include <string>

#include "pjrt/profiler_extension.h"
#include "pjrt_c_api.h"

// In the plugin's place: the client's side has these names declared and nothing more.
namespace torch_xla::pjrt {

struct PluginProfiler {
  std::string trace;
};
struct PluginProfilerError {
  std::string message;
};

}  // namespace torch_xla::pjrt

namespace fake {

namespace tp = torch_xla::pjrt;

inline tp::PluginProfilerError* move_on(tp::PluginProfiler* profiler, const char* from,
                                        const char* to) {
  if (profiler->trace != from) {
    return new tp::PluginProfilerError{"was " + profiler->trace + ", must be " + from};
  }
  profiler->trace = to;
  return nullptr;
}

inline PJRT_Extension_Base* profiler_extension() {
  static const tp::ProfilerApi api = {
      sizeof(tp::ProfilerApi),
      nullptr,
      [](tp::ProfilerErrorArgs* args) { delete args->error; },
      [](tp::ProfilerMessageArgs* args) {
        args->message = args->error->message.data();
        args->message_size = args->error->message.size();
      },
      nullptr,
      [](tp::ProfilerCreateArgs* args) -> tp::PluginProfilerError* {
        args->profiler = new tp::PluginProfiler{"created"};
        return nullptr;
      },
      [](tp::ProfilerArgs* args) -> tp::PluginProfilerError* {
        delete args->profiler;
        return nullptr;
      },
      [](tp::ProfilerArgs* args) { return move_on(args->profiler, "created", "started"); },
      [](tp::ProfilerArgs* args) { return move_on(args->profiler, "started", "stopped"); },
      [](tp::ProfilerCollectArgs* args) -> tp::PluginProfilerError* {
        // Asks for memory first, as some plugins do.
        if (args->buffer != nullptr) {
          std::memcpy(args->buffer, args->profiler->trace.data(), args->profiler->trace.size());
        }
        args->buffer_size_in_bytes = args->profiler->trace.size();
        return nullptr;
      }};
  static tp::ProfilerExtension extension = {
      {sizeof(tp::ProfilerExtension), PJRT_Extension_Type_Profiler, nullptr}, &api};
  return &extension.base;
}

}  // namespace fake

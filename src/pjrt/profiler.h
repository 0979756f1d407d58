// The device's own trace, recorded by the plugin.
#pragma once

#include <memory>
#include <string>

#include "pjrt/plugin.h"

namespace torch_xla::pjrt {

struct ProfilerApi;
struct PluginProfiler;

// One recording: made, started, stopped, collected, in this order. Not thread-safe.
class Profiler {
 public:
  // Null if the plugin has no profiler. Throws Error if it can't make one.
  static std::unique_ptr<Profiler> create(const Plugin& plugin);
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;
  ~Profiler();

  void start();
  void stop();
  // What was recorded, as a serialized XSpace.
  std::string collect();

 private:
  explicit Profiler(const ProfilerApi* api) : api_(api) {}

  const ProfilerApi* api_;
  PluginProfiler* profiler_ = nullptr;
};

}  // namespace torch_xla::pjrt

// The trace that the plugin takes of its devices while a profile is recorded.
#pragma once

#include <string>

namespace torch_xla::runtime {

// Does nothing without a client, or if its plugin has no profiler. Throws Error if the plugin can't
// start one.
void start_device_trace();
// A serialized XSpace; empty if nothing was started.
std::string stop_device_trace();

}  // namespace torch_xla::runtime

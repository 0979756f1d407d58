// The plugins that tests run on. main.cpp alone is told of their paths, so that the other objects
// are the same wherever the sources lie.
#pragma once

namespace torch_xla::testing {

extern const char* const kCpuPlugin;  // empty without the wheel
extern const char* const kFakePlugin;
inline bool has_cpu_plugin() { return *kCpuPlugin != '\0'; }

}  // namespace torch_xla::testing

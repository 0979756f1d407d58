// The plugins that tests run on. main.cpp alone is told of their paths, so that the other objects
// are the same wherever the sources lie.
#pragma once

#include <string>

namespace torch_xla::testing {

extern const std::string kCpuPlugin;  // empty without the wheel
extern const std::string kFakePlugin;

}  // namespace torch_xla::testing

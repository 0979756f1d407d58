// Reads /proc/cpuinfo, once.
#include "base/cpu_features.h"

#include <fstream>
#include <sstream>

namespace torch_xla::base {
namespace {

std::string read_features() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("flags") || line.starts_with("Features")) return line;
  }
  return {};
}

}  // namespace

const std::string& cpu_features() {
  static const auto* const features = new std::string(read_features());
  return *features;
}

bool has_cpu_feature(std::string_view name) {
  std::istringstream words(cpu_features());
  for (std::string word; words >> word;) {
    if (word == name) return true;
  }
  return false;
}

}  // namespace torch_xla::base

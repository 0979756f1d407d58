// Writing of log lines.
#include "base/log.h"

#include <cstdio>
#include <mutex>
#include <string>
#include <unordered_set>

namespace torch_xla::base {
namespace {

void write_line(std::string line) {
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

void log(std::string_view message) { write_line("torch_xla: " + std::string(message)); }

void warn(std::string_view message) { write_line("torch_xla: warning: " + std::string(message)); }

void warn_once(std::string_view message) { warn_once(message, message); }

void warn_once(std::string_view topic, std::string_view message) {
  static std::mutex mutex;
  // Never destroyed: a warning may come from a static destructor.
  static auto* const said = new std::unordered_set<std::string>();
  {
    const std::lock_guard lock(mutex);
    if (!said->emplace(topic).second) return;
  }
  warn(message);
}

}  // namespace torch_xla::base

// The table of lines.
#include "graph/location.h"

#include <deque>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace torch_xla::graph {
namespace {

struct LineHash {
  std::size_t operator()(const SourceLine& line) const {
    const std::hash<std::string> hash;
    return hash(line.frame.file) * 31 + static_cast<std::size_t>(line.frame.line) +
           hash(line.scope) * 7;
  }
};

struct Lines {
  std::mutex mutex;
  std::deque<SourceLine> lines{SourceLine{}};                  // under mutex; addresses stay
  std::unordered_map<SourceLine, Location, LineHash> numbers;  // under mutex
};

Lines& lines() {
  static auto* const instance = new Lines();
  return *instance;
}

thread_local Location noted = 0;

std::string& thread_scope() {
  thread_local std::string instance;
  return instance;
}

}  // namespace

Location intern(SourceLine line) {
  const std::lock_guard lock(lines().mutex);
  const auto next = static_cast<Location>(lines().lines.size());
  const auto [found, is_new] = lines().numbers.try_emplace(line, next);
  if (is_new) lines().lines.push_back(std::move(line));
  return found->second;
}

const SourceLine& source_line(Location location) {
  const std::lock_guard lock(lines().mutex);
  return lines().lines[location];
}

std::string to_string(Location location) {
  return location == 0 ? "" : base::to_string(source_line(location).frame);
}

Location current_location() {
  std::vector<base::Frame> frames = base::user_frames(1);
  if (frames.empty()) return 0;
  return intern({std::move(frames.front()), thread_scope()});
}

void note_location_slowly() { noted = current_location(); }

Location noted_location() { return noted; }

void set_scope(std::string scope) { thread_scope() = std::move(scope); }

const std::string& scope() { return thread_scope(); }

}  // namespace torch_xla::graph

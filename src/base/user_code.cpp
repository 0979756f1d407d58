// The one source of frames.
#include "base/user_code.h"

#include <utility>

#include "base/error.h"

namespace torch_xla::base {
namespace {

// Never destroyed: threads may still ask at exit.
FrameSource& source() {
  static auto* const instance = new FrameSource();
  return *instance;
}

}  // namespace

std::string to_string(const Frame& frame) { return str(frame.file, ":", frame.line); }

void set_frame_source(FrameSource new_source) { source() = std::move(new_source); }

std::vector<Frame> user_frames(std::size_t max) {
  return source() ? source()(max) : std::vector<Frame>();
}

std::string user_line() {
  const std::vector<Frame> frames = user_frames(1);
  return frames.empty() ? "" : to_string(frames.front());
}

}  // namespace torch_xla::base

// Where in the user's program the calling thread is. This library knows no language: the bindings
// give a source that walks Python's stack. Without one, or in a thread that runs no user code, the
// answer is empty.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace torch_xla::base {

struct Frame {
  std::string file;
  int line = 0;
  std::string function;
};

// "train.py:12".
std::string to_string(const Frame& frame);

// Gives the innermost frames first, at most `max`, those of this package and of PyTorch left out.
using FrameSource = std::function<std::vector<Frame>(std::size_t max)>;
// Once, before any thread asks. The source may take the interpreter's lock.
void set_frame_source(FrameSource source);

// Hold no lock while calling these: the source may wait for the interpreter's.
std::vector<Frame> user_frames(std::size_t max);
// The innermost frame as "train.py:12", or empty.
std::string user_line();

}  // namespace torch_xla::base

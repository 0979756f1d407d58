// Threads that help a call. The system wakes a thread of the plugin's where it slept or on the core
// of who wakes it, on a busy machine even while others are idle, and then neither goes on sooner.
#pragma once

#include <functional>

namespace torch_xla::aten {

// Has a thread call `job` on another core than this one; false, and nothing is done, if none is
// free or there is one core alone. `job` must not throw.
bool help_elsewhere(std::function<void()> job);

}  // namespace torch_xla::aten

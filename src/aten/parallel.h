// On which threads host kernels work: those that the plugin lends to calls, OpenMP's, or one.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/host_kernels.h"

namespace torch_xla::aten {

// Calls `body(begin, end)` for ranges that make up [0, count), of at least `grain` each but for the
// last, on several threads if there are several ranges: which ones depends on the numbers and on
// how many threads there are alone. Returns when all are done, or throws what one of them threw.
//
// A thread has several, since it may be held up by others of the machine, and comes late: to wake
// it takes as long as a range. With more the calling thread waits less; where each range prepares
// something, few are better.
void in_parallel(const runtime::HostCall& call, std::int64_t count, std::int64_t grain,
                 const std::function<void(std::int64_t, std::int64_t)>& body,
                 std::int64_t ranges_per_thread = 2);

// While one lives, PyTorch's kernels, and what they call, run on this thread alone. OpenMP's are
// asleep between two calls, and to wake them takes the time of a small kernel.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// Whether a second thread would take longer to come than it saves.
bool is_small(const runtime::HostCall& call);

}  // namespace torch_xla::aten

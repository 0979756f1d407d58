// Work of host kernels on the threads that the plugin lends to calls.
#pragma once

#include <cstdint>
#include <functional>

#include "runtime/host_kernels.h"

namespace torch_xla::aten {

// Calls `body(begin, end)` for ranges that make up [0, count), of at least `grain` each but for the
// last, on several threads if there are several ranges: which ones depends on the numbers and on
// how many threads there are alone. Returns when all are done, or throws what one of them threw.
void in_parallel(const runtime::HostCall& call, std::int64_t count, std::int64_t grain,
                 const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace torch_xla::aten

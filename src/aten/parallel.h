// Work of our own kernels on torch's threads. Its templates for that are serial where the compiler
// is not told of OpenMP, which is not ours to link.
#pragma once

#include <cstdint>
#include <functional>

namespace torch_xla::aten {

// Calls `body(begin, end)` for ranges that make up [0, count), of at least `grain` each but for the
// last, on several threads if there are several ranges. Returns when all are done.
void in_parallel(std::int64_t count, std::int64_t grain,
                 const std::function<void(std::int64_t, std::int64_t)>& body);

}  // namespace torch_xla::aten

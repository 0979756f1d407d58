// Cumulative sums of columns as a host kernel of our own: XLA's CPU backend takes a launch of its
// threads for each doubling of a window, and PyTorch's kernel walks down one column after the
// other. src/ops/cumulative.cpp emits the calls.
#include <algorithm>
#include <array>

#include "aten/call_arrays.h"
#include "aten/parallel.h"
#include "base/error.h"
#include "runtime/host_kernels.h"

namespace torch_xla::aten {
namespace {

using runtime::HostCall;

// So much is worth another thread.
constexpr std::int64_t kElementsPerThread = 32768;
// Whose sums are kept in float64, as PyTorch's are, while what they are of is read.
constexpr std::int64_t kColumns = 64;

// Down `size` rows of `width` columns, which lie `row` elements apart.
template <typename T>
void sum_columns(T* to, const T* from, std::int64_t size, std::int64_t width, std::int64_t row) {
  std::array<double, kColumns> sums = {};
  for (std::int64_t i = 0; i < size; ++i, to += row, from += row) {
    for (std::int64_t column = 0; column < width; ++column) {
      double& sum = sums[static_cast<std::size_t>(column)];
      sum += static_cast<double>(from[column]);
      to[column] = static_cast<T>(sum);
    }
  }
}

template <typename T>
void cumsum_of(const HostCall& call) {
  const auto self = call.input(0);
  const auto dim = static_cast<std::size_t>(call.integer("dim"));
  const std::int64_t size = self.dims[dim];
  std::int64_t inner = 1;
  for (std::size_t i = dim + 1; i < self.dims.size(); ++i) inner *= self.dims[i];
  const std::int64_t outer = count_of(self) / (size * inner);
  const std::int64_t blocks = (inner + kColumns - 1) / kColumns;  // of columns, for each of outer
  const std::int64_t grain = kElementsPerThread / (size * std::min(inner, kColumns)) + 1;
  const T* const from = data_of<const T>(self);
  T* const to = data_of<T>(call.output(0));
  in_parallel(call, outer * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t column = block % blocks * kColumns;
      const std::int64_t start = block / blocks * size * inner + column;
      sum_columns(to + start, from + start, size, std::min(kColumns, inner - column), inner);
    }
  });
}

void cumsum(const HostCall& call) {
  switch (call.input(0).dtype) {
    case base::DType::kFloat32: return cumsum_of<float>(call);
    case base::DType::kFloat64: return cumsum_of<double>(call);
    default: base::internal_check(false, "cumsum: no kernel for the dtype");
  }
}

const bool registered = [] {
  runtime::add_host_kernel("torch_xla.cumsum", cumsum);
  return true;
}();

}  // namespace
}  // namespace torch_xla::aten

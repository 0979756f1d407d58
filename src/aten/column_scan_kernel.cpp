// Scans of columns as host kernels of our own: XLA's CPU backend takes a launch of its threads for
// each doubling of a window, and PyTorch's kernels walk down one column after the other.
// src/ops/cumulative.cpp emits the calls.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <array>

#include "aten/call_arrays.h"
#include "aten/parallel.h"
#include "base/error.h"
#include "runtime/host_kernels.h"

namespace torch_xla::aten {
namespace {

using base::DType;
using runtime::HostCall;

// So much is worth another thread.
constexpr std::int64_t kElementsPerThread = 32768;
// Scanned together.
constexpr std::int64_t kColumns = 64;

// One number for each column.
template <typename T>
using PerColumn = std::array<T, kColumns>;

// `width` columns of `size` elements that lie `row` apart, the first of them at `start`.
struct Columns {
  std::int64_t start;
  std::int64_t size;
  std::int64_t width;
  std::int64_t row;

  // Calls `body` with the places of an element and of its column.
  template <typename Body>
  void for_row(std::int64_t i, const Body& body) const {
    for (std::int64_t column = 0; column < width; ++column) {
      body(start + i * row + column, static_cast<std::size_t>(column));
    }
  }
};

template <typename Body>
void for_columns(const HostCall& call, const Body& body) {
  const auto self = call.input(0);
  const auto dim = static_cast<std::size_t>(call.integer("dim"));
  const std::int64_t size = self.dims[dim];
  std::int64_t inner = 1;
  for (std::size_t i = dim + 1; i < self.dims.size(); ++i) inner *= self.dims[i];
  const std::int64_t outer = count_of(self) / (size * inner);
  const std::int64_t blocks = (inner + kColumns - 1) / kColumns;  // for each of `outer`
  const std::int64_t grain = kElementsPerThread / (size * std::min(inner, kColumns)) + 1;
  in_parallel(call, outer * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t column = block % blocks * kColumns;
      body(Columns{block / blocks * size * inner + column, size, std::min(kColumns, inner - column),
                   inner});
    }
  });
}

// Sums are kept in float64, as PyTorch's are.
template <typename T>
void cumsum_of(const HostCall& call) {
  const T* const from = data_of<const T>(call.input(0));
  T* const to = data_of<T>(call.output(0));
  for_columns(call, [=](const Columns& columns) {
    PerColumn<double> sums = {};
    for (std::int64_t i = 0; i < columns.size; ++i) {
      columns.for_row(i, [&](std::int64_t place, std::size_t column) {
        sums[column] += static_cast<double>(from[place]);
        to[place] = static_cast<T>(sums[column]);
      });
    }
  });
}

void cumsum(const HostCall& call) {
  switch (call.input(0).dtype) {
    case DType::kFloat32: return cumsum_of<float>(call);
    case DType::kFloat64: return cumsum_of<double>(call);
    default: base::internal_check(false, "cumsum: no kernel for the dtype");
  }
}

// The greatest or least so far, and where it was last; a NaN stays until the next one.
template <typename T, bool is_greatest>
void extremum_of(const HostCall& call) {
  const T* const from = data_of<const T>(call.input(0));
  T* const values = data_of<T>(call.output(0));
  auto* const places = data_of<std::int64_t>(call.output(1));
  for_columns(call, [=](const Columns& columns) {
    PerColumn<T> best;
    PerColumn<std::int64_t> where = {};
    columns.for_row(0, [&](std::int64_t place, std::size_t column) { best[column] = from[place]; });
    for (std::int64_t i = 0; i < columns.size; ++i) {
      columns.for_row(i, [&](std::int64_t place, std::size_t column) {
        const T x = from[place];
        const T before = best[column];
        const bool is_better = is_greatest ? x >= before : x <= before;
        const bool is_taken = is_better || x != x;
        values[place] = best[column] = is_taken ? x : before;
        places[place] = where[column] = is_taken ? i : where[column];
      });
    }
  });
}

template <bool is_greatest>
void extremum(const HostCall& call) {
  switch (call.input(0).dtype) {
    case DType::kFloat32: return extremum_of<float, is_greatest>(call);
    case DType::kFloat64: return extremum_of<double, is_greatest>(call);
    case DType::kBFloat16: return extremum_of<c10::BFloat16, is_greatest>(call);
    case DType::kFloat16: return extremum_of<c10::Half, is_greatest>(call);
    case DType::kInt64: return extremum_of<std::int64_t, is_greatest>(call);
    default: base::internal_check(false, "cummax: no kernel for the dtype");
  }
}

const bool registered = [] {
  runtime::add_host_kernel("torch_xla.cumsum", cumsum);
  runtime::add_host_kernel("torch_xla.cummax", extremum<true>);
  runtime::add_host_kernel("torch_xla.cummin", extremum<false>);
  return true;
}();

}  // namespace
}  // namespace torch_xla::aten

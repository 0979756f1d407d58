// Copies of transposed views as a host kernel of our own: XLA's CPU backend writes one element
// after the other, and PyTorch's kernel can't write where it is told to. src/ops/shape.cpp emits
// the calls.
#include <algorithm>
#include <span>
#include <vector>

#include "aten/call_arrays.h"
#include "aten/merged_dims.h"
#include "aten/parallel.h"
#include "base/error.h"
#include "runtime/host_kernels.h"

namespace torch_xla::aten {
namespace {

using runtime::HostCall;

// So much is worth another thread.
constexpr std::int64_t kElementsPerThread = 65536;
// What is moved together: so many of the operand's rows stay in the nearest cache while all that is
// taken of them is written.
constexpr std::int64_t kTileRows = 32;
constexpr std::int64_t kTileColumns = 64;

std::vector<MergedDim> dims_of_transposed(std::span<const std::int64_t> self,
                                          std::span<const std::int64_t> permutation) {
  std::vector<std::int64_t> strides(self.size());
  std::int64_t stride = 1;
  for (std::size_t i = self.size(); i-- > 0; stride *= self[i]) strides[i] = stride;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> distances;
  for (const std::int64_t source : permutation) {
    sizes.push_back(self[static_cast<std::size_t>(source)]);
    distances.push_back(strides[static_cast<std::size_t>(source)]);
  }
  return merged_dims(sizes, distances);
}

// `rows` of the operand, `row` elements apart, as columns of the result, whose rows are `column`
// elements apart.
template <typename T>
void move_tile(T* to, const T* from, std::int64_t rows, std::int64_t columns, std::int64_t row,
               std::int64_t column) {
  for (std::int64_t j = 0; j < columns; ++j) {
    for (std::int64_t i = 0; i < rows; ++i) to[j * column + i] = from[i * row + j];
  }
}

// Where what is left of the dimensions beside the two of a tile begins.
struct Start {
  std::int64_t from = 0;
  std::int64_t to = 0;
};
Start start_of(std::int64_t index, const std::vector<MergedDim>& outer) {
  Start start;
  for (const MergedDim& dim : outer) {
    start.from += index % dim.size * dim.from;
    start.to += index % dim.size * dim.to;
    index /= dim.size;
  }
  return start;
}

template <typename T>
void transpose_of(const HostCall& call) {
  const auto self = call.input(0);
  std::vector<MergedDim> outer = dims_of_transposed(self.dims, call.integers("permutation"));
  T* const to = static_cast<T*>(call.output(0).data);
  const T* const from = static_cast<const T*>(self.data);
  // The result's last dimension, and the operand's.
  const MergedDim rows = outer.front();
  outer.erase(outer.begin());
  const auto last = std::ranges::find(outer, 1, &MergedDim::from);
  base::internal_check(last != outer.end(), "transpose: the last dimension stays the last");
  const MergedDim columns = *last;
  outer.erase(last);
  std::int64_t num_outer = 1;
  for (const MergedDim& dim : outer) num_outer *= dim.size;
  const std::int64_t bands = (columns.size + kTileColumns - 1) / kTileColumns;
  const std::int64_t band_elements = rows.size * std::min(columns.size, kTileColumns);
  in_parallel(
      call, num_outer * bands, std::max<std::int64_t>(1, kElementsPerThread / band_elements),
      [&](std::int64_t begin, std::int64_t end) {
        for (; begin < end; ++begin) {
          const Start start = start_of(begin / bands, outer);
          const std::int64_t j = begin % bands * kTileColumns;
          for (std::int64_t i = 0; i < rows.size; i += kTileRows) {
            move_tile(to + start.to + j * columns.to + i, from + start.from + i * rows.from + j,
                      std::min(kTileRows, rows.size - i), std::min(kTileColumns, columns.size - j),
                      rows.from, columns.to);
          }
        }
      });
}

void transpose(const HostCall& call) {
  with_element_of(call.input(0), [&](auto element) { transpose_of<decltype(element)>(call); });
}

const bool registered = [] {
  runtime::add_host_kernel("torch_xla.transpose", transpose);
  return true;
}();

}  // namespace
}  // namespace torch_xla::aten

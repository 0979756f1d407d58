// Writes by index as a host kernel of our own: PyTorch's raise where an index is out of range, ours
// write nothing there. src/ops/scatter_call.cpp emits the calls.
#include <algorithm>
#include <array>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "aten/call_arrays.h"
#include "aten/parallel.h"
#include "base/error.h"
#include "rows/half_rows.h"
#include "rows/lanes.h"
#include "runtime/host_kernels.h"

namespace torch_xla::aten {
namespace {

using base::DType;
using runtime::HostCall;

// So much is worth another thread.
constexpr std::int64_t kUpdatesPerThread = 16384;
constexpr std::int64_t kElementsPerThread = 65536;
// What is copied and then written to is to stay in a cache.
constexpr std::int64_t kRangesPerThread = 8;

// What lies before and behind the dimension that the index is along.
struct Sizes {
  std::int64_t outer = 1;
  std::int64_t size = 1;     // of that dimension, in the tensor
  std::int64_t updates = 1;  // of that dimension, in the index
  std::int64_t inner = 1;
  bool are_slices = false;  // the index is a vector, with a place for whole slices
};

Sizes sizes_of(std::span<const std::int64_t> self, std::span<const std::int64_t> index,
               std::size_t dim) {
  Sizes sizes;
  for (std::size_t i = 0; i < dim; ++i) sizes.outer *= self[i];
  for (std::size_t i = dim + 1; i < self.size(); ++i) sizes.inner *= self[i];
  sizes.are_slices = index.size() < self.size();
  sizes.size = self[dim];
  sizes.updates = index[sizes.are_slices ? 0 : dim];
  return sizes;
}

// Runs `body(o, begin, end)` for ranges of columns; no two threads have one column, so that writes
// to one place stay in order.
template <typename Body>
void for_columns(const HostCall& call, const Sizes& sizes, const Body& body) {
  const std::int64_t grain = std::max<std::int64_t>(1, kUpdatesPerThread / sizes.updates);
  in_parallel(call, sizes.outer * sizes.inner, grain, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const std::int64_t o = begin / sizes.inner;
      const std::int64_t stop = std::min(end, (o + 1) * sizes.inner);
      body(o, begin - o * sizes.inner, stop - o * sizes.inner);
      begin = stop;
    }
  });
}

template <typename T>
void copy(const HostCall& call, T* to, const T* from, std::int64_t count) {
  in_parallel(call, count, kElementsPerThread, [&](std::int64_t begin, std::int64_t end) {
    std::copy(from + begin, from + end, to + begin);
  });
}

// `step` is 0 where one number is written everywhere.
template <typename T, typename Index, typename Combine>
void write(const HostCall& call, T* out, const Index* index, const T* updates, std::int64_t step,
           const Sizes& sizes, Combine combine) {
  for_columns(call, sizes, [&](std::int64_t o, std::int64_t begin, std::int64_t end) {
    T* const base = out + o * sizes.size * sizes.inner;
    for (std::int64_t i = 0; i < sizes.updates; ++i) {
      const std::int64_t row = (o * sizes.updates + i) * sizes.inner;
      for (std::int64_t column = begin; column < end; ++column) {
        const std::int64_t place = index[row + column];
        if (place < 0 || place >= sizes.size) continue;
        T& element = base[place * sizes.inner + column];
        element = combine(element, updates[(row + column) * step]);
      }
    }
  });
}

// What the index has for each place of the dimension, in its order.
struct Lists {
  std::vector<std::int64_t> first;  // of a place; -1 is the end of a list
  std::vector<std::int64_t> next;   // of an element of the index

  template <typename Index>
  Lists(const Index* index, const Sizes& sizes)
      : first(static_cast<std::size_t>(sizes.size), -1),
        next(static_cast<std::size_t>(sizes.updates)) {
    for (std::size_t i = next.size(); i-- > 0;) {
      if (index[i] < 0 || index[i] >= sizes.size) continue;
      std::int64_t& head = first[static_cast<std::size_t>(index[i])];
      next[i] = std::exchange(head, static_cast<std::int64_t>(i));
    }
  }
};

template <typename T, typename Combine>
void combine_slice(T* to, const T* from, std::int64_t count, Combine combine) {
  if constexpr (std::is_arithmetic_v<T>) {
    namespace rows = rows::TORCH_XLA_ROWS;
    rows::for_row<T>(count, [&]<typename V>(std::int64_t i) {
      rows::store(to + i, V(combine(rows::load<V>(to + i), rows::load<V>(from + i))));
    });
  } else {
    std::transform(to, to + count, from, to, combine);
  }
}

// Of half precision there are sums alone.
template <typename T>
constexpr bool is_half = std::is_same_v<T, rows::Float16> || std::is_same_v<T, rows::BFloat16>;

// Combines elements of a list, `count` numbers each, into what `to` holds.
template <typename T, typename Combine>
void combine_list(T* to, const T* updates, std::int64_t count, std::int64_t i, const Lists& lists,
                  Combine combine) {
  const auto for_list = [&](const auto& body) {
    for (; i >= 0; i = lists.next[static_cast<std::size_t>(i)]) body(updates + i * count);
  };
  if constexpr (is_half<T>) {
    const auto& rows = rows::half_rows<T>();
    std::vector<float> sums(static_cast<std::size_t>(count));
    rows.widen(sums.data(), to, count);
    for_list([&](const T* from) { rows.add(sums.data(), from, count); });
    rows.round(to, sums.data(), count);
  } else {
    for_list([&](const T* from) { combine_slice(to, from, count, combine); });
  }
}

// Copies slices of the tensor and combines what the index has for them: no two threads have one.
template <typename T, typename Index, typename Combine>
void write_slices(const HostCall& call, T* out, const T* self, const Index* index, const T* updates,
                  const Sizes& sizes, Combine combine) {
  const std::int64_t inner = sizes.inner;
  const Lists lists(index, sizes);
  const auto write_some = [&](std::int64_t begin, std::int64_t end) {
    std::copy(self + begin * inner, self + end * inner, out + begin * inner);
    for (std::int64_t slice = begin; slice < end; ++slice) {
      const std::int64_t o = slice / sizes.size;
      const std::int64_t first = lists.first[static_cast<std::size_t>(slice - o * sizes.size)];
      if (first < 0) continue;
      combine_list(out + slice * inner, updates + o * sizes.updates * inner, inner, first, lists,
                   combine);
    }
  };
  const std::int64_t grain = kElementsPerThread / std::max<std::int64_t>(inner, 1) + 1;
  in_parallel(call, sizes.outer * sizes.size, grain, write_some, kRangesPerThread);
}

template <typename T, typename Combine>
void scatter_of(const HostCall& call, Combine combine) {
  const auto self = call.input(0);
  const auto index = call.input(1);
  const auto updates = call.input(2);
  const Sizes sizes =
      sizes_of(self.dims, index.dims, static_cast<std::size_t>(call.integer("dim")));
  T* const out = data_of<T>(call.output(0));
  const std::int64_t step = updates.dims.empty() ? 0 : 1;
  const auto write_by = [&](const auto* places) {
    if (sizes.are_slices) {
      write_slices(call, out, data_of<const T>(self), places, data_of<const T>(updates), sizes,
                   combine);
      return;
    }
    if constexpr (is_half<T>) {
      base::internal_check(false, "scatter: no kernel for single elements of half precision");
    } else {
      copy(call, out, data_of<const T>(self), count_of(self));
      write(call, out, places, data_of<const T>(updates), step, sizes, combine);
    }
  };
  if (index.dtype == DType::kInt32) {
    write_by(data_of<const std::int32_t>(index));
  } else {
    write_by(data_of<const std::int64_t>(index));
  }
}

void scatter_add(const HostCall& call) {
  switch (call.input(0).dtype) {
    case DType::kFloat32: return scatter_of<float>(call, std::plus<>());
    case DType::kFloat64: return scatter_of<double>(call, std::plus<>());
    // Sums of integers wrap around.
    case DType::kInt32: return scatter_of<std::uint32_t>(call, std::plus<>());
    case DType::kInt64: return scatter_of<std::uint64_t>(call, std::plus<>());
    case DType::kFloat16: return scatter_of<rows::Float16>(call, std::plus<>());
    case DType::kBFloat16: return scatter_of<rows::BFloat16>(call, std::plus<>());
    default: base::internal_check(false, "scatter_add: no kernel for the dtype");
  }
}

void scatter(const HostCall& call) {
  const auto second = [](auto, auto update) { return update; };
  with_element_of(call.input(0),
                  [&](auto element) { scatter_of<decltype(element)>(call, second); });
}

const bool registered = [] {
  runtime::add_host_kernel("torch_xla.scatter", scatter);
  runtime::add_host_kernel("torch_xla.scatter_add", scatter_add);
  return true;
}();

}  // namespace
}  // namespace torch_xla::aten

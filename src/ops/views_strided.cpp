// Views through strides: as_strided and unfold. Most strides that programs ask for are nested, each
// a multiple of the extent below it, and become reshapes and slices of the storage; only those that
// overlap or interleave need a gather, and most writes need a scatter.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ops/at.h"
#include "ops/indexing.h"
#include "ops/views.h"

namespace torch_xla::ops {
namespace {

using base::check;

struct StridedDim {
  std::int64_t size;
  std::int64_t stride;
  std::int64_t place;  // in the result
};

// Dimensions from the greatest stride to the least; among equals the order is kept.
Dims memory_order(const Dims& strides) {
  Dims order(strides.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return strides[at(a)] > strides[at(b)]; });
  return order;
}

// The elements as they lie in memory.
Value to_storage(Value self, const Dims& root_strides) {
  return hlo::reshape(permute(self, memory_order(root_strides)), {self.num_elements()});
}

Value from_storage(Value storage, const Dims& dims, const Dims& root_strides) {
  const Dims order = memory_order(root_strides);
  Dims sizes;
  for (const std::int64_t d : order) sizes.push_back(dims[at(d)]);
  return permute(hlo::reshape(storage, sizes), inverse_permutation(order));
}

std::int64_t extent(const Dims& sizes, const Dims& strides) {
  std::int64_t out = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) out += (sizes[i] - 1) * strides[i];
  return out;
}

void check_in_storage(const Dims& sizes, const Dims& strides, std::int64_t offset,
                      std::int64_t storage_size, DType dtype) {
  const std::int64_t bytes = base::size_bytes(dtype);
  check(offset + extent(sizes, strides) <= storage_size, "setStorage: sizes ",
        base::to_string(sizes), ", strides ", base::to_string(strides), ", storage offset ", offset,
        ", and itemsize ", bytes, " requiring a storage size of ",
        (offset + extent(sizes, strides)) * bytes, " are out of bounds for storage of size ",
        storage_size * bytes);
}

// Elements [start, start + length) of the last dimension; zeros where it has ended, which no
// element of a view reads.
Value window_of_last_dim(Value value, std::int64_t start, std::int64_t length) {
  const std::int64_t last = value.rank() - 1;
  const std::int64_t limit = std::min(start + length, value.dim(last));
  value = slice_dim(value, last, start, limit);
  if (limit - start == length) return value;
  const Dims zeros(at(value.rank()), 0);
  return hlo::pad(value, scalar(value.builder(), value.dtype(), 0), zeros,
                  with_dim(zeros, last, length - (limit - start)));
}

Value split_last_dim(Value value, std::int64_t rows, std::int64_t columns) {
  Dims dims = leading_dims(value.dims(), 1);
  dims.push_back(rows);
  dims.push_back(columns);
  return hlo::reshape(value, dims);
}

// The last dimension of `value` taken apart along `dims` (strides falling, nested) from `offset`.
Value take_nested(Value value, std::span<const StridedDim> dims, std::int64_t offset) {
  const std::int64_t last = value.rank() - 1;
  if (dims.empty()) return remove_dim(slice_dim(value, last, offset, offset + 1), last);
  const auto [size, stride, place] = dims.front();
  if (dims.size() == 1) {
    return slice_dim(value, last, offset, offset + (size - 1) * stride + 1, stride);
  }
  std::int64_t inner = 1;
  for (const StridedDim& d : dims.subspan(1)) inner += (d.size - 1) * d.stride;
  // Rows that start at multiples of the stride need no copy when the view stays within them.
  std::int64_t column = offset % stride;
  if (column + inner > stride) column = 0;
  const Value rows =
      split_last_dim(window_of_last_dim(value, offset - column, size * stride), size, stride);
  return take_nested(rows, dims.subspan(1), column);
}

// A view's dimensions as take_nested wants them: those of size 1 and stride 0 left out, sorted,
// and neighbours that are one run of memory merged.
struct NestedView {
  std::vector<StridedDim> dims;  // sorted, not merged
  std::vector<StridedDim> merged;
  bool is_nested = true;

  NestedView(const Dims& sizes, const Dims& strides) {
    for (const std::int64_t d : memory_order(strides)) {
      if (sizes[at(d)] != 1 && strides[at(d)] != 0) {
        dims.push_back({sizes[at(d)], strides[at(d)], d});
      }
    }
    for (const StridedDim& d : dims) {
      if (!merged.empty() && merged.back().stride == d.size * d.stride) {
        merged.back().size *= d.size;
        merged.back().stride = d.stride;
      } else {
        merged.push_back(d);
      }
    }
    std::int64_t inner = 1;
    for (auto d = merged.rbegin(); d != merged.rend(); ++d) {
      is_nested = is_nested && d->stride >= inner;
      inner += (d->size - 1) * d->stride;
    }
  }
};

Value take_strided(Value storage, const Dims& sizes, const NestedView& view, std::int64_t offset) {
  Value out = take_nested(storage, view.merged, offset);
  Dims split;
  Dims order(view.dims.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return view.dims[at(a)].place < view.dims[at(b)].place;
  });
  Dims places;
  for (const StridedDim& d : view.dims) split.push_back(d.size);
  for (const std::int64_t d : order) places.push_back(view.dims[at(d)].place);
  return hlo::broadcast_in_dim(permute(hlo::reshape(out, split), order), sizes, places);
}

// offset + sum of i_k * strides_k for every element of a tensor of the given sizes.
Value storage_indices(hlo::Builder& builder, const Dims& sizes, const Dims& strides, Value offset) {
  const Shape shape{DType::kInt64, sizes};
  Value out = hlo::broadcast_in_dim(offset, sizes, {});
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] <= 1 || strides[d] == 0) continue;
    const Value position = hlo::iota(builder, shape, static_cast<std::int64_t>(d));
    out = hlo::add(out, hlo::multiply(position, hlo::full(builder, shape, strides[d])));
  }
  return out;
}

}  // namespace

Value as_strided_view(Value self, const Dims& root_strides, const Dims& sizes, const Dims& strides,
                      const Promotable& storage_offset) {
  hlo::Builder& builder = self.builder();
  if (base::num_elements(sizes) == 0) {
    return hlo::full(builder, Shape{self.dtype(), sizes}, 0);
  }
  Value storage = to_storage(self, root_strides);
  const NestedView view(sizes, strides);
  std::int64_t offset = 0;
  if (storage_offset.is_constant()) {
    offset = storage_offset.constant().to<std::int64_t>();
    check_in_storage(sizes, strides, offset, storage.dim(0), self.dtype());
  } else if (view.is_nested) {
    storage = slice_view(storage, 0, storage_offset, extent(sizes, strides), 1);
  }
  if (view.is_nested) return take_strided(storage, sizes, view, offset);
  const Value start = storage_offset.value(builder, DType::kInt64);
  return gather_elements(storage, storage_indices(builder, sizes, strides, start));
}

Value as_strided_write(Value parent, Value update, const Dims& root_strides, const Dims& sizes,
                       const Dims& strides, const Promotable& storage_offset) {
  hlo::Builder& builder = parent.builder();
  if (update.num_elements() == 0) return parent;
  const NestedView view(sizes, strides);
  // Strides that are not nested may repeat an element.
  bool has_repeats = !view.is_nested;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    has_repeats = has_repeats || (strides[d] == 0 && sizes[d] > 1);
  }
  if (view.merged.size() <= 1 && !has_repeats && update.num_elements() == parent.num_elements()) {
    // Every element is written, so only their order matters.
    return from_storage(
        hlo::reshape(permute(update, memory_order(strides)), {parent.num_elements()}),
        parent.dims(), root_strides);
  }
  const Value storage = to_storage(parent, root_strides);
  if (storage_offset.is_constant()) {
    check_in_storage(sizes, strides, storage_offset.constant().to<std::int64_t>(), storage.dim(0),
                     parent.dtype());
  }
  const Value start = storage_offset.value(builder, DType::kInt64);
  Value indices = storage_indices(builder, sizes, strides, start);
  if (has_repeats) {
    const Value changed = changed_elements(gather_elements(storage, indices), update);
    indices = hlo::select(changed, indices, full_like(indices, parent.num_elements()));
  }
  const Value written = scatter_elements(storage, indices, update, replace);
  return from_storage(written, parent.dims(), root_strides);
}

namespace {

std::int64_t num_windows(std::int64_t dim_size, std::int64_t size, std::int64_t step) {
  return (dim_size - size) / step + 1;
}

// The strides of a dense tensor with dimension `dim` last.
Dims dense_strides_dim_last(const Dims& dims, std::int64_t dim) {
  Dims strides(dims.size());
  strides[at(dim)] = 1;
  std::int64_t next = dims[at(dim)];
  for (auto d = static_cast<std::int64_t>(dims.size()) - 1; d >= 0; --d) {
    if (d == dim) continue;
    strides[at(d)] = next;
    next *= dims[at(d)];
  }
  return strides;
}

struct Windows {
  Dims sizes;
  Dims strides;
  Dims root_strides;

  Windows(const Dims& dims, std::int64_t dim, std::int64_t size, std::int64_t step)
      : root_strides(dense_strides_dim_last(dims, dim)) {
    sizes = with_dim(dims, dim, num_windows(dims[at(dim)], size, step));
    sizes.push_back(size);
    strides = with_dim(root_strides, dim, step);
    strides.push_back(1);
  }
};

// Up to this many windows or window elements are taken by one slice each, not by a gather.
constexpr std::int64_t kMaxSlices = 16;

// The windows one by one, or their first elements, their second elements and so on.
Value stack_windows(Value self, std::int64_t dim, std::int64_t size, std::int64_t step) {
  const std::int64_t count = num_windows(self.dim(dim), size, step);
  hlo::Values parts;
  if (count <= size) {
    for (std::int64_t i = 0; i < count; ++i) {
      const Value window = slice_dim(self, dim, i * step, i * step + size);
      parts.push_back(insert_dim(move_dim(window, dim, self.rank() - 1), dim));
    }
    return parts.size() == 1 ? parts[0] : hlo::concatenate(parts, dim);
  }
  for (std::int64_t k = 0; k < size; ++k) {
    const std::int64_t limit = k + (count - 1) * step + 1;
    parts.push_back(insert_dim(slice_dim(self, dim, k, limit, step), self.rank()));
  }
  return parts.size() == 1 ? parts[0] : hlo::concatenate(parts, self.rank());
}

}  // namespace

Value unfold_view(Value self, std::int64_t dim, std::int64_t size, std::int64_t step) {
  if (self.rank() == 0) return slice_dim(insert_dim(self, 0), 0, 0, size);
  const std::int64_t count = num_windows(self.dim(dim), size, step);
  if (step < size && count > 0 && std::min(count, size) <= kMaxSlices) {
    return stack_windows(self, dim, size, step);
  }
  const Windows windows(self.dims(), dim, size, step);
  return as_strided_view(self, windows.root_strides, windows.sizes, windows.strides,
                         Promotable(Scalar(0)));
}

Value unfold_write(Value parent, Value update, std::int64_t dim, std::int64_t size,
                   std::int64_t step) {
  if (update.num_elements() == 0) return parent;
  if (parent.rank() == 0) return hlo::reshape(update, {});
  if (size <= kMaxSlices) {
    const std::int64_t count = num_windows(parent.dim(dim), size, step);
    const std::int64_t last = update.rank() - 1;
    const bool overlaps = step < size && count > 1;
    const Value changed =
        overlaps ? changed_elements(unfold_view(parent, dim, size, step), update) : Value();
    for (std::int64_t k = 0; k < size; ++k) {
      const Promotable start{Scalar(k)};
      Value element = remove_dim(slice_dim(update, last, k, k + 1), last);
      if (overlaps) {
        element = hlo::select(remove_dim(slice_dim(changed, last, k, k + 1), last), element,
                              slice_view(parent, dim, start, count, step));
      }
      parent = slice_write(parent, element, dim, start, count, step);
    }
    return parent;
  }
  const Windows windows(parent.dims(), dim, size, step);
  return as_strided_write(parent, update, windows.root_strides, windows.sizes, windows.strides,
                          Promotable(Scalar(0)));
}

namespace {

// Windows that do not meet, put in a row along `dim`.
Value join_windows(Value grad, const Dims& sizes, std::int64_t dim, std::int64_t step) {
  hlo::Builder& builder = grad.builder();
  const Value zero = scalar(builder, grad.dtype(), 0);
  const std::int64_t last = grad.rank() - 1;
  const Dims none(at(grad.rank()), 0);
  const Value spread = hlo::pad(grad, zero, none, with_dim(none, last, step - grad.dim(last)));
  const std::int64_t covered = grad.dim(dim) * step;
  const Value row = hlo::reshape(move_dim(spread, last, dim + 1), with_dim(sizes, dim, covered));
  const Dims none_left(sizes.size(), 0);
  return hlo::pad(row, zero, none_left, with_dim(none_left, dim, sizes[at(dim)] - covered));
}

}  // namespace

Value unfold_gradient(Value grad, const Dims& sizes, std::int64_t dim, std::int64_t size,
                      std::int64_t step) {
  hlo::Builder& builder = grad.builder();
  const Value zero = scalar(builder, grad.dtype(), 0);
  if (grad.num_elements() == 0) return hlo::broadcast_in_dim(zero, sizes, {});
  if (sizes.empty()) return hlo::reshape(grad, {});
  if (step >= size) return join_windows(grad, sizes, dim, step);
  const std::int64_t last = grad.rank() - 1;
  const std::int64_t count = grad.dim(dim);
  const Dims none(sizes.size(), 0);
  if (size <= kMaxSlices) {
    Value sum;
    for (std::int64_t k = 0; k < size; ++k) {
      const std::int64_t high = sizes[at(dim)] - k - ((count - 1) * step + 1);
      const Value part =
          hlo::pad(remove_dim(slice_dim(grad, last, k, k + 1), last), zero, with_dim(none, dim, k),
                   with_dim(none, dim, high), with_dim(none, dim, step - 1));
      sum = sum ? hlo::add(sum, part) : part;
    }
    return sum;
  }
  const Windows windows(sizes, dim, size, step);
  const Value flat = hlo::broadcast_in_dim(zero, {base::num_elements(sizes)}, {});
  const Value indices =
      storage_indices(builder, windows.sizes, windows.strides, scalar(builder, DType::kInt64, 0));
  return from_storage(scatter_elements(flat, indices, grad, hlo::add), sizes, windows.root_strides);
}

}  // namespace torch_xla::ops

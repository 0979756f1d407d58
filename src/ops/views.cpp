// View operators: each as the recording layer names it once a view's arguments are resolved
// ("view:slice", with a start that is normalised and in range), and its inverse
// ("view:slice:inverse"), which takes the parent's value and the view's new value and gives the
// parent's new value. Views through strides are in views_strided.cpp.
#include "ops/views.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"
#include "hlo/in_place.h"
#include "ops/at.h"

namespace torch_xla::ops {
namespace {

using base::check;

// One index per dimension: `start` in dimension `dim`, 0 elsewhere.
hlo::Values start_indices(const Value& operand, std::int64_t dim, const Promotable& start) {
  hlo::Builder& builder = operand.builder();
  hlo::Values out(at(operand.rank()), scalar(builder, DType::kInt64, 0));
  out[at(dim)] = start.value(builder, DType::kInt64);
  return out;
}

// The number of elements from the first to the last of a strided slice, both included.
std::int64_t span_of(std::int64_t length, std::int64_t step) {
  return length == 0 ? 0 : (length - 1) * step + 1;
}

// `update` spread over every step-th place from `start` on, in a parent kept in between.
Value interleave(Value parent, Value update, std::int64_t dim, std::int64_t start,
                 std::int64_t step) {
  hlo::Builder& builder = parent.builder();
  const std::int64_t size = parent.dim(dim);
  const std::int64_t length = update.dim(dim);
  const std::int64_t high = size - start - span_of(length, step);
  const Dims zeros(at(parent.rank()), 0);
  const Value spread =
      hlo::pad(update, scalar(builder, parent.dtype(), 0), with_dim(zeros, dim, start),
               with_dim(zeros, dim, high), with_dim(zeros, dim, step - 1));
  const Value written = hlo::pad(hlo::full(builder, Shape{DType::kBool, {length}}, true),
                                 scalar(builder, DType::kBool, false), {start}, {high}, {step - 1});
  return hlo::select(hlo::broadcast_in_dim(written, parent.dims(), {dim}), spread, parent);
}

Value bool_as_byte(Value value) {
  return value.dtype() == DType::kBool ? convert(value, DType::kUInt8) : value;
}

// Reinterprets the bytes of a 1- or more-dimensional tensor that is neither bool nor complex.
Value bitcast_last_dim(Value self, DType dtype) {
  const int from = base::size_bytes(self.dtype());
  const int to = base::size_bytes(dtype);
  if (from == to) return hlo::bitcast_convert(self, dtype);
  const std::int64_t last = self.rank() - 1;
  if (from > to) {
    const Dims dims = with_dim(self.dims(), last, self.dim(last) * (from / to));
    return hlo::reshape(hlo::bitcast_convert(self, dtype), dims);
  }
  const std::int64_t ratio = to / from;
  check(self.dim(last) % ratio == 0, "self.size(-1) must be divisible by ", ratio, " to view ",
        base::dtype_info(self.dtype()).name, " as ", base::dtype_info(dtype).name,
        " (different element sizes), but got ", self.dim(last));
  Dims split = with_dim(self.dims(), last, self.dim(last) / ratio);
  split.push_back(ratio);
  return hlo::bitcast_convert(hlo::reshape(self, split), dtype);
}

}  // namespace

Dims without_dim(const Dims& dims, std::int64_t dim) {
  Dims out = dims;
  out.erase(out.begin() + dim);
  return out;
}

Dims with_dim(const Dims& dims, std::int64_t dim, std::int64_t size) {
  Dims out = dims;
  out[at(dim)] = size;
  return out;
}

Value slice_dim(Value self, std::int64_t dim, std::int64_t start, std::int64_t limit,
                std::int64_t step) {
  if (start == 0 && limit == self.dim(dim) && step == 1) return self;
  const Dims zeros(at(self.rank()), 0);
  const Dims ones(at(self.rank()), 1);
  return hlo::slice(self, with_dim(zeros, dim, start), with_dim(self.dims(), dim, limit),
                    with_dim(ones, dim, step));
}

Value insert_dim(Value self, std::int64_t dim) {
  Dims dims = self.dims();
  dims.insert(dims.begin() + dim, 1);
  return hlo::reshape(self, dims);
}

Value remove_dim(Value self, std::int64_t dim) {
  return hlo::reshape(self, without_dim(self.dims(), dim));
}

Value permute(Value self, const Dims& permutation) {
  return std::is_sorted(permutation.begin(), permutation.end()) ? self
                                                                : hlo::transpose(self, permutation);
}

Dims move_permutation(std::int64_t rank, std::int64_t from, std::int64_t to) {
  Dims out(at(rank));
  std::iota(out.begin(), out.end(), 0);
  out.erase(out.begin() + from);
  out.insert(out.begin() + to, from);
  return out;
}

Value move_dim(Value self, std::int64_t from, std::int64_t to) {
  return permute(self, move_permutation(self.rank(), from, to));
}

Dims inverse_permutation(const Dims& permutation) {
  Dims out(permutation.size());
  for (std::size_t i = 0; i < permutation.size(); ++i) {
    out[at(permutation[i])] = static_cast<std::int64_t>(i);
  }
  return out;
}

namespace {

// What a slice reads that writes have gone before: the very thing that was written there, or what
// was there before writes beside it. Of a program's input there is no reading past writes, since it
// is written in place.
Value read_past_writes(Value self, std::int64_t dim, std::int64_t start, std::int64_t length) {
  const hlo::Builder& builder = self.builder();
  Value source = self;
  while (const hlo::Builder::SliceUpdate* const write = builder.slice_update(source)) {
    if (write->dim != dim) break;
    const std::int64_t size = write->update.dim(dim);
    if (write->start == start && size == length) return write->update;
    if (start < write->start + size && write->start < start + length) break;
    source = write->operand;
  }
  return slice_dim(builder.definition(source.id()).name.empty() ? self : source, dim, start,
                   start + length, 1);
}

}  // namespace

Value slice_view(Value self, std::int64_t dim, const Promotable& start, std::int64_t length,
                 std::int64_t step) {
  const std::int64_t span = span_of(length, step);
  if (start.is_constant()) {
    const auto first = start.constant().to<std::int64_t>();
    if (step == 1 || length == 1) return read_past_writes(self, dim, first, length);
    return slice_dim(self, dim, first, first + span, step);
  }
  const Value window =
      hlo::dynamic_slice(self, start_indices(self, dim, start), with_dim(self.dims(), dim, span));
  return slice_dim(window, dim, 0, span, step);
}

Value slice_write(Value parent, Value update, std::int64_t dim, const Promotable& start,
                  std::int64_t length, std::int64_t step) {
  if (update.num_elements() == 0) return parent;
  if (update.dims() == parent.dims()) return update;
  if (length == 1) step = 1;
  if (step == 1) {
    Dims starts(at(parent.rank()), 0);
    if (start.is_constant()) starts[at(dim)] = start.constant().to<std::int64_t>();
    const Value written = hlo::update_slice(parent, update, start_indices(parent, dim, start),
                                            start.is_constant() ? &starts : nullptr);
    // XLA:CPU moves a reshape of the result into the operands, fuses them, and then writes in place
    // what the update still reads.
    const Value opaque = hlo::optimization_barrier({written})[0];
    if (start.is_constant()) {
      parent.builder().set_slice_update(opaque, {parent, update, dim, starts[at(dim)]});
    }
    return opaque;
  }
  if (start.is_constant()) {
    return interleave(parent, update, dim, start.constant().to<std::int64_t>(), step);
  }
  const Promotable zero{Scalar(0)};
  const std::int64_t span = span_of(length, step);
  const Value window = interleave(slice_view(parent, dim, start, span, 1), update, dim, 0, step);
  return slice_write(parent, window, dim, start, span, 1);
}

Value select_view(Value self, std::int64_t dim, const Promotable& index) {
  return remove_dim(slice_view(self, dim, index, 1, 1), dim);
}

Value select_write(Value parent, Value update, std::int64_t dim, const Promotable& index) {
  return slice_write(parent, insert_dim(update, dim), dim, index, 1, 1);
}

namespace {

// A diagonal is a strided slice of the two dimensions taken as one.
struct Diagonal {
  Dims permutation;  // brings dim1 and dim2 to the end
  std::int64_t start;
  std::int64_t length;
  std::int64_t step;

  Diagonal(const Dims& dims, std::int64_t offset, std::int64_t dim1, std::int64_t dim2) {
    const std::int64_t rows = dims[at(dim1)];
    const std::int64_t columns = dims[at(dim2)];
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(dims.size()); ++i) {
      if (i != dim1 && i != dim2) permutation.push_back(i);
    }
    permutation.push_back(dim1);
    permutation.push_back(dim2);
    length = offset >= 0 ? std::min(rows, columns - offset) : std::min(rows + offset, columns);
    length = std::max<std::int64_t>(length, 0);
    start = length == 0 ? 0 : (offset >= 0 ? offset : -offset * columns);
    step = columns + 1;
  }
};

Value flatten_last_two(Value value) {
  Dims dims = leading_dims(value.dims(), 1);
  dims.back() *= value.dims().back();
  return hlo::reshape(value, dims);
}

}  // namespace

Value diagonal_view(Value self, std::int64_t offset, std::int64_t dim1, std::int64_t dim2) {
  const Diagonal diagonal(self.dims(), offset, dim1, dim2);
  const Value flat = flatten_last_two(permute(self, diagonal.permutation));
  return slice_view(flat, flat.rank() - 1, Promotable(Scalar(diagonal.start)), diagonal.length,
                    diagonal.step);
}

Value diagonal_write(Value parent, Value update, std::int64_t offset, std::int64_t dim1,
                     std::int64_t dim2) {
  if (update.num_elements() == 0) return parent;
  const Diagonal diagonal(parent.dims(), offset, dim1, dim2);
  const Value moved = permute(parent, diagonal.permutation);
  const Value flat = flatten_last_two(moved);
  const Value written =
      slice_write(flat, update, flat.rank() - 1, Promotable(Scalar(diagonal.start)),
                  diagonal.length, diagonal.step);
  return permute(hlo::reshape(written, moved.dims()), inverse_permutation(diagonal.permutation));
}

Value changed_elements(Value before, Value after) {
  const Value changed = hlo::ne(before, after);
  if (!base::is_floating(before.dtype()) && !base::is_complex(before.dtype())) return changed;
  const Value both_nan = hlo::and_(hlo::ne(before, before), hlo::ne(after, after));
  return hlo::and_(changed, hlo::not_(both_nan));
}

Value expand_write(Value parent, Value update) {
  if (update.num_elements() == 0) return parent;
  if (update.num_elements() == parent.num_elements()) return hlo::reshape(update, parent.dims());
  hlo::Builder& builder = parent.builder();
  const std::int64_t added = update.rank() - parent.rank();
  Dims expanded;
  for (std::int64_t d = 0; d < update.rank(); ++d) {
    if (d < added || parent.dim(d - added) != update.dim(d)) expanded.push_back(d);
  }
  const Value changed = changed_elements(broadcast_to(parent, update.dims()), update);
  const hlo::Values reduced = hlo::reduce(
      {update, changed}, {scalar(builder, update.dtype(), 0), scalar(builder, DType::kBool, false)},
      expanded, [](std::span<const Value> values) {
        const auto [value, is_changed, element, element_is_changed] =
            std::array{values[0], values[1], values[2], values[3]};
        return hlo::Values{hlo::select(element_is_changed, element, value),
                           hlo::or_(is_changed, element_is_changed)};
      });
  return hlo::select(hlo::reshape(reduced[1], parent.dims()),
                     hlo::reshape(reduced[0], parent.dims()), parent);
}

Value bitcast_view(Value self, DType dtype) {
  if (self.dtype() == dtype) return self;
  const bool changes_width = base::size_bytes(self.dtype()) != base::size_bytes(dtype);
  const Dims dims = self.dims();
  if (self.rank() == 0) {
    check(!changes_width, "self.dim() cannot be 0 to view ", base::dtype_info(self.dtype()).name,
          " as ", base::dtype_info(dtype).name, " (different element sizes)");
    self = insert_dim(self, 0);
  }
  if (base::is_complex(self.dtype())) self = flatten_last_two(as_real_view(self));
  const DType part = dtype == DType::kBool ? DType::kUInt8 : base::real_dtype(dtype);
  Value out = bitcast_last_dim(bool_as_byte(self), part);
  if (base::is_complex(dtype)) {
    Dims pairs = with_dim(out.dims(), out.rank() - 1, out.dims().back() / 2);
    pairs.push_back(2);
    out = as_complex_view(hlo::reshape(out, pairs));
  }
  if (dtype == DType::kBool) out = convert(out, dtype);
  return changes_width ? out : hlo::reshape(out, dims);
}

Value as_real_view(Value self) {
  check(base::is_complex(self.dtype()), "view_as_real is only supported for complex tensors");
  const std::int64_t rank = self.rank();
  return hlo::concatenate({insert_dim(hlo::real(self), rank), insert_dim(hlo::imag(self), rank)},
                          rank);
}

Value as_complex_view(Value self) {
  const std::int64_t last = self.rank() - 1;
  check(last >= 0 && self.dim(last) == 2, "Tensor must have a last dimension of size 2");
  return hlo::complex(remove_dim(slice_dim(self, last, 0, 1), last),
                      remove_dim(slice_dim(self, last, 1, 2), last));
}

namespace {

void register_slices(Registry& m) {
  m.impl("view:slice",
         [](Value self, std::int64_t dim, Promotable start, std::int64_t length,
            std::int64_t step) { return slice_view(self, dim, start, length, step); });
  m.impl("view:slice:inverse",
         [](Value parent, Value update, std::int64_t dim, Promotable start, std::int64_t length,
            std::int64_t step) { return slice_write(parent, update, dim, start, length, step); });
  m.impl("view:select", [](Value self, std::int64_t dim, Promotable index) {
    return select_view(self, dim, index);
  });
  m.impl("view:select:inverse", [](Value parent, Value update, std::int64_t dim, Promotable index) {
    return select_write(parent, update, dim, index);
  });
  m.impl("view:diagonal",
         [](Value self, std::int64_t offset, std::int64_t dim1, std::int64_t dim2) {
           return diagonal_view(self, offset, dim1, dim2);
         });
  m.impl("view:diagonal:inverse",
         [](Value parent, Value update, std::int64_t offset, std::int64_t dim1, std::int64_t dim2) {
           return diagonal_write(parent, update, offset, dim1, dim2);
         });
  m.impl("view:unfold", [](Value self, std::int64_t dim, std::int64_t size, std::int64_t step) {
    return unfold_view(self, dim, size, step);
  });
  m.impl("view:unfold:inverse",
         [](Value parent, Value update, std::int64_t dim, std::int64_t size, std::int64_t step) {
           return unfold_write(parent, update, dim, size, step);
         });
}

void register_rearrangements(Registry& m) {
  m.impl("view:permute", [](Value self, Dims permutation) { return permute(self, permutation); });
  m.impl("view:permute:inverse", [](Value, Value update, Dims permutation) {
    return permute(update, inverse_permutation(permutation));
  });
  m.impl("view:reshape", [](Value self, Dims sizes) { return hlo::reshape(self, sizes); });
  m.impl("view:reshape:inverse",
         [](Value parent, Value update, Dims) { return hlo::reshape(update, parent.dims()); });
  m.impl("view:expand", [](Value self, Dims sizes) { return broadcast_to(self, sizes); });
  m.impl("view:expand:inverse",
         [](Value parent, Value update, Dims) { return expand_write(parent, update); });
  m.impl("view:as_strided",
         [](Value self, Dims root_strides, Dims sizes, Dims strides, Promotable storage_offset) {
           return as_strided_view(self, root_strides, sizes, strides, storage_offset);
         });
  m.impl("view:as_strided:inverse", [](Value parent, Value update, Dims root_strides, Dims sizes,
                                       Dims strides, Promotable storage_offset) {
    return as_strided_write(parent, update, root_strides, sizes, strides, storage_offset);
  });
}

void register_reinterpretations(Registry& m) {
  m.impl("view:bitcast", [](Value self, DType dtype) { return bitcast_view(self, dtype); });
  m.impl("view:bitcast:inverse",
         [](Value parent, Value update, DType) { return bitcast_view(update, parent.dtype()); });
  m.impl("view:view_as_real", [](Value self) { return as_real_view(self); });
  m.impl("view:view_as_real:inverse", [](Value, Value update) { return as_complex_view(update); });
  m.impl("view:view_as_complex", [](Value self) { return as_complex_view(self); });
  m.impl("view:view_as_complex:inverse", [](Value, Value update) { return as_real_view(update); });
  m.impl("view:real", [](Value self) { return hlo::real(self); });
  m.impl("view:real:inverse", [](Value parent, Value update) {
    return base::is_complex(parent.dtype()) ? hlo::complex(update, hlo::imag(parent)) : update;
  });
  m.impl("view:imag", [](Value self) { return hlo::imag(self); });
  m.impl("view:imag:inverse",
         [](Value parent, Value update) { return hlo::complex(hlo::real(parent), update); });
  m.impl("view:conj",
         [](Value self) { return base::is_complex(self.dtype()) ? hlo::conj(self) : self; });
  m.impl("view:conj:inverse", [](Value, Value update) {
    return base::is_complex(update.dtype()) ? hlo::conj(update) : update;
  });
  m.impl("view:neg", [](Value self) { return hlo::negate(self); });
  m.impl("view:neg:inverse", [](Value, Value update) { return hlo::negate(update); });
}

}  // namespace

void register_views(Registry& m) {
  register_slices(m);
  register_rearrangements(m);
  register_reinterpretations(m);
}

}  // namespace torch_xla::ops

// Copies of views (`view_copy`), tensors with a view replaced (`select_scatter`), and the gradients
// of views (`slice_backward`), all made of what views.h emits.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ops/at.h"
#include "ops/views.h"

namespace torch_xla::ops {
namespace {

using base::check;
using MaybeInt = std::optional<std::int64_t>;

// Sizes with -1 replaced by what the number of elements leaves.
Dims inferred_sizes(Value self, Dims size) {
  const auto unknown = std::find(size.begin(), size.end(), -1);
  if (unknown == size.end()) return size;
  const Dims requested = size;
  *unknown = 1;
  const std::int64_t known = base::num_elements(size);
  check(known != 0 || self.num_elements() != 0, "cannot reshape tensor of 0 elements into shape ",
        base::to_string(requested),
        " because the unspecified dimension size -1 can be any value and is ambiguous");
  *unknown = known == 0 ? 0 : self.num_elements() / known;
  return size;
}

Dims expanded_sizes(Value self, Dims size) {
  const std::int64_t offset = static_cast<std::int64_t>(size.size()) - self.rank();
  for (std::int64_t i = std::max<std::int64_t>(offset, 0); i < offset + self.rank(); ++i) {
    if (size[at(i)] == -1) size[at(i)] = self.dim(i - offset);
  }
  return size;
}

Promotable constant(std::int64_t number) { return Promotable(Scalar(number)); }

std::int64_t wrapped_index(std::int64_t index, std::int64_t size) {
  if (index < -size || index >= size) {
    base::fail(base::ErrorKind::kIndex, "index ", index,
               " is out of bounds for dimension with size ", size);
  }
  return index < 0 ? index + size : index;
}

// A slice's bounds as Python resolves them.
struct Range {
  std::int64_t start;
  std::int64_t length;

  Range(std::int64_t size, MaybeInt start_arg, MaybeInt end_arg, std::int64_t step) {
    check(step > 0, "slice step must be positive");
    const auto resolve = [&](std::int64_t i) {
      return std::clamp<std::int64_t>(i < 0 ? i + size : i, 0, size);
    };
    start = resolve(start_arg.value_or(0));
    const std::int64_t end = std::max(resolve(end_arg.value_or(size)), start);
    length = (end - start + step - 1) / step;
  }
};

Value narrow(Value self, std::int64_t dim, std::int64_t start, std::int64_t length) {
  check(self.rank() > 0, "narrow() cannot be applied to a 0-dim tensor.");
  dim = wrap_dim(dim, self.rank());
  const std::int64_t size = self.dim(dim);
  if (start < -size || start > size) {
    base::fail(base::ErrorKind::kIndex, "start out of range (expected to be in range of [", -size,
               ", ", size, "], but got ", start, ")");
  }
  if (start < 0) start += size;
  check(length >= 0 && start <= size - length, "start (", start, ") + length (", length,
        ") exceeds dimension size (", size, ").");
  return slice_dim(self, dim, start, start + length);
}

// A start or index as PyTorch resolves it, also where it is data: negative ones count from the end.
Promotable resolved(const Promotable& index, Value grad, std::int64_t size) {
  if (index.is_constant()) {
    const auto i = index.constant().to<std::int64_t>();
    return constant(std::clamp<std::int64_t>(i < 0 ? i + size : i, 0, size));
  }
  hlo::Builder& builder = grad.builder();
  const auto number = [&](std::int64_t n) { return scalar(builder, DType::kInt64, n); };
  const Value i = index.value(builder, DType::kInt64);
  const Value from_end = hlo::add(i, number(size));
  return Promotable(
      hlo::clamp(number(0), hlo::select(hlo::lt(i, number(0)), from_end, i), number(size)));
}

// Zeros of the given sizes with `grad` in place of a slice.
Value slice_gradient(Value grad, const Dims& sizes, std::int64_t dim, const Promotable& start,
                     std::int64_t step) {
  const std::int64_t length = grad.dim(dim);
  const Value zero = scalar(grad.builder(), grad.dtype(), 0);
  const Value zeros = hlo::broadcast_in_dim(zero, sizes, {});
  if (grad.num_elements() == 0) return zeros;
  if (!start.is_constant()) return slice_write(zeros, grad, dim, start, length, step);
  const auto low = start.constant().to<std::int64_t>();
  const std::int64_t high = sizes[at(dim)] - low - ((length - 1) * step + 1);
  const Dims none(sizes.size(), 0);
  return hlo::pad(grad, zero, with_dim(none, dim, low), with_dim(none, dim, high),
                  with_dim(none, dim, step - 1));
}

// The dimension, wrapped, of an operator that a 0-dim tensor does not have.
std::int64_t own_dim(const char* op, Value self, std::int64_t dim) {
  if (self.rank() == 0) {
    base::fail(base::ErrorKind::kIndex, op, "() cannot be applied to a 0-dim tensor.");
  }
  return wrap_dim(dim, self.rank());
}

void check_windows(Value self, std::int64_t dim, std::int64_t size, std::int64_t step) {
  const std::int64_t limit = self.rank() == 0 ? 1 : self.dim(dim);
  check(size >= 0, "size is ", size, " but must be >= 0");
  check(size <= limit, "maximum size for tensor at dimension ", dim, " is ", limit, " but size is ",
        size);
  check(step > 0, "step is ", step, " but must be > 0");
}

// `src` as what is written to a view of the given sizes.
Value view_update(Value self, Value src, const Dims& dims) {
  check(src.dims() == dims, "expected src to have a size equal to the slice of self. src size = ",
        base::to_string(src.dims()), ", slice size = ", base::to_string(dims));
  return convert(src, self.dtype());
}

Dims squeezed_sizes(Value self, const Dims& dims) {
  Dims out;
  for (std::int64_t i = 0; i < self.rank(); ++i) {
    const bool is_named = std::find(dims.begin(), dims.end(), i) != dims.end();
    if (!is_named || self.dim(i) != 1) out.push_back(self.dim(i));
  }
  return out;
}

std::vector<Value> split(Value self, const Dims& sizes, std::int64_t dim) {
  check(self.rank() > 0, "split expects at least a 1-dimensional tensor");
  dim = wrap_dim(dim, self.rank());
  check(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) == self.dim(dim),
        "split_with_sizes expects split_sizes to sum exactly to ", self.dim(dim),
        " (input tensor's size at dimension ", dim,
        "), but got split_sizes=", base::to_string(sizes));
  std::vector<Value> out;
  std::int64_t start = 0;
  for (const std::int64_t size : sizes) {
    out.push_back(slice_dim(self, dim, start, start + size));
    start += size;
  }
  return out;
}

std::vector<Value> split_evenly(Value self, std::int64_t split_size, std::int64_t dim) {
  check(self.rank() > 0, "split expects at least a 1-dimensional tensor");
  check(split_size >= 0,
        "split expects split_size be non-negative, but got split_size=", split_size);
  dim = wrap_dim(dim, self.rank());
  const std::int64_t size = self.dim(dim);
  check(split_size > 0 || size == 0,
        "split_size can only be 0 if dimension size is 0, but got dimension size of ", size);
  if (size == 0) return {self};
  Dims sizes(at(size / split_size), split_size);
  if (size % split_size != 0) sizes.push_back(size % split_size);
  return split(self, sizes, dim);
}

Value swap_dims(Value self, std::int64_t dim0, std::int64_t dim1) {
  dim0 = wrap_dim(dim0, self.rank());
  dim1 = wrap_dim(dim1, self.rank());
  if (self.rank() == 0) return self;
  Dims permutation(at(self.rank()));
  std::iota(permutation.begin(), permutation.end(), 0);
  std::swap(permutation[at(dim0)], permutation[at(dim1)]);
  return permute(self, permutation);
}

struct Plane {
  std::int64_t dim1;
  std::int64_t dim2;

  Plane(std::int64_t rank, std::int64_t first, std::int64_t second)
      : dim1(wrap_dim(first, rank)), dim2(wrap_dim(second, rank)) {
    check(dim1 != dim2, "diagonal dimensions cannot be identical ", first, ", ", second);
  }
};

void register_same_value(Registry& m) {
  m.impl({"alias_copy", "detach_copy"}, [](Value self) { return self; });
  m.impl("_conj_copy",
         [](Value self) { return base::is_complex(self.dtype()) ? hlo::conj(self) : self; });
  m.impl("_neg_view_copy", [](Value self) { return hlo::negate(self); });
  m.impl("view_as_real_copy", [](Value self) { return as_real_view(self); });
  m.impl("view_as_complex_copy", [](Value self) { return as_complex_view(self); });
  m.impl("view_copy.dtype", [](Value self, DType dtype) { return bitcast_view(self, dtype); });
}

void register_shape_copies(Registry& m) {
  m.impl({"view_copy", "_reshape_copy", "_unsafe_view"},
         [](Value self, Dims size) { return hlo::reshape(self, inferred_sizes(self, size)); });
  m.impl("_reshape_alias_copy", [](Value self, Dims size, Dims) {
    return hlo::reshape(self, inferred_sizes(self, size));
  });
  m.impl("expand_copy", [](Value self, Dims size, bool) {
    return broadcast_to(self, expanded_sizes(self, size));
  });
  m.impl("permute_copy", [](Value self, Dims dims) {
    for (std::int64_t& dim : dims) dim = wrap_dim(dim, self.rank());
    return permute(self, dims);
  });
  m.impl("transpose_copy.int", [](Value self, std::int64_t dim0, std::int64_t dim1) {
    return swap_dims(self, dim0, dim1);
  });
  m.impl("t_copy", [](Value self) {
    base::check(self.rank() <= 2, "t() expects a tensor with <= 2 dimensions, but self is ",
                self.rank(), "D");
    return self.rank() < 2 ? self : swap_dims(self, 0, 1);
  });
  m.impl("squeeze_copy", [](Value self) {
    return hlo::reshape(self, squeezed_sizes(self, wrap_dims({}, self.rank())));
  });
  m.impl("squeeze_copy.dim", [](Value self, std::int64_t dim) {
    return hlo::reshape(self, squeezed_sizes(self, {wrap_dim(dim, self.rank())}));
  });
  m.impl("squeeze_copy.dims", [](Value self, Dims dim) {
    if (dim.empty()) return self;
    return hlo::reshape(self, squeezed_sizes(self, wrap_dims(dim, self.rank())));
  });
  m.impl("unsqueeze_copy", [](Value self, std::int64_t dim) {
    return insert_dim(self, wrap_dim(dim, self.rank() + 1));
  });
}

void register_part_copies(Registry& m) {
  m.impl("select_copy.int", [](Value self, std::int64_t dim, std::int64_t index) {
    dim = own_dim("select", self, dim);
    return select_view(self, dim, constant(wrapped_index(index, self.dim(dim))));
  });
  m.impl("slice_copy.Tensor",
         [](Value self, std::int64_t dim, MaybeInt start, MaybeInt end, std::int64_t step) {
           dim = own_dim("slice", self, dim);
           const Range range(self.dim(dim), start, end, step);
           return slice_view(self, dim, constant(range.start), range.length, step);
         });
  m.impl("narrow_copy", [](Value self, std::int64_t dim, std::int64_t start, std::int64_t length) {
    return narrow(self, dim, start, length);
  });
  m.impl("diagonal_copy",
         [](Value self, std::int64_t offset, std::int64_t dim1, std::int64_t dim2) {
           const Plane plane(self.rank(), dim1, dim2);
           return diagonal_view(self, offset, plane.dim1, plane.dim2);
         });
  m.impl("unfold_copy", [](Value self, std::int64_t dim, std::int64_t size, std::int64_t step) {
    dim = wrap_dim(dim, self.rank());
    check_windows(self, dim, size, step);
    return unfold_view(self, dim, size, step);
  });
  m.impl("split_copy.Tensor", [](Value self, std::int64_t split_size, std::int64_t dim) {
    return split_evenly(self, split_size, dim);
  });
  m.impl("split_with_sizes_copy", [](Value self, Dims split_sizes, std::int64_t dim) {
    return split(self, split_sizes, dim);
  });
  m.impl("unbind_copy.int", [](Value self, std::int64_t dim) {
    dim = own_dim("unbind", self, dim);
    std::vector<Value> out;
    for (std::int64_t i = 0; i < self.dim(dim); ++i) {
      out.push_back(select_view(self, dim, constant(i)));
    }
    return out;
  });
}

// The value written must have the view's sizes; its dtype follows self's.
void register_scatters(Registry& m) {
  m.impl("select_scatter", [](Value self, Value src, std::int64_t dim, std::int64_t index) {
    dim = own_dim("select", self, dim);
    return select_write(self, view_update(self, src, without_dim(self.dims(), dim)), dim,
                        constant(wrapped_index(index, self.dim(dim))));
  });
  m.impl("slice_scatter", [](Value self, Value src, std::int64_t dim, MaybeInt start, MaybeInt end,
                             std::int64_t step) {
    dim = own_dim("slice", self, dim);
    const Range range(self.dim(dim), start, end, step);
    const Value update = view_update(self, src, with_dim(self.dims(), dim, range.length));
    return slice_write(self, update, dim, constant(range.start), range.length, step);
  });
  m.impl("diagonal_scatter",
         [](Value self, Value src, std::int64_t offset, std::int64_t dim1, std::int64_t dim2) {
           const Plane plane(self.rank(), dim1, dim2);
           return diagonal_write(self, convert(src, self.dtype()), offset, plane.dim1, plane.dim2);
         });
}

void register_gradients(Registry& m) {
  m.impl("select_backward", [](Value grad, Dims input_sizes, std::int64_t dim, Promotable index) {
    dim = wrap_dim(dim, static_cast<std::int64_t>(input_sizes.size()));
    const Promotable start = resolved(index, grad, input_sizes[at(dim)]);
    return slice_gradient(insert_dim(grad, dim), input_sizes, dim, start, 1);
  });
  m.impl("slice_backward", [](Value grad, Dims input_sizes, std::int64_t dim, Promotable start,
                              Promotable, std::int64_t step) {
    dim = wrap_dim(dim, static_cast<std::int64_t>(input_sizes.size()));
    return slice_gradient(grad, input_sizes, dim, resolved(start, grad, input_sizes[at(dim)]),
                          step);
  });
  m.impl("diagonal_backward", [](Value grad, Dims input_sizes, std::int64_t offset,
                                 std::int64_t dim1, std::int64_t dim2) {
    const Plane plane(static_cast<std::int64_t>(input_sizes.size()), dim1, dim2);
    const Value zeros = hlo::full(grad.builder(), Shape{grad.dtype(), input_sizes}, 0);
    return diagonal_write(zeros, grad, offset, plane.dim1, plane.dim2);
  });
  m.impl("unfold_backward",
         [](Value grad, Dims input_sizes, std::int64_t dim, std::int64_t size, std::int64_t step) {
           dim = wrap_dim(dim, static_cast<std::int64_t>(input_sizes.size()));
           return unfold_gradient(grad, input_sizes, dim, size, step);
         });
}

}  // namespace

void register_view_copies(Registry& m) {
  register_same_value(m);
  register_shape_copies(m);
  register_part_copies(m);
  register_scatters(m);
  register_gradients(m);
}

}  // namespace torch_xla::ops

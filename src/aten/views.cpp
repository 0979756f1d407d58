// View operators, as functions that compute sizes and strides. Each becomes one of a few internal
// operators ("view:slice", "view:permute", ...) that the registry lowers forwards and backwards;
// the tensor made shares its base's alias. reshape, contiguous, ravel and flatten decide by the
// strides here: torch's own trust is_contiguous(), which is true of most tensors on this device,
// and would alias where CPU copies. resolve_conj and resolve_neg copy as they do where a bit says
// what is a view here. Calls of Tensor.contiguous() never get here, as torch asks is_contiguous()
// before it dispatches: the package patches the method.
#include "aten/registration.h"

#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/alias_native.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/contiguous_native.h>
#include <ATen/ops/flatten_native.h>
#include <ATen/ops/ravel_native.h>
#include <ATen/ops/reshape_native.h>
#include <ATen/ops/resolve_conj_native.h>
#include <ATen/ops/resolve_neg_native.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <numeric>

#include "aten/strided.h"
#include "aten/strides.h"
#include "aten/view_maker.h"

namespace torch_xla::aten {
namespace {

using Dims = at::DimVector;

const TensorImpl& impl_of(const at::Tensor& self, const char* op) {
  return expect_xla(self, op, "self");
}

const base::Dims& sizes_of(const TensorImpl& self) { return self.xla_type()->shape.dims; }
const base::Dims& strides_of(const TensorImpl& self) { return self.xla_type()->strides; }
base::DType dtype_of(const TensorImpl& self) { return self.xla_type()->shape.dtype; }

Dims copy_of(const base::Dims& dims) { return Dims(dims.begin(), dims.end()); }

std::int64_t wrap(std::int64_t dim, std::size_t rank) {
  return c10::maybe_wrap_dim(dim, static_cast<std::int64_t>(rank));
}

// A view with the same elements in the same order.
at::Tensor reshaped(const TensorImpl& self, at::IntArrayRef sizes, at::IntArrayRef strides) {
  static const ViewOperator op("reshape");
  const LastStep last(self, op);
  const ViewOrigin origin = last ? last.origin() : origin_of(self);
  if (last && sizes == origin.type->shape.dims && strides == origin.type->strides) {
    return make_view(self, origin.view, origin.type, self.storage_offset());
  }
  return make_view(self, origin, {op, {sizes}},
                   {dtype_of(self), sizes, strides, self.storage_offset()});
}

at::Tensor alias(const at::Tensor& self) {
  // Torch detaches the meta tensor behind a FakeTensor after it gave it the keys of its device.
  if (as_xla(self) == nullptr) return at::native::alias(self);
  const TensorImpl& impl = impl_of(self, "alias");
  return make_view(impl, impl.view(), impl.xla_type(), impl.storage_offset());
}

// Beside `alias`, what is detached counts versions of its own, in inference mode too.
at::Tensor detach(const at::Tensor& self) {
  if (as_xla(self) == nullptr) return at::native::alias(self);
  const TensorImpl& impl = impl_of(self, "detach");
  return at::Tensor(impl.shallow_copy_and_detach(c10::VariableVersion(0), false));
}

// Accepts every shape of equal size: without strides in memory there is nothing to be incompatible.
at::Tensor view(const at::Tensor& self, at::IntArrayRef size) {
  const TensorImpl& impl = impl_of(self, "view");
  const Dims sizes = at::infer_size_dv(size, self.numel());
  const auto strides = at::detail::computeStride(sizes_of(impl), strides_of(impl), sizes);
  if (strides.has_value()) return reshaped(impl, sizes, *strides);
  return reshaped(impl, sizes, graph::contiguous_strides(base::Dims(sizes.begin(), sizes.end())));
}

at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  return reshaped(impl_of(self, "_reshape_alias"), size, stride);
}

at::Tensor view_dtype(const at::Tensor& self, at::ScalarType dtype);
at::Tensor conj(const at::Tensor& self);
at::Tensor neg_view(const at::Tensor& self);
at::Tensor view_as_real(const at::Tensor& self);

// Starts from the memory that the view has a part of, read as elements of the view's dtype.
at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<std::int64_t> storage_offset) {
  static const ViewOperator op("as_strided");
  const TensorImpl& impl = impl_of(self, "as_strided");
  TORCH_CHECK(size.size() == stride.size(), "mismatch in length of strides and shape");
  const std::int64_t offset = storage_offset.value_or(self.storage_offset());
  TORCH_CHECK(offset >= 0, "Tensor: invalid storage offset ", offset);
  std::int64_t last = offset;
  for (std::size_t i = 0; i < size.size(); ++i) {
    TORCH_CHECK(
        stride[i] >= 0,
        "as_strided: Negative strides are not supported at the moment, got strides: ", stride);
    last += size[i] > 0 ? (size[i] - 1) * stride[i] : 0;
  }
  at::Tensor memory = make_view(impl, graph::ViewRef(), impl.alias()->type(), 0);
  // A tensor without dimensions can't be read as elements of another width.
  if (memory.dim() == 0) memory = aten::view(memory, {1});
  if (memory.scalar_type() != self.scalar_type() && !memory.is_complex()) {
    memory = aten::view_dtype(memory, self.scalar_type());
  }
  SignBits signs = impl.sign_bits();
  if (signs.is_conj && self.is_complex()) {
    memory = aten::conj(memory);
  } else if (signs.is_conj) {
    // Parts of conjugates are parts of the memory: `imag` is the negative one.
    signs.is_neg ^= self.storage_offset() % 2 == 1;
  }
  // Of any strides, which another width is not.
  if (memory.is_complex() && !self.is_complex()) memory = aten::view_as_real(memory);
  if (memory.scalar_type() != self.scalar_type()) {
    memory = aten::view_dtype(memory, self.scalar_type());
  }
  if (signs.is_neg) memory = aten::neg_view(memory);
  const graph::TensorType& root_type = *as_xla(memory)->xla_type();
  const base::Shape& root = root_type.shape;
  const bool is_empty = std::find(size.begin(), size.end(), 0) != size.end();
  TORCH_CHECK(is_empty || last < root.num_elements(), "setStorage: sizes ", size, ", strides ",
              stride, ", storage offset ", offset, ", and itemsize ", base::size_bytes(root.dtype),
              " requiring a storage size of ", (last + 1) * base::size_bytes(root.dtype),
              " are out of bounds for storage of size ", root.num_bytes());
  return make_view(*as_xla(memory),
                   {op, {at::IntArrayRef(root_type.strides), size, stride}, 3, offset},
                   {root.dtype, size, stride, offset});
}

at::Tensor permuted(const TensorImpl& self, Dims permutation) {
  static const ViewOperator op("permute");
  Dims sizes;
  Dims strides;
  for (const std::int64_t d : permutation) {
    sizes.push_back(sizes_of(self)[static_cast<std::size_t>(d)]);
    strides.push_back(strides_of(self)[static_cast<std::size_t>(d)]);
  }
  const LastStep last(self, op);
  const ViewOrigin origin = last ? last.origin() : origin_of(self);
  if (last) {
    for (std::int64_t& d : permutation) d = last.dims(0)[static_cast<std::size_t>(d)];
    if (std::is_sorted(permutation.begin(), permutation.end())) {
      return make_view(self, origin.view, origin.type, self.storage_offset());
    }
  }
  return make_view(self, origin, {op, {permutation}},
                   {dtype_of(self), sizes, strides, self.storage_offset()});
}

at::Tensor permute(const at::Tensor& self, at::IntArrayRef dims) {
  const TensorImpl& impl = impl_of(self, "permute");
  const std::size_t rank = sizes_of(impl).size();
  TORCH_CHECK(dims.size() == rank,
              "permute(sparse_coo): number of dimensions in the tensor input does not match the "
              "length of the desired ordering of dimensions i.e. input.dim() = ",
              rank, " is not equal to len(dims) = ", dims.size());
  Dims permutation;
  for (const std::int64_t dim : dims) {
    const std::int64_t d = wrap(dim, rank);
    TORCH_CHECK(std::find(permutation.begin(), permutation.end(), d) == permutation.end(),
                "permute(): duplicate dims are not allowed.");
    permutation.push_back(d);
  }
  return permuted(impl, permutation);
}

at::Tensor transpose(const at::Tensor& self, std::int64_t dim0, std::int64_t dim1) {
  const TensorImpl& impl = impl_of(self, "transpose");
  const std::size_t rank = sizes_of(impl).size();
  const std::int64_t a = wrap(dim0, rank);
  const std::int64_t b = wrap(dim1, rank);
  if (a == b) return aten::alias(self);
  Dims permutation(rank);
  std::iota(permutation.begin(), permutation.end(), 0);
  std::swap(permutation[static_cast<std::size_t>(a)], permutation[static_cast<std::size_t>(b)]);
  return permuted(impl, permutation);
}

at::Tensor t(const at::Tensor& self) {
  TORCH_CHECK(self.dim() <= 2, "t() expects a tensor with <= 2 dimensions, but self is ",
              self.dim(), "D");
  return aten::transpose(self, 0, self.dim() < 2 ? 0 : 1);
}

const ViewOperator& slice_operator() {
  static const ViewOperator op("slice");
  return op;
}

// Which elements of the origin a dimension has: those of a slice, or all.
struct Elements {
  ViewOrigin origin;
  std::int64_t first = 0;
  std::int64_t step = 1;

  Elements(const TensorImpl& self, std::int64_t dim) : origin(origin_of(self)) {
    const LastStep last(self, slice_operator());
    if (!last || last.integer(0) != dim) return;
    origin = last.origin();
    first = last.slot();
    step = last.integer(3);
  }
  std::int64_t place_of(std::int64_t index) const { return first + index * step; }
};

at::Tensor sliced(const TensorImpl& self, std::int64_t dim, std::int64_t start, std::int64_t length,
                  std::int64_t step) {
  const auto d = static_cast<std::size_t>(dim);
  Dims sizes = copy_of(sizes_of(self));
  Dims strides = copy_of(strides_of(self));
  const std::int64_t offset = self.storage_offset() + start * strides[d];
  sizes[d] = length;
  strides[d] *= step;
  const ViewType type{dtype_of(self), sizes, strides, offset};
  if (length == 0) return make_view(self, {slice_operator(), {dim, length, step}, 1, start}, type);
  const Elements in(self, dim);
  return make_view(self, in.origin,
                   {slice_operator(), {dim, length, step * in.step}, 1, in.place_of(start)}, type);
}

at::Tensor slice(const at::Tensor& self, std::int64_t dim, std::optional<std::int64_t> start,
                 std::optional<std::int64_t> end, std::int64_t step) {
  const TensorImpl& impl = impl_of(self, "slice");
  TORCH_CHECK_INDEX(self.dim() > 0, "slice() cannot be applied to a 0-dim tensor.");
  TORCH_CHECK(step > 0, "slice step must be positive");
  const std::int64_t d = wrap(dim, sizes_of(impl).size());
  const std::int64_t size = sizes_of(impl)[static_cast<std::size_t>(d)];
  std::int64_t first = start.value_or(0);
  std::int64_t last = end.value_or(size);
  if (first < 0) first += size;
  if (last < 0) last += size;
  first = std::clamp<std::int64_t>(first, 0, size);
  last = std::clamp<std::int64_t>(last, first, size);
  return sliced(impl, d, first, (last - first + step - 1) / step, step);
}

at::Tensor selected(const TensorImpl& self, std::int64_t dim, std::int64_t index) {
  static const ViewOperator op("select");
  const auto d = static_cast<std::ptrdiff_t>(dim);
  Dims sizes = copy_of(sizes_of(self));
  Dims strides = copy_of(strides_of(self));
  const std::int64_t offset =
      self.storage_offset() + index * strides[static_cast<std::size_t>(dim)];
  sizes.erase(sizes.begin() + d);
  strides.erase(strides.begin() + d);
  const Elements in(self, dim);
  return make_view(self, in.origin, {op, {dim}, 1, in.place_of(index)},
                   {dtype_of(self), sizes, strides, offset});
}

at::Tensor select(const at::Tensor& self, std::int64_t dim, std::int64_t index) {
  const TensorImpl& impl = impl_of(self, "select");
  TORCH_CHECK_INDEX(self.dim() > 0, "select() cannot be applied to a 0-dim tensor.");
  const std::int64_t d = wrap(dim, sizes_of(impl).size());
  const std::int64_t size = sizes_of(impl)[static_cast<std::size_t>(d)];
  TORCH_CHECK_INDEX(index >= -size && index < size, "select(): index ", index,
                    " out of range for tensor of size ", self.sizes(), " at dimension ", d);
  return selected(impl, d, index < 0 ? index + size : index);
}

at::Tensor expand(const at::Tensor& self, at::IntArrayRef size, bool) {
  static const ViewOperator op("expand");
  const TensorImpl& impl = impl_of(self, "expand");
  TORCH_CHECK(size.size() >= static_cast<std::size_t>(self.dim()), "expand(", self.toString(), "{",
              self.sizes(), "}, size=", size, "): the number of sizes provided (", size.size(),
              ") must be greater or equal to the number of dimensions in the tensor (", self.dim(),
              ")");
  const auto geometry = at::inferExpandGeometry_dimvector(self.sizes(), strides_of(impl), size);
  return make_view(impl, {op, {geometry.sizes}},
                   {dtype_of(impl), geometry.sizes, geometry.strides, self.storage_offset()});
}

at::Tensor unsqueeze(const at::Tensor& self, std::int64_t dim) {
  const TensorImpl& impl = impl_of(self, "unsqueeze");
  const std::int64_t d = wrap(dim, sizes_of(impl).size() + 1);
  Dims sizes = copy_of(sizes_of(impl));
  Dims strides = copy_of(strides_of(impl));
  const auto at = static_cast<std::size_t>(d);
  const std::int64_t stride = at < sizes.size() ? sizes[at] * strides[at] : 1;
  sizes.insert(sizes.begin() + d, 1);
  strides.insert(strides.begin() + d, stride);
  return reshaped(impl, sizes, strides);
}

at::Tensor squeeze_where(const TensorImpl& self, const std::vector<bool>& chosen) {
  Dims sizes;
  Dims strides;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (chosen[i] && sizes_of(self)[i] == 1) continue;
    sizes.push_back(sizes_of(self)[i]);
    strides.push_back(strides_of(self)[i]);
  }
  return reshaped(self, sizes, strides);
}

at::Tensor squeeze(const at::Tensor& self) {
  return squeeze_where(impl_of(self, "squeeze"),
                       std::vector<bool>(static_cast<std::size_t>(self.dim()), true));
}

at::Tensor squeeze_dims(const at::Tensor& self, at::IntArrayRef dims) {
  const auto rank = static_cast<std::size_t>(self.dim());
  std::vector<bool> chosen(std::max<std::size_t>(rank, 1), false);
  for (const std::int64_t dim : dims) {
    const auto d = static_cast<std::size_t>(wrap(dim, rank));
    TORCH_CHECK(!chosen[d], "dim ", d, " appears multiple times in the list of dims");
    chosen[d] = true;
  }
  chosen.resize(rank);
  return squeeze_where(impl_of(self, "squeeze"), chosen);
}

at::Tensor squeeze_dim(const at::Tensor& self, std::int64_t dim) { return squeeze_dims(self, dim); }

at::Tensor diagonal(const at::Tensor& self, std::int64_t offset, std::int64_t dim1,
                    std::int64_t dim2) {
  static const ViewOperator op("diagonal");
  const TensorImpl& impl = impl_of(self, "diagonal");
  const std::size_t rank = sizes_of(impl).size();
  const std::int64_t a = wrap(dim1, rank);
  const std::int64_t b = wrap(dim2, rank);
  TORCH_CHECK(a != b, "diagonal dimensions cannot be identical ", dim1, ", ", dim2);
  Dims sizes = copy_of(sizes_of(impl));
  Dims strides = copy_of(strides_of(impl));
  const auto ai = static_cast<std::size_t>(a);
  const auto bi = static_cast<std::size_t>(b);
  const std::int64_t length =
      offset >= 0 ? std::max<std::int64_t>(std::min(sizes[ai], sizes[bi] - offset), 0)
                  : std::max<std::int64_t>(std::min(sizes[ai] + offset, sizes[bi]), 0);
  std::int64_t storage_offset = self.storage_offset();
  if (length > 0) {
    storage_offset += offset >= 0 ? offset * strides[bi] : -offset * strides[ai];
  }
  const std::int64_t stride = strides[ai] + strides[bi];
  for (const std::int64_t d : {std::max(a, b), std::min(a, b)}) {
    sizes.erase(sizes.begin() + d);
    strides.erase(strides.begin() + d);
  }
  sizes.push_back(length);
  strides.push_back(stride);
  return make_view(impl, {op, {offset, a, b}}, {dtype_of(impl), sizes, strides, storage_offset});
}

at::Tensor unfold(const at::Tensor& self, std::int64_t dimension, std::int64_t size,
                  std::int64_t step) {
  static const ViewOperator op("unfold");
  const TensorImpl& impl = impl_of(self, "unfold");
  const std::size_t rank = sizes_of(impl).size();
  const std::int64_t d = wrap(dimension, rank);
  const std::int64_t max_size = rank == 0 ? 1 : sizes_of(impl)[static_cast<std::size_t>(d)];
  TORCH_CHECK(size >= 0, "size is ", size, " but must be >= 0");
  TORCH_CHECK(size <= max_size, "maximum size for tensor at dimension ", d, " is ", max_size,
              " but size is ", size);
  TORCH_CHECK(step > 0, "step is ", step, " but must be > 0");
  Dims sizes = copy_of(sizes_of(impl));
  Dims strides = copy_of(strides_of(impl));
  const std::int64_t stride = rank == 0 ? 1 : strides[static_cast<std::size_t>(d)];
  if (rank > 0) {
    sizes[static_cast<std::size_t>(d)] = (max_size - size) / step + 1;
    strides[static_cast<std::size_t>(d)] = stride * step;
  }
  sizes.push_back(size);
  strides.push_back(stride);
  return make_view(impl, {op, {d, size, step}},
                   {dtype_of(impl), sizes, strides, self.storage_offset()});
}

std::vector<at::Tensor> split_with_sizes(const at::Tensor& self, at::IntArrayRef split_sizes,
                                         std::int64_t dim) {
  const TensorImpl& impl = impl_of(self, "split_with_sizes");
  TORCH_CHECK(self.dim() != 0, "split expects at least a 1-dimensional tensor");
  const std::int64_t d = wrap(dim, sizes_of(impl).size());
  const std::int64_t size = sizes_of(impl)[static_cast<std::size_t>(d)];
  std::vector<at::Tensor> out;
  std::int64_t start = 0;
  for (const std::int64_t length : split_sizes) {
    TORCH_CHECK(length >= 0,
                "split_with_sizes expects split_sizes have only non-negative entries, but got "
                "split_sizes=",
                split_sizes);
    TORCH_CHECK(start + length <= size, "split_with_sizes expects split_sizes to sum exactly to ",
                size, " (input tensor's size at dimension ", d,
                "), but got split_sizes=", split_sizes);
    out.push_back(sliced(impl, d, start, length, 1));
    start += length;
  }
  TORCH_CHECK(start == size, "split_with_sizes expects split_sizes to sum exactly to ", size,
              " (input tensor's size at dimension ", d, "), but got split_sizes=", split_sizes);
  return out;
}

std::vector<at::Tensor> split(const at::Tensor& self, std::int64_t split_size, std::int64_t dim) {
  TORCH_CHECK(self.dim() != 0, "split expects at least a 1-dimensional tensor");
  TORCH_CHECK(split_size >= 0,
              "split expects split_size be non-negative, but got split_size=", split_size);
  const std::int64_t size = self.size(dim);
  TORCH_CHECK(split_size > 0 || size == 0,
              "split_size can only be 0 if dimension size is 0, but got dimension size of ", size);
  Dims lengths;
  for (std::int64_t start = 0; start < size; start += split_size) {
    lengths.push_back(std::min(split_size, size - start));
  }
  if (lengths.empty()) lengths.push_back(size);
  return aten::split_with_sizes(self, lengths, dim);
}

std::vector<at::Tensor> unbind(const at::Tensor& self, std::int64_t dim) {
  const TensorImpl& impl = impl_of(self, "unbind");
  TORCH_CHECK_INDEX(self.dim() > 0, "Dimension specified as ", dim,
                    " but tensor has no dimensions");
  const std::int64_t d = wrap(dim, sizes_of(impl).size());
  std::vector<at::Tensor> out;
  for (std::int64_t i = 0; i < sizes_of(impl)[static_cast<std::size_t>(d)]; ++i) {
    out.push_back(selected(impl, d, i));
  }
  return out;
}

at::Tensor view_as_real(const at::Tensor& self) {
  static const ViewOperator op("view_as_real");
  TORCH_CHECK(self.is_complex(), "view_as_real is only supported for complex tensors");
  const TensorImpl& impl = impl_of(self, "view_as_real");
  Dims sizes = copy_of(sizes_of(impl));
  Dims strides = copy_of(strides_of(impl));
  for (std::int64_t& stride : strides) stride *= 2;
  sizes.push_back(2);
  strides.push_back(1);
  return make_view(impl, {op, {}},
                   {base::real_dtype(dtype_of(impl)), sizes, strides, self.storage_offset() * 2});
}

// Conjugates and negatives are views like others here: no bit that every operator must look at.
at::Tensor with_type_of(const at::Tensor& self, const ViewOperator& op) {
  const TensorImpl& impl = impl_of(self, "_conj");
  return make_view(impl, {op, {}},
                   {dtype_of(impl), sizes_of(impl), strides_of(impl), self.storage_offset()});
}

at::Tensor conj(const at::Tensor& self) {
  static const ViewOperator op("conj");
  return with_type_of(self, op);
}

at::Tensor neg_view(const at::Tensor& self) {
  static const ViewOperator op("neg");
  return with_type_of(self, op);
}

at::Tensor view_as_complex(const at::Tensor& self) {
  static const ViewOperator op("view_as_complex");
  if (self.scalar_type() == at::kHalf) to_dtype(at::kComplexHalf);  // says that there is none
  TORCH_CHECK(self.scalar_type() == at::kFloat || self.scalar_type() == at::kDouble,
              "view_as_complex is only supported for half, float and double tensors, but got a "
              "tensor of scalar type: ",
              self.scalar_type());
  const TensorImpl& impl = impl_of(self, "view_as_complex");
  TORCH_CHECK(self.dim() != 0, "Input tensor must have one or more dimensions");
  // The derivative of view_as_real asks for a contiguous gradient first, and every tensor says that
  // it is (see TensorImpl::set_type).
  const bool is_in_backward_pass = torch::autograd::get_current_graph_task_id() != -1;
  if (is_in_backward_pass && strides_of(impl) != graph::contiguous_strides(sizes_of(impl))) {
    return aten::view_as_complex(self.clone(at::MemoryFormat::Contiguous));
  }
  Dims sizes = copy_of(sizes_of(impl));
  Dims strides = copy_of(strides_of(impl));
  TORCH_CHECK(sizes.back() == 2, "Tensor must have a last dimension of size 2");
  TORCH_CHECK(strides.back() == 1, "Tensor must have a last dimension with stride 1");
  sizes.pop_back();
  strides.pop_back();
  for (std::int64_t& stride : strides) {
    TORCH_CHECK(stride % 2 == 0,
                "Tensor must have a stride divisible by 2 for all but last dimension");
    stride /= 2;
  }
  return make_view(
      impl, {op, {}},
      {base::complex_dtype(dtype_of(impl)), sizes, strides, self.storage_offset() / 2});
}

// Sizes and strides of a view with elements of another width.
void rescale(Dims& sizes, Dims& strides, std::int64_t& offset, int from, int to) {
  if (from == to) return;
  TORCH_CHECK(!sizes.empty(),
              "self.dim() cannot be 0 to view a tensor as a dtype of a different element size");
  TORCH_CHECK(strides.back() == 1,
              "self.stride(-1) must be 1 to view a tensor as a dtype of a different element size");
  const auto scale = [&](std::int64_t n) { return n * from / to; };
  TORCH_CHECK(sizes.back() * from % to == 0, "self.size(-1) must be divisible by ", to / from,
              " to view a tensor as a dtype of a larger element size, but got ", sizes.back());
  sizes.back() = scale(sizes.back());
  for (std::size_t i = 0; i + 1 < strides.size(); ++i) {
    TORCH_CHECK(strides[i] * from % to == 0, "self.stride(", i, ") must be divisible by ",
                to / from, " to view a tensor as a dtype of a larger element size, but got ",
                strides[i]);
    strides[i] = scale(strides[i]);
  }
  TORCH_CHECK(offset * from % to == 0, "self.storage_offset() must be divisible by ", to / from,
              " to view a tensor as a dtype of a larger element size, but got ", offset);
  offset = scale(offset);
}

at::Tensor view_dtype(const at::Tensor& self, at::ScalarType dtype) {
  static const ViewOperator op("bitcast");
  if (self.scalar_type() == dtype) return aten::alias(self);
  const TensorImpl& impl = impl_of(self, "view.dtype");
  const base::DType to = to_dtype(dtype);
  Dims sizes = copy_of(sizes_of(impl));
  Dims strides = copy_of(strides_of(impl));
  std::int64_t offset = self.storage_offset();
  rescale(sizes, strides, offset, base::size_bytes(dtype_of(impl)), base::size_bytes(to));
  return make_view(impl, {op, {to}}, {to, sizes, strides, offset});
}

at::Tensor& in_place(at::Tensor& self, const at::Tensor& result) {
  apply_view_in_place(self, result);
  return self;
}

at::Tensor& transpose_(at::Tensor& self, std::int64_t a, std::int64_t b) {
  return in_place(self, aten::transpose(self, a, b));
}
at::Tensor& t_(at::Tensor& self) { return in_place(self, aten::t(self)); }
at::Tensor& unsqueeze_(at::Tensor& self, std::int64_t dim) {
  return in_place(self, aten::unsqueeze(self, dim));
}
at::Tensor& squeeze_(at::Tensor& self) { return in_place(self, aten::squeeze(self)); }
at::Tensor& squeeze_dim_(at::Tensor& self, std::int64_t dim) {
  return in_place(self, aten::squeeze_dim(self, dim));
}
at::Tensor& squeeze_dims_(at::Tensor& self, at::IntArrayRef dims) {
  return in_place(self, aten::squeeze_dims(self, dims));
}
const at::Tensor& as_strided_(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                              std::optional<std::int64_t> offset) {
  apply_view_in_place(self, aten::as_strided(self, size, stride, offset));
  return self;
}

// Dynamo's fake tensors, whose sizes may be symbols, say the truth about their strides: they are
// PyTorch's own functions' to look at.
bool is_ours(const at::Tensor& tensor) { return as_xla(tensor) != nullptr; }

at::Tensor reshape_to(const at::Tensor& self, at::IntArrayRef shape) {
  const auto sizes = at::infer_size_dv(shape, self.numel());
  if (at::detail::computeStride(self.sizes(), self.strides(), sizes).has_value()) {
    return self.view(sizes);
  }
  return at::_unsafe_view(at::clone(self, at::MemoryFormat::Contiguous), sizes);
}

at::Tensor reshape(const at::Tensor& self, c10::SymIntArrayRef shape) {
  return is_ours(self) ? reshape_to(self, C10_AS_INTARRAYREF_SLOW(shape))
                       : at::native::reshape_symint(self, shape);
}

bool has_strides_of(const at::Tensor& self, at::MemoryFormat format) {
  if (format != at::MemoryFormat::Contiguous) return self.is_contiguous(format);
  return is_row_major(self.sizes(), self.strides());
}

at::Tensor contiguous(const at::Tensor& self, at::MemoryFormat memory_format) {
  if (!is_ours(self)) return at::native::contiguous(self, memory_format);
  TORCH_CHECK(memory_format != at::MemoryFormat::Preserve,
              "preserve memory format is unsupported by the contiguous operator");
  return has_strides_of(self, memory_format) ? self : at::clone(self, memory_format);
}

at::Tensor ravel(const at::Tensor& self) {
  if (!is_ours(self)) return at::native::ravel(self);
  return aten::contiguous(self, at::MemoryFormat::Contiguous).view(-1);
}

at::Tensor flatten(const at::Tensor& self, std::int64_t start_dim, std::int64_t end_dim) {
  if (!is_ours(self)) return at::native::flatten(self, start_dim, end_dim);
  const std::int64_t first = c10::maybe_wrap_dim(start_dim, self.dim());
  const std::int64_t last = c10::maybe_wrap_dim(end_dim, self.dim());
  TORCH_CHECK(first <= last, "flatten() has invalid args: start_dim cannot come after end_dim");
  if (self.dim() == 0) return reshape_to(self, {1});
  if (first == last) return self;
  Dims shape;
  std::int64_t flat = 1;
  for (std::int64_t i = 0; i < self.dim(); ++i) {
    if (i >= first && i <= last) {
      flat *= self.size(i);
      if (i == last) shape.push_back(flat);
    } else {
      shape.push_back(self.size(i));
    }
  }
  return reshape_to(self, shape);
}

// PyTorch's own ask a bit that no tensor has here, and would give the view back.
at::Tensor resolve_conj(const at::Tensor& self) {
  const TensorImpl* impl = as_xla(self);
  if (impl == nullptr) return at::native::resolve_conj(self);
  return self.is_complex() && impl->sign_bits().is_conj ? self.clone() : self;
}

at::Tensor resolve_neg(const at::Tensor& self) {
  const TensorImpl* impl = as_xla(self);
  if (impl == nullptr) return at::native::resolve_neg(self);
  return impl->sign_bits().is_neg ? self.clone() : self;
}

}  // namespace

void register_views(torch::Library& m) {
  m.impl("alias", alias);
  m.impl("detach", detach);
  m.impl("view", view);
  m.impl("_reshape_alias", reshape_alias);
  m.impl("as_strided", as_strided);
  m.impl("permute", permute);
  m.impl("transpose.int", transpose);
  m.impl("t", t);
  m.impl("slice.Tensor", slice);
  m.impl("select.int", select);
  m.impl("expand", expand);
  m.impl("unsqueeze", unsqueeze);
  m.impl("squeeze", squeeze);
  m.impl("squeeze.dim", squeeze_dim);
  m.impl("squeeze.dims", squeeze_dims);
  m.impl("diagonal", diagonal);
  m.impl("unfold", unfold);
  m.impl("split.Tensor", split);
  m.impl("split_with_sizes", split_with_sizes);
  // Of the same memory, though autograd takes the parts for tensors of their own.
  m.impl("unsafe_split.Tensor", split);
  m.impl("unsafe_split_with_sizes", split_with_sizes);
  m.impl("unbind.int", unbind);
  m.impl("view_as_real", view_as_real);
  m.impl("view_as_complex", view_as_complex);
  m.impl("_conj", conj);
  m.impl("_neg_view", neg_view);
  m.impl("view.dtype", view_dtype);
  m.impl("transpose_", transpose_);
  m.impl("t_", t_);
  m.impl("unsqueeze_", unsqueeze_);
  m.impl("squeeze_", squeeze_);
  m.impl("squeeze_.dim", squeeze_dim_);
  m.impl("squeeze_.dims", squeeze_dims_);
  m.impl("as_strided_", as_strided_);
}

void register_copying_views(torch::Library& m) {
  m.impl("reshape", reshape);
  m.impl("contiguous", contiguous);
  m.impl("ravel", ravel);
  m.impl("resolve_conj", resolve_conj);
  m.impl("resolve_neg", resolve_neg);
  m.impl("flatten.using_ints", flatten);
}

}  // namespace torch_xla::aten

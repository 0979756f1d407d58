// Operators that rearrange elements: cat, repeat, flip, roll, triangles, shuffles. Copies of views
// and what gradients of views need are in view_copies.cpp, padding and patches in padding.cpp.
#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ops/at.h"
#include "ops/views.h"

namespace torch_xla::ops {
namespace {

using base::check;

// XLA's CPU backend would convert bfloat16 to float32 for it and back.
Value join(const Context& context, const hlo::Values& values, std::int64_t dim) {
  if (values.size() == 1) return values[0];
  if (context.platform != "cpu" || values[0].dtype() != DType::kBFloat16) {
    return hlo::concatenate(values, dim);
  }
  hlo::Values bits;
  for (const Value& value : values) bits.push_back(hlo::bitcast_convert(value, DType::kUInt16));
  return hlo::bitcast_convert(hlo::concatenate(bits, dim), DType::kBFloat16);
}

// PyTorch lets tensors of size [0] stand beside tensors of any rank.
bool is_skipped_by_cat(const Value& value) { return value.rank() == 1 && value.dim(0) == 0; }

void check_cat(const std::vector<Value>& tensors, std::int64_t dim) {
  const Value* first = nullptr;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Value& t = tensors[i];
    check(t.rank() > 0, "zero-dimensional tensor (at position ", i, ") cannot be concatenated");
    if (is_skipped_by_cat(t)) continue;
    if (first == nullptr) first = &t;
    check(t.rank() == first->rank(), "Tensors must have same number of dimensions: got ",
          first->rank(), " and ", t.rank());
    const std::int64_t place = wrap_dim(dim, t.rank());
    for (std::int64_t d = 0; d < t.rank(); ++d) {
      check(d == place || t.dim(d) == first->dim(d),
            "Sizes of tensors must match except in dimension ", place, ". Expected size ",
            first->dim(d), " but got size ", t.dim(d), " for tensor number ", i, " in the list.");
    }
  }
}

Value cat(const Context& context, const std::vector<Value>& tensors, std::int64_t dim) {
  check(!tensors.empty(), "torch.cat(): expected a non-empty list of Tensors");
  check_cat(tensors, dim);
  const DType dtype = result_type(tensors);
  hlo::Values parts;
  for (const Value& t : tensors) {
    if (!is_skipped_by_cat(t)) parts.push_back(convert(t, dtype));
  }
  if (parts.empty()) return convert(tensors[0], dtype);
  return join(context, parts, wrap_dim(dim, parts[0].rank()));
}

Value stack(const Context& context, const std::vector<Value>& tensors, std::int64_t dim) {
  check(!tensors.empty(), "stack expects a non-empty TensorList");
  const std::int64_t place = wrap_dim(dim, tensors[0].rank() + 1);
  const DType dtype = result_type(tensors);
  hlo::Values parts;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    check(tensors[i].dims() == tensors[0].dims(),
          "stack expects each tensor to be equal size, but got ",
          base::to_string(tensors[0].dims()), " at entry 0 and ",
          base::to_string(tensors[i].dims()), " at entry ", i);
    parts.push_back(insert_dim(convert(tensors[i], dtype), place));
  }
  return join(context, parts, place);
}

Value flip(Value self, const Dims& dims) {
  if (dims.empty()) return self;
  const Dims wrapped = wrap_dims(dims, self.rank());
  return wrapped.empty() ? self : hlo::reverse(self, wrapped);
}

// Whether a call moves the elements (src/aten/{broadcast,roll,transpose}_kernel.cpp): fewer are
// moved before it has begun.
bool is_worth_a_call(const Context& context, const Value& result) {
  constexpr std::int64_t kLeastElements = 32768;
  return context.has_host_kernels && result.num_elements() >= kLeastElements;
}

// Whether the elements of a row of the result lie apart in the operand.
bool parts_rows(const Dims& operand, const Dims& permutation) {
  const auto last = std::ranges::find_if(permutation.rbegin(), permutation.rend(),
                                         [&](std::int64_t dim) { return operand[at(dim)] != 1; });
  return last != permutation.rend() &&
         std::ranges::any_of(operand.begin() + *last + 1, operand.end(),
                             [](std::int64_t size) { return size != 1; });
}

// A copy of a broadcast in the given sizes, of as many elements. XLA would make float32 of half
// precision to reshape it, and half precision again.
Value copied_broadcast(const hlo::Builder::Broadcast& view, const Dims& view_sizes,
                       const Dims& sizes) {
  const Value& operand = view.operand;
  Dims distances(view_sizes.size());
  std::int64_t distance = 1;
  for (std::int64_t i = operand.rank(); i-- > 0; distance *= operand.dim(i)) {
    if (operand.dim(i) != 1) distances[at(view.dimensions[at(i)])] = distance;
  }
  hlo::CustomCall call;
  call.call_target_name = "torch_xla.broadcast";
  call.results = {{operand.dtype(), sizes}};
  call.backend_config = {{"sizes", view_sizes}, {"distances", distances}};
  const Value* const before = operand.builder().reshaped(operand);
  return hlo::custom_call({before != nullptr ? *before : operand}, call)[0];
}

// What `self` is a broadcast of, if a copy of it is worth a call.
const hlo::Builder::Broadcast* large_broadcast(const Context& context, Value self) {
  return is_worth_a_call(context, self) ? self.builder().broadcast(self) : nullptr;
}

// A copy of a transposed or broadcast view: XLA's CPU backend moves one element after the other.
Value clone(const Context& context, Value self) {
  if (!is_worth_a_call(context, self)) return self;
  const hlo::Builder::Transposition* const view = self.builder().transposition(self);
  if (view != nullptr && parts_rows(view->operand.dims(), view->permutation)) {
    hlo::CustomCall call;
    call.call_target_name = "torch_xla.transpose";
    call.results = {self.type()};
    call.backend_config = {{"permutation", view->permutation}};
    return hlo::custom_call({view->operand}, call)[0];
  }
  const hlo::Builder::Broadcast* const repeated = large_broadcast(context, self);
  return repeated != nullptr ? copied_broadcast(*repeated, self.dims(), self.dims()) : self;
}

Value repeat(const Context& context, Value self, const Dims& repeats) {
  const auto rank = static_cast<std::int64_t>(repeats.size());
  check(rank >= self.rank(),
        "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
        "tensor");
  // Each dimension becomes two, the repeats before the elements.
  Dims pairs;
  Dims places;
  Dims merged;
  for (std::int64_t i = 0; i < rank; ++i) {
    const std::int64_t own = i - (rank - self.rank());
    const std::int64_t size = own < 0 ? 1 : self.dim(own);
    if (repeats[at(i)] != 1) pairs.push_back(repeats[at(i)]);
    if (own >= 0) {
      places.push_back(static_cast<std::int64_t>(pairs.size()));
      pairs.push_back(size);
    }
    merged.push_back(repeats[at(i)] * size);
  }
  const Value view = hlo::broadcast_in_dim(self, pairs, places);
  const hlo::Builder::Broadcast* const repeated = large_broadcast(context, view);
  if (repeated != nullptr) return copied_broadcast(*repeated, pairs, merged);
  return hlo::reshape(view, merged);
}

Value roll_dim(const Context& context, Value self, std::int64_t shift, std::int64_t dim) {
  const std::int64_t size = self.dim(dim);
  if (size == 0) return self;
  const std::int64_t start = ((size - shift % size) % size + size) % size;
  if (start == 0) return self;
  if (is_worth_a_call(context, self)) {
    hlo::CustomCall call;
    call.call_target_name = "torch_xla.roll";
    call.results = {self.type()};
    call.backend_config = {{"dim", dim}, {"shift", size - start}};
    return hlo::custom_call({self}, call)[0];
  }
  return hlo::concatenate({slice_dim(self, dim, start, size), slice_dim(self, dim, 0, start)}, dim);
}

Value roll(const Context& context, Value self, const Dims& shifts, const Dims& dims) {
  check(!shifts.empty(), "`shifts` required");
  if (dims.empty() && shifts.size() == 1) {
    const Value flat = hlo::reshape(self, {self.num_elements()});
    return hlo::reshape(roll_dim(context, flat, shifts[0], 0), self.dims());
  }
  check(shifts.size() == dims.size(), "shifts and dimensions must align. shifts: ", shifts.size(),
        ", dims:", dims.size());
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (self.rank() == 0) {
      base::fail(base::ErrorKind::kIndex, "Dimension specified as ", dims[i],
                 " but tensor has no dimensions");
    }
    self = roll_dim(context, self, shifts[i], wrap_dim(dims[i], self.rank()));
  }
  return self;
}

// Where column - row compares with `diagonal`, over the last two dimensions.
Value triangle_mask(Value self, const Promotable& diagonal, hlo::ComparisonDirection direction) {
  hlo::Builder& builder = self.builder();
  const std::int64_t rank = self.rank();
  const Shape shape{DType::kInt64, {self.dim(rank - 2), self.dim(rank - 1)}};
  const Value rows = hlo::iota(builder, shape, 0);
  const Value columns = hlo::iota(builder, shape, 1);
  const Value limit =
      hlo::add(rows, broadcast_to(diagonal.value(builder, shape.dtype), shape.dims));
  return broadcast_to(hlo::compare(columns, limit, direction), self.dims());
}

Value triangle(Value self, const Promotable& diagonal, hlo::ComparisonDirection direction) {
  const bool is_lower = direction == hlo::ComparisonDirection::kLe;
  check(self.rank() >= 2, is_lower ? "tril" : "triu",
        ": input tensor must have at least 2 dimensions");
  return hlo::select(triangle_mask(self, diagonal, direction), self, full_like(self, 0));
}

Value diag_embed(Value self, std::int64_t offset, std::int64_t dim1, std::int64_t dim2) {
  const std::int64_t rank = self.rank() + 1;
  const std::int64_t row_dim = wrap_dim(dim1, rank);
  const std::int64_t column_dim = wrap_dim(dim2, rank);
  check(row_dim != column_dim, "diagonal dimensions cannot be identical ", dim1, ", ", dim2);
  // One value per row, repeated along the row, kept where the row crosses the diagonal.
  const std::int64_t last = self.rank() - 1;
  const Dims zeros(at(self.rank()), 0);
  const Value values = hlo::pad(self, scalar(self.builder(), self.dtype(), 0),
                                with_dim(zeros, last, std::max<std::int64_t>(-offset, 0)),
                                with_dim(zeros, last, std::max<std::int64_t>(offset, 0)));
  Dims dims = values.dims();
  dims.push_back(values.dim(last));
  Dims places(at(values.rank()));
  std::iota(places.begin(), places.end(), 0);
  const Value rows = hlo::broadcast_in_dim(values, dims, places);
  const Value matrix =
      hlo::select(triangle_mask(rows, Promotable(offset), hlo::ComparisonDirection::kEq), rows,
                  full_like(rows, 0));
  Dims permutation;
  for (std::int64_t i = 0, batch = 0; i < rank; ++i) {
    permutation.push_back(i == row_dim ? rank - 2 : (i == column_dim ? rank - 1 : batch++));
  }
  return permute(matrix, permutation);
}

Value block_diag(const Context& context, const std::vector<Value>& tensors) {
  hlo::Values blocks;
  std::int64_t columns = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Value& t = tensors[i];
    check(t.rank() <= 2, "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input ",
          i, " has ", t.rank(), " dimensions");
    Dims matrix(at(2 - t.rank()), 1);
    matrix.insert(matrix.end(), t.dims().begin(), t.dims().end());
    blocks.push_back(hlo::reshape(t, matrix));
    columns += matrix[1];
  }
  if (blocks.empty()) return hlo::full(context.builder, Shape{DType::kFloat32, {1, 0}}, 0.0);
  const DType dtype = result_type(tensors);
  const Value zero = scalar(context.builder, dtype, 0);
  std::int64_t column = 0;
  for (Value& block : blocks) {
    const std::int64_t width = block.dim(1);
    block = hlo::pad(convert(block, dtype), zero, {0, column}, {0, columns - column - width});
    column += width;
  }
  return join(context, blocks, 0);
}

Value pixel_shuffle(Value self, std::int64_t factor) {
  const std::int64_t rank = self.rank();
  check(rank >= 3, "pixel_shuffle expects input to have at least 3 dimensions, but got input with ",
        rank, " dimension(s)");
  check(factor > 0, "pixel_shuffle expects a positive upscale_factor, but got ", factor);
  constexpr std::int64_t kMaxFactor = 3037000499;  // the root of what an int64 holds
  if (factor > kMaxFactor) {
    base::fail(base::ErrorKind::kValue,
               "upscale factor is too large, (upscale_factor)^2 "
               "overflowed: upscale_factor=",
               factor);
  }
  const std::int64_t channels = self.dim(rank - 3);
  const std::int64_t area = factor * factor;
  check(channels % area == 0,
        "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
        "upscale_factor, but input.size(-3)=",
        channels, " is not divisible by ", area);
  const std::int64_t height = self.dim(rank - 2);
  const std::int64_t width = self.dim(rank - 1);
  const std::int64_t batch = base::num_elements(leading_dims(self.dims(), 3));
  const Value split = hlo::reshape(self, {batch, channels / area, factor, factor, height, width});
  Dims dims = leading_dims(self.dims(), 3);
  dims.insert(dims.end(), {channels / area, height * factor, width * factor});
  return hlo::reshape(permute(split, {0, 1, 4, 2, 5, 3}), dims);
}

Value pixel_unshuffle(Value self, std::int64_t factor) {
  const std::int64_t rank = self.rank();
  check(rank >= 3,
        "pixel_unshuffle expects input to have at least 3 dimensions, but got input with ", rank,
        " dimension(s)");
  check(factor > 0, "pixel_unshuffle expects a positive downscale_factor, but got ", factor);
  const std::int64_t channels = self.dim(rank - 3);
  const std::int64_t height = self.dim(rank - 2);
  const std::int64_t width = self.dim(rank - 1);
  check(height % factor == 0,
        "pixel_unshuffle expects height to be divisible by downscale_factor, but input.size(-2)=",
        height, " is not divisible by ", factor);
  check(width % factor == 0,
        "pixel_unshuffle expects width to be divisible by downscale_factor, but input.size(-1)=",
        width, " is not divisible by ", factor);
  const std::int64_t batch = base::num_elements(leading_dims(self.dims(), 3));
  const Value split =
      hlo::reshape(self, {batch, channels, height / factor, factor, width / factor, factor});
  Dims dims = leading_dims(self.dims(), 3);
  dims.insert(dims.end(), {channels * factor * factor, height / factor, width / factor});
  return hlo::reshape(permute(split, {0, 1, 3, 5, 2, 4}), dims);
}

Value channel_shuffle(Value self, std::int64_t groups) {
  check(self.rank() > 2, "channel_shuffle expects input with > 2 dims, but got input with sizes ",
        base::to_string(self.dims()));
  check(groups > 0,
        "Number of groups to divide channels in must be positive. Value of groups:", groups);
  const std::int64_t channels = self.dim(1);
  check(channels % groups == 0, "Number of channels must be divisible by groups. Got ", channels,
        " channels and ", groups, " groups.");
  const std::int64_t batch = self.dim(0);
  const std::int64_t inner = std::accumulate(self.dims().begin() + 2, self.dims().end(),
                                             std::int64_t{1}, std::multiplies<>());
  const Value split = hlo::reshape(self, {batch, groups, channels / groups, inner});
  return hlo::reshape(permute(split, {0, 2, 1, 3}), self.dims());
}

}  // namespace

void register_shape(Registry& m) {
  m.impl("cat", [](Context& context, std::vector<Value> tensors, std::int64_t dim) {
    return cat(context, tensors, dim);
  });
  m.impl({"stack", "_stack"}, [](Context& context, std::vector<Value> tensors, std::int64_t dim) {
    return stack(context, tensors, dim);
  });
  m.impl("block_diag",
         [](Context& context, std::vector<Value> tensors) { return block_diag(context, tensors); });
  m.impl("repeat",
         [](Context& context, Value self, Dims repeats) { return repeat(context, self, repeats); });
  m.impl("flip", [](Value self, Dims dims) { return flip(self, dims); });
  m.impl("clone", [](Context& context, Value self) { return clone(context, self); });
  m.impl("roll", [](Context& context, Value self, Dims shifts, Dims dims) {
    return roll(context, self, shifts, dims);
  });
  m.impl("tril",
         [](Value self, Promotable diagonal) {
           return triangle(self, diagonal, hlo::ComparisonDirection::kLe);
         },
         {.repeats = Repeats::kAllowed});
  m.impl("triu",
         [](Value self, Promotable diagonal) {
           return triangle(self, diagonal, hlo::ComparisonDirection::kGe);
         },
         {.repeats = Repeats::kAllowed});
  m.impl("diag_embed", [](Value self, std::int64_t offset, std::int64_t dim1, std::int64_t dim2) {
    return diag_embed(self, offset, dim1, dim2);
  });
  m.impl("pixel_shuffle", [](Value self, std::int64_t upscale_factor) {
    return pixel_shuffle(self, upscale_factor);
  });
  m.impl("pixel_unshuffle", [](Value self, std::int64_t downscale_factor) {
    return pixel_unshuffle(self, downscale_factor);
  });
  m.impl({"channel_shuffle", "native_channel_shuffle"},
         [](Value self, std::int64_t groups) { return channel_shuffle(self, groups); });
}

}  // namespace torch_xla::ops

// Reading and writing by tensors of indices, as NumPy's advanced indexing does: index, index_put,
// index_select, gather, take and put. Writes that combine are in scatter.cpp. Masks among the
// indices were turned into integers before they came here.
#include "ops/indexing.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "hlo/in_place.h"
#include "ops/at.h"
#include "ops/reduce.h"
#include "ops/scan.h"
#include "ops/views.h"

namespace torch_xla::ops {

using base::check;
using base::ErrorKind;
using base::fail;

namespace {

// The sizes of `self`, but with the index's in all dimensions other than `dim`.
Dims dims_beside(Value self, std::int64_t dim, Value index) {
  return with_dim(index.dims(), dim, self.dim(dim));
}

// The part of `value` from the origin that has the given sizes.
Value corner(Value value, const Dims& dims) {
  if (value.dims() == dims) return value;
  return hlo::slice(value, Dims(dims.size(), 0), dims, Dims(dims.size(), 1));
}

}  // namespace

Value wrap_negative(Value indices, std::int64_t size) {
  const Value zero = full_like(indices, 0);
  const Value wrapped = hlo::add(indices, full_like(indices, size));
  return hlo::select(hlo::lt(indices, zero), wrapped, indices);
}

Value gather_elements(Value flat, Value indices) { return take_slices(flat, 0, indices); }

Value scatter_elements(Value flat, Value indices, Value updates, const hlo::BinaryRegion& combine) {
  hlo::ScatterDimensionNumbers numbers;
  numbers.inserted_window_dims = {0};
  numbers.scatter_dims_to_operand_dims = {0};
  numbers.index_vector_dim = indices.rank();
  return hlo::scatter(flat, indices, updates, numbers, combine);
}

Value take_slices(Value self, std::int64_t dim, Value indices) {
  Dims dims = self.dims();
  dims.erase(dims.begin() + dim);
  dims.insert(dims.begin() + dim, indices.dims().begin(), indices.dims().end());
  if (base::num_elements(dims) == 0 || self.dim(dim) == 0) {
    return hlo::full(self.builder(), Shape{self.dtype(), dims}, 0);
  }
  hlo::GatherDimensionNumbers numbers;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(dims.size()); ++i) {
    if (i < dim || i >= dim + indices.rank()) numbers.offset_dims.push_back(i);
  }
  numbers.collapsed_slice_dims = {dim};
  numbers.start_index_map = {dim};
  numbers.index_vector_dim = indices.rank();
  return hlo::gather(self, indices, numbers, with_dim(self.dims(), dim, 1));
}

Value scatter_slices(Value self, std::int64_t dim, Value indices, Value updates,
                     const hlo::BinaryRegion& combine) {
  if (updates.num_elements() == 0) return self;
  hlo::ScatterDimensionNumbers numbers;
  numbers.update_window_dims = all_but(dim, updates.rank());
  numbers.inserted_window_dims = {dim};
  numbers.scatter_dims_to_operand_dims = {dim};
  numbers.index_vector_dim = 1;
  return hlo::scatter(self, indices, updates, numbers, combine);
}

void check_index_along(std::string_view op, Value self, std::int64_t dim, Value index,
                       const std::optional<Value>& src) {
  if (index.num_elements() == 0) return;
  check(index.dtype() == DType::kInt64 || index.dtype() == DType::kInt32, op,
        "(): Expected dtype int32/int64 for index");
  const auto rank_of = [](const Value& v) { return std::max<std::int64_t>(v.rank(), 1); };
  const bool is_gather = op == "gather";
  check(rank_of(index) == rank_of(self), "Index tensor must have the same number of dimensions as ",
        is_gather ? "input" : "self", " tensor");
  check(!src.has_value() || rank_of(index) == rank_of(*src),
        "Index tensor must have the same number of dimensions as src tensor");
  const Dims limits = at_least_1d(self).dims();
  const Dims sizes = at_least_1d(index).dims();
  const Dims sources = src.has_value() ? at_least_1d(*src).dims() : sizes;
  for (std::int64_t d = 0; d < static_cast<std::int64_t>(sizes.size()); ++d) {
    const bool fits = d == dim || sizes[at(d)] <= limits[at(d)];
    if (is_gather) {
      check(fits, "Size does not match at dimension ", d, " expected index ",
            base::to_string(index.dims()), " to be no larger than self ",
            base::to_string(self.dims()), " apart from dimension ", dim);
      continue;
    }
    check(fits && sizes[at(d)] <= sources[at(d)], "Expected index ", base::to_string(index.dims()),
          " to be no larger than self ", base::to_string(self.dims()), " apart from dimension ",
          dim,
          src.has_value() ? " and to be no larger size than src " + base::to_string(src->dims())
                          : "");
  }
}

Value gather_along(Value self, std::int64_t dim, Value index) {
  const Dims dims = index.dims();
  self = at_least_1d(self);
  index = at_least_1d(index);
  if (index.num_elements() == 0 || self.num_elements() == 0) {
    return hlo::full(self.builder(), Shape{self.dtype(), dims}, 0);
  }
  hlo::GatherDimensionNumbers numbers;
  numbers.collapsed_slice_dims = {dim};
  numbers.operand_batching_dims = all_but(dim, self.rank());
  numbers.start_indices_batching_dims = numbers.operand_batching_dims;
  numbers.start_index_map = {dim};
  numbers.index_vector_dim = index.rank();
  const Value operand = corner(self, dims_beside(self, dim, index));
  return hlo::reshape(hlo::gather(operand, index, numbers, Dims(at(self.rank()), 1)), dims);
}

namespace {

// With so few indices per row, comparing each element's place with them beats a scatter, which runs
// one element at a time.
constexpr std::int64_t kMaxComparedIndices = 4;

Value scatter_by_comparing(Value self, std::int64_t dim, Value index, Value src,
                           const hlo::BinaryRegion& combine) {
  const Value places = hlo::iota(self.builder(), Shape{index.dtype(), self.dims()}, dim);
  for (std::int64_t k = 0; k < index.dim(dim); ++k) {
    const Value target = broadcast_to(slice_dim(index, dim, k, k + 1), self.dims());
    const Value update = broadcast_to(slice_dim(src, dim, k, k + 1), self.dims());
    self = hlo::select(hlo::eq(places, target), combine(self, update), self);
  }
  return self;
}

}  // namespace

Combination replacing() { return {replace, "torch_xla.scatter"}; }
Combination adding() { return {hlo::add, "torch_xla.scatter_add"}; }

Value scatter_along(const Context& context, Value self, std::int64_t dim, Value index, Value src,
                    const Combination& combination) {
  if (index.num_elements() == 0) return self;
  const Dims dims = self.dims();
  self = at_least_1d(self);
  index = at_least_1d(index);
  if (src.rank() != 0) src = corner(src, index.dims());
  const Value part = corner(self, dims_beside(self, dim, index));
  const auto everywhere = [&] { return broadcast_to(src, index.dims()); };
  Value written;
  if (index.dim(dim) <= kMaxComparedIndices) {
    written = scatter_by_comparing(part, dim, index, everywhere(), combination.region);
  } else if (const auto called = called_scatter(context, part, dim, index, src, combination)) {
    written = *called;
  } else {
    hlo::ScatterDimensionNumbers numbers;
    numbers.inserted_window_dims = {dim};
    numbers.input_batching_dims = all_but(dim, self.rank());
    numbers.scatter_indices_batching_dims = numbers.input_batching_dims;
    numbers.scatter_dims_to_operand_dims = {dim};
    numbers.index_vector_dim = index.rank();
    written = hlo::scatter(part, index, everywhere(), numbers, combination.region);
  }
  if (part.dims() != self.dims()) {
    const Value origin = scalar(self.builder(), DType::kInt64, 0);
    written = hlo::update_slice(self, written, hlo::Values(at(self.rank()), origin));
  }
  return hlo::reshape(written, dims);
}

Value replace(Value, Value update) { return update; }

Value greater_of(Value element, Value update) {
  if (!base::is_floating(element.dtype())) return hlo::maximum(element, update);
  const Value keeps = hlo::or_(hlo::gt(element, update), is_nan(element));
  return hlo::select(keeps, element, update);
}

Value lesser_of(Value element, Value update) {
  if (!base::is_floating(element.dtype())) return hlo::minimum(element, update);
  const Value keeps = hlo::or_(hlo::lt(element, update), is_nan(element));
  return hlo::select(keeps, element, update);
}

void check_long_or_int(Value indices, int argument, std::string_view name, std::string_view op) {
  check(indices.dtype() == DType::kInt64 || indices.dtype() == DType::kInt32,
        "Expected tensor for argument #", argument, " '", name,
        "' to have one of the following scalar types: Long, Int; but got torch.",
        scalar_type_name(indices.dtype()), "Tensor instead (while checking arguments for ", op,
        ")");
}

Value places_of_true(Value mask) {
  hlo::Builder& builder = mask.builder();
  const Value counts =
      scan({convert(mask, DType::kInt64)}, {scalar(builder, DType::kInt64, 0)}, 0,
           [](std::span<const Value> v) { return hlo::Values{hlo::add(v[0], v[1])}; })[0];
  return hlo::subtract(counts, full_like(counts, 1));
}

namespace {

using MaybeValues = std::vector<std::optional<Value>>;

// How self[indices] is laid out: which dimensions are indexed, the sizes that the indices broadcast
// to, and where these stand in the result: in place of the indexed dimensions when those are
// neighbours, else in front.
struct IndexPlan {
  Dims indexed;
  Dims index_dims;
  Dims result_dims;
  Dims window_dims;  // the result's dimensions that are self's own
  Value indices;     // the index vectors, along the last dimension when there are several

  IndexPlan(Value self, const MaybeValues& list) {
    check_list(self, list);
    std::vector<Value> parts;
    for (std::size_t d = 0; d < list.size(); ++d) {
      if (!list[d].has_value()) continue;
      indexed.push_back(static_cast<std::int64_t>(d));
      parts.push_back(*list[d]);
    }
    broadcast_indices(parts);
    lay_out(self);
    combine(self, parts);
  }

  bool is_single() const { return indexed.size() == 1; }

 private:
  static void check_list(Value self, const MaybeValues& list) {
    if (static_cast<std::int64_t>(list.size()) > self.rank()) {
      fail(ErrorKind::kIndex, "too many indices for tensor of dimension ", self.rank(), " (got ",
           list.size(), ")");
    }
    for (const std::optional<Value>& index : list) {
      if (!index.has_value()) continue;
      const DType dtype = index->dtype();
      if (dtype != DType::kInt64 && dtype != DType::kInt32 && dtype != DType::kUInt8 &&
          dtype != DType::kBool) {
        fail(ErrorKind::kIndex, "tensors used as indices must be long, int, byte or bool tensors");
      }
    }
  }

  void broadcast_indices(const std::vector<Value>& parts) {
    if (parts.empty()) fail(ErrorKind::kIndex, "at least one index must be provided");
    try {
      for (const Value& part : parts) index_dims = broadcast_dims(index_dims, part.dims());
    } catch (const base::Error&) {
      std::string shapes;
      for (const Value& part : parts) {
        shapes += (shapes.empty() ? "" : ", ") + base::to_string(part.dims());
      }
      fail(ErrorKind::kIndex,
           "shape mismatch: indexing tensors could not be broadcast together with shapes ", shapes);
    }
  }

  void lay_out(Value self) {
    const bool is_adjacent =
        indexed.back() - indexed.front() + 1 == static_cast<std::int64_t>(indexed.size());
    const std::int64_t place = is_adjacent ? indexed.front() : 0;
    const auto insert_indices = [&] {
      result_dims.insert(result_dims.end(), index_dims.begin(), index_dims.end());
    };
    for (std::int64_t d = 0, own = 0; d < self.rank(); ++d) {
      if (std::binary_search(indexed.begin(), indexed.end(), d)) continue;
      if (own++ == place) insert_indices();
      window_dims.push_back(static_cast<std::int64_t>(result_dims.size()));
      result_dims.push_back(self.dim(d));
    }
    const auto num_windows = static_cast<std::int64_t>(window_dims.size());
    if (num_windows <= place) insert_indices();
    for (const std::int64_t d : indexed) {
      if (self.dim(d) == 0 && base::num_elements(index_dims) != 0) {
        fail(ErrorKind::kIndex, "index is out of bounds for dimension with size 0");
      }
    }
  }

  void combine(Value self, const std::vector<Value>& parts) {
    const bool is_wide = std::any_of(parts.begin(), parts.end(), [](const Value& part) {
      return part.dtype() != DType::kInt32;
    });
    const DType dtype = is_wide ? DType::kInt64 : DType::kInt32;
    hlo::Values vectors;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Value wrapped = wrap_negative(convert(parts[i], dtype), self.dim(indexed[i]));
      const Value index = broadcast_to(wrapped, index_dims);
      vectors.push_back(is_single() ? index : insert_dim(index, index.rank()));
    }
    indices = is_single() ? vectors[0]
                          : hlo::concatenate(vectors, static_cast<std::int64_t>(index_dims.size()));
  }
};

Value index(Value self, const MaybeValues& list) {
  const IndexPlan plan(self, list);
  if (base::num_elements(plan.result_dims) == 0) {
    return hlo::full(self.builder(), Shape{self.dtype(), plan.result_dims}, 0);
  }
  hlo::GatherDimensionNumbers numbers;
  numbers.offset_dims = plan.window_dims;
  numbers.collapsed_slice_dims = plan.indexed;
  numbers.start_index_map = plan.indexed;
  numbers.index_vector_dim = static_cast<std::int64_t>(plan.index_dims.size());
  Dims sizes = self.dims();
  for (const std::int64_t d : plan.indexed) sizes[at(d)] = 1;
  return hlo::gather(self, plan.indices, numbers, sizes);
}

Value index_put(Value self, const MaybeValues& list, Value values, bool accumulate) {
  check(self.dtype() == values.dtype(),
        "Index put requires the source and destination dtypes match, got ",
        scalar_type_name(self.dtype()), " for the destination and ",
        scalar_type_name(values.dtype()), " for the source.");
  const IndexPlan plan(self, list);
  bool fits = values.rank() <= static_cast<std::int64_t>(plan.result_dims.size());
  for (std::int64_t i = 0; fits && i < values.rank(); ++i) {
    const std::int64_t size = values.dim(values.rank() - 1 - i);
    fits = size == 1 || size == plan.result_dims[plan.result_dims.size() - 1 - at(i)];
  }
  check(fits, "shape mismatch: value tensor of shape ", base::to_string(values.dims()),
        " cannot be broadcast to indexing result of shape ", base::to_string(plan.result_dims));
  const Value updates = broadcast_to(values, plan.result_dims);
  if (updates.num_elements() == 0) return self;
  hlo::ScatterDimensionNumbers numbers;
  numbers.update_window_dims = plan.window_dims;
  numbers.inserted_window_dims = plan.indexed;
  numbers.scatter_dims_to_operand_dims = plan.indexed;
  numbers.index_vector_dim = static_cast<std::int64_t>(plan.index_dims.size());
  return hlo::scatter(self, plan.indices, updates, numbers, accumulate ? hlo::add : replace);
}

// A mask over the leading dimensions and one number for all that it picks.
Value put_by_mask(Value self, Value mask, Value value) {
  Dims places(at(mask.rank()));
  std::iota(places.begin(), places.end(), 0);
  const Value everywhere = hlo::broadcast_in_dim(mask, self.dims(), places);
  const Value number = hlo::reshape(convert(value, self.dtype()), {});
  return hlo::select(everywhere, broadcast_to(number, self.dims()), self);
}

Value index_select(Value self, std::int64_t dim, Value index) {
  check(index.dtype() == DType::kInt64 || index.dtype() == DType::kInt32,
        "index_select(): Expected dtype int32 or int64 for index");
  if (index.rank() > 1) fail(ErrorKind::kIndex, "index_select(): Index is supposed to be a vector");
  dim = wrap_dim(dim, self.rank());
  index = at_least_1d(index);
  if (self.rank() == 0) {
    check(index.dim(0) == 1, "index_select(): Index to scalar can have only 1 value, got ",
          index.dim(0), " value(s)");
    return self;
  }
  check(self.dim(dim) > 0 || index.dim(0) == 0,
        "index_select(): self indexing axis dim should be positive");
  return take_slices(self, dim, index);
}

Value flattened(Value value) { return hlo::reshape(value, {value.num_elements()}); }

Value take(Value self, Value index) {
  check(index.dtype() == DType::kInt64, "take(): Expected a long tensor for index, but got ",
        scalar_type_name(index.dtype()));
  if (self.num_elements() == 0 && index.num_elements() != 0) {
    fail(ErrorKind::kIndex, "take(): tried to take from an empty tensor");
  }
  return gather_elements(flattened(self), wrap_negative(index, self.num_elements()));
}

Value put(Value self, Value index, Value source, bool accumulate) {
  check(index.dtype() == DType::kInt64, "put_(): Expected a long tensor for index, but got ",
        scalar_type_name(index.dtype()));
  check(self.dtype() == source.dtype(),
        "put_(): self and source expected to have the same dtype, but got self.dtype = ",
        scalar_type_name(self.dtype()), " and source.dtype = ", scalar_type_name(source.dtype()));
  if (source.num_elements() != index.num_elements()) {
    fail(ErrorKind::kIndex,
         "put_(): Expected source and index to have the same number of elements, but got "
         "source.numel() = ",
         source.num_elements(), ", index.numel() = ", index.num_elements());
  }
  if (index.num_elements() == 0) return self;
  if (self.num_elements() == 0) {
    fail(ErrorKind::kIndex, "put_(): Tried to put elements into an empty tensor");
  }
  const Value places = wrap_negative(flattened(index), self.num_elements());
  const Value written =
      scatter_elements(flattened(self), places, flattened(source), accumulate ? hlo::add : replace);
  return hlo::reshape(written, self.dims());
}

}  // namespace

void register_indexing(Registry& m) {
  m.impl({"index.Tensor", "_unsafe_index.Tensor"},
         [](Value self, MaybeValues indices) { return index(self, indices); });
  m.impl({"index_put", "_unsafe_index_put"},
         [](Value self, MaybeValues indices, Value values, bool accumulate) {
           return index_put(self, indices, values, accumulate);
         });
  m.impl("_index_put_impl",
         [](Value self, MaybeValues indices, Value values, bool accumulate, bool) {
           return index_put(self, indices, values, accumulate);
         },
         {.repeats = Repeats::kAllowed});  // with a warning of its kernel
  m.impl("index_put:mask",
         [](Value self, Value mask, Value value) { return put_by_mask(self, mask, value); });
  m.impl("index_select",
         [](Value self, std::int64_t dim, Value index) { return index_select(self, dim, index); });
  m.impl("gather", [](Value self, std::int64_t dim, Value index, bool) {
    dim = wrap_dim(dim, self.rank());
    check_index_along("gather", self, dim, index);
    return gather_along(self, dim, index);
  });
  m.impl("take", [](Value self, Value index) { return take(self, index); });
  m.impl("put", [](Value self, Value index, Value source, bool accumulate) {
    return put(self, index, source, accumulate);
  });
}

}  // namespace torch_xla::ops

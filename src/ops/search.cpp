// Operators that look elements up: searchsorted, bucketize, isin, nonzero_static; and those that
// hand elements out to the true places of a mask: masked_scatter and its gradient.
#include <bit>
#include <optional>
#include <string>

#include "base/error.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/views.h"

namespace torch_xla::ops {
namespace {

using base::check;

// Tells of an element of a sorted sequence whether it stands before a value.
using Before = hlo::BinaryRegion;

// Up to this size a sequence is compared with each value as a whole.
constexpr std::int64_t kMaxCompared = 128;

Value count_before(Value sorted, Value values, const Before& before) {
  Dims dims = values.dims();
  dims.push_back(sorted.dims().back());
  Dims value_places = wrap_dims({}, values.rank());
  Dims sorted_places = value_places;
  if (sorted.rank() == 1) sorted_places.clear();
  if (sorted.rank() > 1) sorted_places.pop_back();
  sorted_places.push_back(values.rank());
  const Value is_before = before(hlo::broadcast_in_dim(sorted, dims, sorted_places),
                                 hlo::broadcast_in_dim(values, dims, value_places));
  return reduce_sum(convert(is_before, DType::kInt64), {values.rank()});
}

Value bisect(Value sorted, Value values, const Before& before) {
  hlo::Builder& builder = sorted.builder();
  const auto size = static_cast<std::uint64_t>(sorted.dims().back());
  const std::int64_t last = sorted.rank() - 1;
  const Shape shape{DType::kInt64, values.dims()};
  Value place = hlo::full(builder, shape, 0);
  // The number of elements before each value, from its highest bit to its lowest.
  for (std::uint64_t step = std::bit_floor(size); step > 0; step /= 2) {
    const Value next = hlo::add(place, hlo::full(builder, shape, static_cast<std::int64_t>(step)));
    const Value probe = hlo::subtract(next, full_like(next, 1));
    const Value element =
        sorted.rank() == 1 ? gather_elements(sorted, probe) : gather_along(sorted, last, probe);
    const Value is_inside = hlo::le(next, full_like(next, sorted.dims().back()));
    place = hlo::select(hlo::and_(is_inside, before(element, values)), next, place);
  }
  return place;
}

// How many elements of the last dimension of `sorted` stand before each value; `sorted` has one
// dimension, or all those of `values` but the last alike.
Value places_in(Value sorted, Value values, const Before& before) {
  if (values.num_elements() == 0 || sorted.dims().back() == 0) {
    return hlo::full(sorted.builder(), Shape{DType::kInt64, values.dims()}, 0);
  }
  const bool is_short = sorted.dims().back() <= kMaxCompared;
  return is_short ? count_before(sorted, values, before) : bisect(sorted, values, before);
}

// NaN comes after all numbers, so each test is for what is not so.
Value searched(Value sorted, Value values, bool right, bool out_int32) {
  const DType dtype = result_type({sorted, values});
  const auto before = right ? [](Value e, Value v) { return hlo::not_(hlo::gt(e, v)); }
                            : [](Value e, Value v) { return hlo::not_(hlo::ge(e, v)); };
  const Value out = places_in(convert(sorted, dtype), convert(values, dtype), before);
  return out_int32 ? convert(out, DType::kInt32) : out;
}

void check_search(Value sorted, Value values, bool right, const std::optional<std::string>& side,
                  const std::optional<Value>& sorter) {
  if (side.has_value()) {
    check(*side == "left" || *side == "right",
          "torch.searchsorted(): side can only be 'left' or 'right' but got ", *side);
    check(!right || *side == "right",
          "torch.searchsorted(): side and right can't be set to opposites, got side of ", *side,
          " while right was True");
  }
  check(sorted.rank() > 0,
        "torch.searchsorted(): boundaries tensor should have positive dimension, but got 0 "
        "dimension");
  check(values.rank() > 0 || sorted.rank() == 1,
        "torch.searchsorted(): input value can be a scalar only when boundaries tensor dimension "
        "is 1, but we got boundaries tensor dim(",
        sorted.rank(), ") and input value's dim(0) numel(1)");
  const auto leading = [](const Dims& dims) { return leading_dims(dims, 1); };
  check(sorted.rank() == 1 ||
            (sorted.rank() == values.rank() && leading(sorted.dims()) == leading(values.dims())),
        "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions "
        "of boundaries tensor and input value tensor must match, but we got boundaries tensor ",
        base::to_string(sorted.dims()), " and input value tensor ", base::to_string(values.dims()));
  if (!sorter.has_value()) return;
  check(sorter->dims() == sorted.dims(),
        "torch.searchsorted(): boundary and sorter must have the same size, but got boundary "
        "tensor ",
        base::to_string(sorted.dims()), "and got sorter tensor ", base::to_string(sorter->dims()));
  check(sorter->dtype() == DType::kInt64,
        "torch.searchsorted(): sorter must be a tensor of long dtype but got dtype ",
        scalar_type_name(sorter->dtype()));
}

Value searchsorted(Value sorted, Value values, bool out_int32, bool right,
                   const std::optional<std::string>& side, const std::optional<Value>& sorter) {
  check_search(sorted, values, right, side, sorter);
  if (sorter.has_value()) sorted = gather_along(sorted, sorted.rank() - 1, *sorter);
  return searched(sorted, values, right || side == "right", out_int32);
}

Value bucketize(Value self, Value boundaries, bool out_int32, bool right) {
  check(boundaries.rank() == 1, "boundaries tensor must be 1 dimension, but got dim(",
        boundaries.rank(), ")");
  return searched(boundaries, self, right, out_int32);
}

Value isin(Value elements, Value tests, bool invert) {
  const DType dtype = result_type({elements, tests});
  const Value values = convert(elements, dtype);
  const Value flat = hlo::reshape(convert(tests, dtype), {tests.num_elements()});
  Value found;
  if (flat.dim(0) <= kMaxCompared) {
    found = hlo::gt(places_in(flat, values, hlo::eq),
                    hlo::full(values.builder(), Shape{DType::kInt64, values.dims()}, 0));
  } else {
    const bool has_nan = base::is_floating(dtype);
    const Value sorted = hlo::sort(flat, 0, false, [has_nan](Value a, Value b) {
      return hlo::compare(a, b, hlo::ComparisonDirection::kLt, has_nan);
    });
    found = hlo::eq(gather_elements(sorted, places_in(sorted, values, hlo::lt)), values);
  }
  return invert ? hlo::not_(found) : found;
}

Value is_nonzero(Value self) { return convert(self, DType::kBool); }

// Where each element goes: true ones to their place among the true ones, others outside `size`.
Value targets_of_true(Value mask, std::int64_t size) {
  const Value places = places_of_true(mask);
  return hlo::select(mask, places, full_like(places, size));
}

Value nonzero_static(Value self, std::int64_t size, std::int64_t fill_value) {
  check(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  hlo::Builder& builder = self.builder();
  const std::int64_t rank = self.rank();
  const Shape column{DType::kInt64, {size}};
  if (rank == 0 || size == 0) return hlo::full(builder, Shape{DType::kInt64, {size, rank}}, 0);
  const std::int64_t count = self.num_elements();
  if (count == 0) return hlo::full(builder, Shape{DType::kInt64, {size, rank}}, fill_value);
  const Value mask = is_nonzero(hlo::reshape(self, {count}));
  // -1 marks the rows that no element fills.
  const Value flat =
      scatter_elements(hlo::full(builder, column, -1), targets_of_true(mask, size),
                       hlo::iota(builder, Shape{DType::kInt64, {count}}, 0), replace);
  const Value is_filled = hlo::ge(flat, full_like(flat, 0));
  hlo::Values columns;
  std::int64_t stride = count;
  for (const std::int64_t dim_size : self.dims()) {
    stride /= dim_size;
    const Value index =
        hlo::remainder(hlo::divide(flat, full_like(flat, stride)), full_like(flat, dim_size));
    columns.push_back(insert_dim(hlo::select(is_filled, index, full_like(flat, fill_value)), 1));
  }
  return columns.size() == 1 ? columns[0] : hlo::concatenate(columns, 1);
}

Value masked_scatter(Value self, Value mask, Value source) {
  check(self.dtype() == source.dtype(),
        "masked_scatter: expected self and source to have same dtypes but got",
        scalar_type_name(self.dtype()), " and ", scalar_type_name(source.dtype()));
  check(mask.dtype() == DType::kBool,
        "masked_scatter_ only supports boolean masks, but got mask with dtype ",
        scalar_type_name(mask.dtype()));
  const Dims dims = broadcast_dims(self.dims(), mask.dims());
  const Value out = broadcast_to(self, dims);
  const Value chosen = broadcast_to(mask, dims);
  if (out.num_elements() == 0 || source.num_elements() == 0) return out;
  const Value places =
      hlo::reshape(places_of_true(hlo::reshape(chosen, {chosen.num_elements()})), dims);
  const Value flat = hlo::reshape(source, {source.num_elements()});
  return hlo::select(chosen, gather_elements(flat, places), out);
}

Value masked_scatter_backward(Value grad, Value mask, const Dims& sizes) {
  hlo::Builder& builder = grad.builder();
  const std::int64_t size = base::num_elements(sizes);
  const Value zeros = hlo::full(builder, Shape{grad.dtype(), {size}}, 0);
  if (size == 0 || grad.num_elements() == 0) return hlo::reshape(zeros, sizes);
  const Dims flat{grad.num_elements()};
  const Value chosen = hlo::reshape(broadcast_to(mask, grad.dims()), flat);
  const Value out =
      scatter_elements(zeros, targets_of_true(chosen, size), hlo::reshape(grad, flat), replace);
  return hlo::reshape(out, sizes);
}

}  // namespace

void register_search(Registry& m) {
  m.impl({"searchsorted.Tensor", "searchsorted.Scalar"},
         [](Value sorted_sequence, Value self, bool out_int32, bool right,
            std::optional<std::string> side, std::optional<Value> sorter) {
           return searchsorted(sorted_sequence, self, out_int32, right, side, sorter);
         });
  m.impl({"bucketize.Tensor", "bucketize.Scalar"},
         [](Value self, Value boundaries, bool out_int32, bool right) {
           return bucketize(self, boundaries, out_int32, right);
         });
  m.impl({"isin.Tensor_Tensor", "isin.Tensor_Scalar", "isin.Scalar_Tensor"},
         [](Value elements, Value test_elements, bool, bool invert) {
           return isin(elements, test_elements, invert);
         });
  m.impl("nonzero_static", [](Value self, std::int64_t size, std::int64_t fill_value) {
    return nonzero_static(self, size, fill_value);
  });
  m.impl("masked_scatter",
         [](Value self, Value mask, Value source) { return masked_scatter(self, mask, source); });
  m.impl("masked_scatter_backward", [](Value grad_output, Value mask, Dims sizes) {
    return masked_scatter_backward(grad_output, mask, sizes);
  });
}

}  // namespace torch_xla::ops

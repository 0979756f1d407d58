// Sorting and selecting by order: sort, topk, kthvalue, medians and mode. A NaN is greater than any
// number, and equal elements keep their order.
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>

#include "base/error.h"
#include "ops/promotion.h"
#include "ops/reduce.h"
#include "ops/registry.h"
#include "ops/scan.h"

namespace torch_xla::ops {
namespace {

using Pair = std::tuple<Value, Value>;

struct Sorted {
  Value values;
  Value indices;  // int32 where the size allows it
};

// True where `a` comes before `b`.
Value is_before(Value a, Value b, bool descending) {
  const Value before = descending ? hlo::gt(a, b) : hlo::lt(a, b);
  if (base::is_integral(a.dtype())) return before;
  const Value a_is_number = hlo::eq(a, a);
  const Value b_is_number = hlo::eq(b, b);
  const Value nan_decides =
      descending ? hlo::gt(b_is_number, a_is_number) : hlo::gt(a_is_number, b_is_number);
  return hlo::or_(before, nan_decides);
}

Value positions(Value like, std::int64_t dim) {
  const bool is_small = like.dim(dim) <= std::numeric_limits<std::int32_t>::max();
  const DType dtype = is_small ? DType::kInt32 : DType::kInt64;
  return hlo::iota(like.builder(), {dtype, like.dims()}, dim);
}

// ---- By packed keys -----------------------------------------------------------------------------

// Whether a value of the dtype and its position fit into one int64.
bool is_packable(Value x, std::int64_t dim) {
  const bool is_small = x.dim(dim) <= std::numeric_limits<std::int32_t>::max();
  return is_small && base::size_bytes(x.dtype()) <= 4 && x.dtype() != DType::kUInt32;
}

// Int32 numbers in the order of `x`.
Value ordered_integers(Value x) {
  if (base::is_integral(x.dtype())) return convert(x, DType::kInt32);
  x = convert(x, DType::kFloat32);
  const Value zero = hlo::full_like(x, 0);
  const Value nan = hlo::full_like(x, std::numeric_limits<double>::quiet_NaN());
  // Zeros of both signs are equal, and so are NaNs.
  x = hlo::select(hlo::eq(x, zero), zero, hlo::select(is_nan(x), nan, x));
  const Value bits = hlo::bitcast_convert(x, DType::kInt32);
  const Value sign = hlo::shift_right_arithmetic(bits, hlo::full_like(bits, 31));
  const Value magnitude = hlo::full_like(bits, std::numeric_limits<std::int32_t>::max());
  return hlo::xor_(bits, hlo::and_(sign, magnitude));
}

Value take_along(Value x, Value index, std::int64_t dim) {
  hlo::GatherDimensionNumbers numbers;
  numbers.collapsed_slice_dims = {dim};
  for (std::int64_t i = 0; i < x.rank(); ++i) {
    if (i == dim) continue;
    numbers.operand_batching_dims.push_back(i);
    numbers.start_indices_batching_dims.push_back(i);
  }
  numbers.start_index_map = {dim};
  numbers.index_vector_dim = index.rank();
  return hlo::gather(x, index, numbers, Dims(x.dims().size(), 1));
}

// XLA sorts one array of integers several times faster than two by a comparator of their own.
Sorted sorted_by_keys(Value x, Value position, std::int64_t dim, bool descending) {
  Value order = ordered_integers(x);
  if (descending) order = hlo::not_(order);
  const Value wide = convert(order, DType::kInt64);
  const Value high = hlo::shift_left(wide, hlo::full_like(wide, 32));
  const Value key = hlo::or_(high, convert(position, DType::kInt64));
  const Value keys = hlo::sort(key, dim, /*is_stable=*/false, hlo::lt);
  const Value low = hlo::and_(keys, hlo::full_like(keys, std::int64_t{0xffffffff}));
  const Value index = convert(low, DType::kInt32);
  return {take_along(x, index, dim), index};
}

Sorted sorted(Value x, std::int64_t dim, bool descending) {
  base::check(!base::is_complex(x.dtype()), "Sort does not support complex dtypes on CPU");
  const Value position = positions(x, dim);
  if (x.dim(dim) <= 1 || x.num_elements() == 0) return {x, position};
  if (is_packable(x, dim)) return sorted_by_keys(x, position, dim, descending);
  const hlo::Values results =
      hlo::sort({x, position}, dim, /*is_stable=*/true, [descending](std::span<const Value> args) {
        return is_before(args[0], args[1], descending);
      });
  return {results[0], results[1]};
}

// Positions `start` to `limit` along `dim`.
Value slice_along(Value x, std::int64_t dim, std::int64_t start, std::int64_t limit) {
  const auto axis = static_cast<std::size_t>(dim);
  Dims starts(x.dims().size());
  Dims limits = x.dims();
  starts[axis] = start;
  limits[axis] = limit;
  return hlo::slice(x, starts, limits, Dims(x.dims().size(), 1));
}

Pair sort(Value self, std::int64_t dim, bool descending) {
  const Value x = at_least_1d(self);
  const Sorted result = sorted(x, wrap_dim(dim, x.rank()), descending);
  return {hlo::reshape(result.values, self.dims()),
          hlo::reshape(convert(result.indices, DType::kInt64), self.dims())};
}

// ---- topk ---------------------------------------------------------------------------------------

// The permutation that moves `dim` to the end, and the one that moves it back.
Dims to_last(std::int64_t rank, std::int64_t dim) {
  Dims order = all_but(dim, rank);
  order.push_back(dim);
  return order;
}

Dims from_last(std::int64_t rank, std::int64_t dim) {
  Dims order;
  for (std::int64_t i = 0; i < rank - 1; ++i) {
    if (i == dim) order.push_back(rank - 1);
    order.push_back(i);
  }
  if (dim == rank - 1) order.push_back(rank - 1);
  return order;
}

// XLA's own top_k orders by sign and bits: a positive NaN is the greatest, a negative one the
// least.
Sorted top_of_floats(Value x, std::int64_t k, std::int64_t dim, bool largest) {
  const Value wide = convert(x, DType::kFloat32);
  const Value nan = hlo::full_like(wide, std::numeric_limits<double>::quiet_NaN());
  Value key = hlo::select(is_nan(wide), nan, wide);
  if (!largest) key = hlo::negate(key);
  auto [values, indices] = hlo::top_k(hlo::transpose(key, to_last(x.rank(), dim)), k);
  if (!largest) values = hlo::negate(values);
  const Dims back = from_last(x.rank(), dim);
  return {convert(hlo::transpose(values, back), x.dtype()), hlo::transpose(indices, back)};
}

Pair topk(Value self, std::int64_t k, std::int64_t dim, bool largest, bool /*sorted*/) {
  base::check(self.dtype() != DType::kBool, "topk does not support bool dtypes on CPU");
  base::check(!base::is_complex(self.dtype()), "topk does not support complex dtypes on CPU");
  const Value x = at_least_1d(self);
  const std::int64_t axis = wrap_dim(dim, x.rank());
  base::check(k >= 0 && k <= x.dim(axis), "selected index k out of range");
  // PyTorch gives the one element whatever k.
  if (self.rank() == 0) return {self, hlo::scalar(self.builder(), DType::kInt64, 0)};
  Dims result_dims = x.dims();
  result_dims[static_cast<std::size_t>(axis)] = k;
  if (base::num_elements(result_dims) == 0) {
    return {hlo::full(x.builder(), {x.dtype(), result_dims}, 0),
            hlo::full(x.builder(), {DType::kInt64, result_dims}, 0)};
  }
  if (base::is_floating(x.dtype()) && base::size_bytes(x.dtype()) <= 4) {
    const Sorted result = top_of_floats(x, k, axis, largest);
    return {result.values, convert(result.indices, DType::kInt64)};
  }
  const Sorted result = sorted(x, axis, /*descending=*/largest);
  return {slice_along(result.values, axis, 0, k),
          convert(slice_along(result.indices, axis, 0, k), DType::kInt64)};
}

// ---- One element by its rank --------------------------------------------------------------------

void check_reducible(Value x, std::int64_t dim, std::string_view op) {
  if (x.dim(dim) > 0) return;
  base::fail(base::ErrorKind::kIndex, op, "(): Expected reduction dim ", dim,
             " to have non-zero size.");
}

// The element at `position` (one per line along `dim`, of the indices' dtype).
Sorted pick(const Sorted& from, std::int64_t dim, Value position) {
  const Value here =
      hlo::eq(positions(from.values, dim), spread(position, from.values.dims(), {dim}));
  const auto at_position = [&](Value v) {
    return reduce_sum(hlo::select(here, v, hlo::full_like(v, 0)), {dim});
  };
  return {at_position(from.values), at_position(from.indices)};
}

Sorted at_rank(const Sorted& from, std::int64_t dim, std::int64_t rank) {
  const Dims dims = reduced_dims(from.values.dims(), {dim}, /*keepdim=*/false);
  return {hlo::reshape(slice_along(from.values, dim, rank, rank + 1), dims),
          hlo::reshape(slice_along(from.indices, dim, rank, rank + 1), dims)};
}

// The lower median of the numbers; with `ignore_nan` unset, the first NaN if there is one.
Sorted median(Value x, std::int64_t dim, bool ignore_nan) {
  const Sorted order = sorted(x, dim, /*descending=*/false);
  const std::int64_t size = x.dim(dim);
  if (base::is_integral(x.dtype())) return at_rank(order, dim, (size - 1) / 2);
  const Value is_number = hlo::not_(is_nan(x));
  const Value count = reduce_sum(convert(is_number, order.indices.dtype()), {dim});
  const Value one = hlo::full_like(count, 1);
  const Value two = hlo::full_like(count, 2);
  Value rank = hlo::divide(hlo::subtract(hlo::maximum(count, one), one), two);
  if (!ignore_nan) {
    const Value has_nan = hlo::lt(count, hlo::full_like(count, size));
    rank = hlo::select(has_nan, count, rank);
  }
  return pick(order, dim, rank);
}

// The most frequent value, the least of several, and the index of its last occurrence.
Sorted mode(Value x, std::int64_t dim) {
  const Sorted order = sorted(x, dim, /*descending=*/false);
  const std::int64_t size = x.dim(dim);
  const Value position = positions(x, dim);
  Dims one_before(x.dims().size());
  Dims one_less = one_before;
  one_before[static_cast<std::size_t>(dim)] = 1;
  one_less[static_cast<std::size_t>(dim)] = -1;
  const Value zero = hlo::scalar(x.builder(), position.dtype(), 0);
  const Value any = hlo::scalar(x.builder(), x.dtype(), 0);
  const Value before = hlo::pad(order.values, any, one_before, one_less);
  const Value is_start =
      hlo::or_(hlo::ne(order.values, before), hlo::eq(position, hlo::full_like(position, 0)));
  const Value start = hlo::select(is_start, position, hlo::full_like(position, 0));
  const hlo::Values run_start = scan(
      {start}, {zero}, dim,
      [](std::span<const Value> args) -> hlo::Values { return {hlo::maximum(args[0], args[1])}; });
  // A run has its full length at its last element, and the first longest run is of the least value.
  const Value length = hlo::subtract(position, run_start[0]);
  if (size <= 1) return at_rank(order, dim, 0);
  const Value end = reduce_with_index(length, dim, /*greatest=*/true).second;
  return pick(order, dim, convert(end, order.indices.dtype()));
}

// Runs `choose` (which reduces dimension `dim` of an array of at least one dimension) as an
// operator that gives values and indices.
template <typename Choose>
Pair choose_along(Value self, std::int64_t dim, bool keepdim, std::string_view op,
                  const Choose& choose) {
  const Value x = at_least_1d(self);
  const std::int64_t axis = wrap_dim(dim, x.rank());
  check_reducible(x, axis, op);
  const Sorted result = choose(x, axis);
  const Dims dims = self.rank() == 0 ? Dims{} : reduced_dims(self.dims(), {axis}, keepdim);
  return {hlo::reshape(result.values, dims),
          hlo::reshape(convert(result.indices, DType::kInt64), dims)};
}

Pair kthvalue(Value self, std::int64_t k, std::int64_t dim, bool keepdim) {
  return choose_along(self, dim, keepdim, "kthvalue", [k](Value x, std::int64_t axis) {
    base::check(k >= 1 && k <= x.dim(axis), "kthvalue(): selected number k out of range for ",
                "dimension ", axis);
    return at_rank(sorted(x, axis, /*descending=*/false), axis, k - 1);
  });
}

bool is_ordered(DType dtype) { return dtype != DType::kBool && !base::is_complex(dtype); }

void register_median(Registry& m, const std::string& name, bool ignore_nan) {
  m.impl(name, [ignore_nan](Value self) {
    check_implemented(is_ordered(self.dtype()), "median_cpu", self.dtype());
    if (self.num_elements() == 0) {
      const double nan = std::numeric_limits<double>::quiet_NaN();
      return base::is_integral(self.dtype()) ? lowest(self.builder(), self.dtype())
                                             : hlo::scalar(self.builder(), self.dtype(), nan);
    }
    return median(hlo::reshape(self, {self.num_elements()}), 0, ignore_nan).values;
  });
  m.impl(name + ".dim", [ignore_nan](Value self, std::int64_t dim, bool keepdim) {
    check_implemented(is_ordered(self.dtype()), "median_out", self.dtype());
    return choose_along(self, dim, keepdim, "median", [ignore_nan](Value x, std::int64_t axis) {
      return median(x, axis, ignore_nan);
    });
  });
}

}  // namespace

void register_sort(Registry& m) {
  m.impl("sort", sort);
  m.impl("sort.stable", [](Value self, std::optional<bool> /*stable*/, std::int64_t dim,
                           bool descending) { return sort(self, dim, descending); });
  m.impl("topk", topk);
  m.impl("kthvalue", kthvalue);
  m.impl("mode", [](Value self, std::int64_t dim, bool keepdim) {
    return choose_along(self, dim, keepdim, "mode", mode);
  });
  register_median(m, "median", /*ignore_nan=*/false);
  register_median(m, "nanmedian", /*ignore_nan=*/true);
}

}  // namespace torch_xla::ops

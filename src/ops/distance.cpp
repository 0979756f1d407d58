// Distances between the rows of matrices: cdist between two sets of rows, pdist within one, and
// their gradients.
#include <cmath>
#include <optional>
#include <utility>

#include "base/error.h"
#include "ops/promotion.h"
#include "ops/reduce.h"
#include "ops/registry.h"

namespace torch_xla::ops {
namespace {

// The sizes before the last two.
Dims batch_of(Value x) { return leading_dims(x.dims(), 2); }

Dims appended(Dims dims, std::initializer_list<std::int64_t> more) {
  dims.insert(dims.end(), more);
  return dims;
}

// `x` of (batch, rows, columns) in sizes `dims` of (batch, rows, other rows, columns), its rows
// being the first or the second kind.
Value as_pairs(Value x, const Dims& dims, bool is_first) {
  Dims split = x.dims();
  split.insert(split.end() - (is_first ? 1 : 2), 1);
  return broadcast_to(hlo::reshape(x, split), dims);
}

struct Pairs {
  Value difference;  // (batch, rows of x1, rows of x2, columns)
  Dims dims;         // of the distances
};

Pairs pairs_of(Value x1, Value x2) {
  base::check(x1.rank() >= 2 && x2.rank() >= 2,
              "cdist only supports at least 2D tensors, X1 got: ", x1.rank(),
              "D, X2 got: ", x2.rank(), "D");
  const std::int64_t columns = x1.dim(x1.rank() - 1);
  base::check(columns == x2.dim(x2.rank() - 1), "X1 and X2 must have the same number of columns. ",
              "X1: ", columns, " X2: ", x2.dim(x2.rank() - 1));
  Pairs pairs;
  pairs.dims = appended(broadcast_dims(batch_of(x1), batch_of(x2)),
                        {x1.dim(x1.rank() - 2), x2.dim(x2.rank() - 2)});
  const Dims wide = appended(pairs.dims, {columns});
  pairs.difference = hlo::subtract(as_pairs(x1, wide, true), as_pairs(x2, wide, false));
  return pairs;
}

// The norms along the last dimension; of no columns the distance is 0.
Value distances(Value difference, double p) {
  const std::int64_t last = difference.rank() - 1;
  if (difference.num_elements() == 0) {
    return reduce_sum(difference, {last});
  }
  if (p == 0) {
    // The norm counts what is not 0; a distance from NaN is none.
    const Value size = hlo::ceil(hlo::abs(difference));
    return reduce_sum(hlo::minimum(size, hlo::full_like(size, 1)), {last});
  }
  return vector_norm(difference, p, {last});
}

// The derivative of the distance with respect to each difference, times `grad`; 0 where the
// distance is. All three are of the same sizes.
Value distance_gradient(Value difference, Value grad, Value distance, double p) {
  const Value zero = hlo::full_like(difference, 0);
  if (p == 0) return zero;
  const Value magnitude = hlo::abs(difference);
  const Value direction = hlo::multiply(hlo::sign(difference), grad);
  if (p == 1) return direction;
  if (std::isinf(p)) {
    // One where a difference is the distance, as PyTorch computes it: NaN if either is.
    const Value excess = hlo::ceil(hlo::abs(hlo::subtract(magnitude, distance)));
    const Value one = hlo::full_like(excess, 1);
    return hlo::multiply(direction, hlo::subtract(one, hlo::minimum(one, excess)));
  }
  Value slope;
  if (p == 2) {
    slope = hlo::divide(hlo::multiply(grad, difference), distance);
  } else {
    const Value exponent = hlo::full_like(difference, p - 1);
    const Value ratio = hlo::power(hlo::divide(magnitude, distance), exponent);
    slope = hlo::multiply(direction, ratio);
  }
  // With p < 1 the slope at a difference of 0 is infinite.
  return hlo::select(hlo::eq(p < 1 ? magnitude : distance, zero), zero, slope);
}

Value cdist(Value x1, Value x2, double p, std::optional<std::int64_t> /*compute_mode*/) {
  base::check(p >= 0, "cdist only supports non-negative p values");
  const Value difference = pairs_of(x1, x2).difference;
  if (!std::isinf(p)) return distances(difference, p);
  // PyTorch looks for what is greater, which a NaN is not.
  const Value zero = hlo::full_like(difference, 0);
  return distances(hlo::select(hlo::eq(difference, difference), difference, zero), p);
}

Value cdist_backward(Value grad, Value x1, Value x2, double p, Value cdist) {
  const Pairs pairs = pairs_of(x1, x2);
  if (pairs.difference.num_elements() == 0) return hlo::full_like(x1, 0);
  const Dims& wide = pairs.difference.dims();
  const auto widened = [&](Value v) {
    const Value full = broadcast_to(v, pairs.dims);
    return spread(full, wide, {pairs.difference.rank() - 1});
  };
  const Value slopes = distance_gradient(pairs.difference, widened(grad), widened(cdist), p);
  return reduce_sum(slopes, {pairs.difference.rank() - 2});
}

// sqrt(|x1|^2 + |x2|^2 - 2 x1 x2): one matrix product, where differences would not fit in a cache.
Value euclidean_dist(Value x1, Value x2) {
  const Dims batch = broadcast_dims(batch_of(x1), batch_of(x2));
  const auto with_batch = [&](Value x) {
    return broadcast_to(x, appended(batch, {x.dim(x.rank() - 2), x.dim(x.rank() - 1)}));
  };
  x1 = with_batch(x1);
  x2 = with_batch(x2);
  const std::int64_t last = x1.rank() - 1;
  Dims batching(batch.size());
  for (std::size_t i = 0; i < batching.size(); ++i) batching[i] = static_cast<std::int64_t>(i);
  const Value products = hlo::dot_general(x1, x2,
                                          {.lhs_batching_dimensions = batching,
                                           .rhs_batching_dimensions = batching,
                                           .lhs_contracting_dimensions = {last},
                                           .rhs_contracting_dimensions = {last}});
  const auto squares = [&](Value x, std::int64_t other_rows) {
    return spread(reduce_sum(hlo::multiply(x, x), {last}), products.dims(), {other_rows});
  };
  const Value sums = hlo::add(squares(x1, last), squares(x2, last - 1));
  const Value two = hlo::full_like(products, 2);
  const Value squared = hlo::subtract(sums, hlo::multiply(two, products));
  return hlo::sqrt(hlo::maximum(squared, hlo::full_like(squared, 0)));
}

// ---- pdist --------------------------------------------------------------------------------------

// The rows (i, j), i < j, of the pairs of n rows in order, each int64 of n (n - 1) / 2. The row is
// found by solving for it; a square root of a perfect square is exact.
std::pair<Value, Value> row_pairs(hlo::Builder& builder, std::int64_t n) {
  const Shape type{DType::kInt64, {n * (n - 1) / 2}};
  const auto whole = [&](std::int64_t value) { return hlo::full(builder, type, value); };
  const Value k = hlo::iota(builder, type, 0);
  const Value square = hlo::subtract(whole((2 * n - 1) * (2 * n - 1)), hlo::multiply(whole(8), k));
  const Value root = hlo::sqrt(convert(square, DType::kFloat64));
  const Value low = hlo::subtract(hlo::full_like(root, 2.0 * static_cast<double>(n) - 1), root);
  const Value i = convert(hlo::floor(hlo::multiply(low, hlo::full_like(low, 0.5))), DType::kInt64);
  // Pairs before row i: i (2n - i - 1) / 2.
  const Value twice_before = hlo::multiply(i, hlo::subtract(whole(2 * n - 1), i));
  const Value before = hlo::divide(twice_before, whole(2));
  const Value j = hlo::add(hlo::subtract(k, before), hlo::add(i, whole(1)));
  return {i, j};
}

Value rows_at(Value x, Value index) {
  hlo::GatherDimensionNumbers numbers;
  numbers.offset_dims = {1};
  numbers.collapsed_slice_dims = {0};
  numbers.start_index_map = {0};
  numbers.index_vector_dim = 1;
  return hlo::gather(x, index, numbers, {1, x.dim(1)});
}

Value pair_differences(Value self) {
  const auto [i, j] = row_pairs(self.builder(), self.dim(0));
  return hlo::subtract(rows_at(self, i), rows_at(self, j));
}

Value pdist(Value self, double p) {
  base::check(self.rank() == 2, "pdist only supports 2D tensors, got: ", self.rank(), "D");
  const std::int64_t n = self.dim(0);
  if (n <= 1) return hlo::full(self.builder(), {self.dtype(), {0}}, 0);
  if (self.dim(1) == 0) return hlo::full(self.builder(), {self.dtype(), {n * (n - 1) / 2}}, 0);
  return distances(pair_differences(self), p);
}

Value pdist_backward(Value grad, Value self, double p, Value pdist) {
  if (self.dim(0) <= 1 || self.num_elements() == 0) return hlo::full_like(self, 0);
  const auto [i, j] = row_pairs(self.builder(), self.dim(0));
  const Value difference = hlo::subtract(rows_at(self, i), rows_at(self, j));
  const auto wide = [&](Value v) { return spread(v, difference.dims(), {1}); };
  const Value slopes = distance_gradient(difference, wide(grad), wide(pdist), p);
  hlo::ScatterDimensionNumbers numbers;
  numbers.update_window_dims = {1};
  numbers.inserted_window_dims = {0};
  numbers.scatter_dims_to_operand_dims = {0};
  numbers.index_vector_dim = 1;
  const Value none = hlo::full_like(self, 0);
  const Value first = hlo::scatter(none, i, slopes, numbers, hlo::add);
  return hlo::scatter(first, j, hlo::negate(slopes), numbers, hlo::add);
}

}  // namespace

void register_distance(Registry& m) {
  m.impl("_cdist_forward", cdist);
  m.impl("_cdist_backward", cdist_backward);
  m.impl("_euclidean_dist", euclidean_dist);
  m.impl("_pdist_forward", pdist);
  m.impl("_pdist_backward", pdist_backward);
}

}  // namespace torch_xla::ops

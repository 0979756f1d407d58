// LU factors with partial pivoting, and determinants, solutions and inverses by them. StableHLO has
// no such operation; here it is a loop over the columns that eliminates below each in the whole
// batch at once, choosing pivots as LAPACK does.
#include "ops/expression.h"
#include "ops/linear_algebra.h"
#include "ops/matrix_batch.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

struct LuFactors {
  Value lu;      // [..., m, n]: U, and below the diagonal L without its ones
  Value pivots;  // int32 [..., min(m, n)]: the row, from 1, that was exchanged with row i
  Value info;    // int32 [...]: the first zero pivot, from 1, or 0
};

// What LAPACK compares to find a pivot.
Value magnitude(Value value) {
  if (!base::is_complex(value.dtype())) return hlo::abs(value);
  return hlo::abs(hlo::real(value)) + hlo::abs(hlo::imag(value));
}

// [b, n] as rows, and [b, m] as columns, of [b, m, n].
Value as_rows(Value value, const Dims& dims) { return hlo::broadcast_in_dim(value, dims, {0, 2}); }
Value as_columns(Value value, const Dims& dims) {
  return hlo::broadcast_in_dim(value, dims, {0, 1});
}

// Whether `value` is zero, of any dtype.
Value is_zero(Value value) { return hlo::eq(value, full_like(value, 0)); }

// One column's step on `a` [b, m, n] and `pivots` [b, k].
hlo::Values eliminate(Value k, Value a, Value pivots, bool pivot) {
  hlo::Builder& b = a.builder();
  const Dims& dims = a.dims();
  const Value rows = position(b, {dims[0], dims[1]}, 1);
  const Value candidates = where(less(rows, k), -1.0, magnitude(column(a, k)));
  const Value chosen =
      pivot ? convert(reduce_with_index(candidates, 1, /*greatest=*/true).second, DType::kInt32)
            : broadcast_to(k, {dims[0]});
  const Value is_chosen = hlo::eq(rows, hlo::broadcast_in_dim(chosen, rows.dims(), {0}));
  const Value chosen_row =
      reduce_sum(hlo::select(as_columns(is_chosen, dims), a, full_like(a, 0)), {1});
  Value exchanged = hlo::select(as_columns(is_chosen, dims), as_rows(row(a, k), dims), a);
  exchanged = hlo::select(as_columns(equal(rows, k), dims), as_rows(chosen_row, dims), exchanged);

  const Value columns = position(b, {dims[0], dims[2]}, 1);
  const Value divisor =
      reduce_sum(hlo::select(equal(columns, k), chosen_row, full_like(chosen_row, 0)), {1});
  const Value below = hlo::gt(rows, broadcast_to(k, rows.dims()));
  const Value is_singular = hlo::broadcast_in_dim(is_zero(divisor), rows.dims(), {0});
  const Value eliminated = column(exchanged, k);
  const Value factors =
      hlo::select(below & ~is_singular,
                  hlo::divide(eliminated, hlo::broadcast_in_dim(divisor, rows.dims(), {0})),
                  full_like(eliminated, 0));
  const Value right = hlo::select(hlo::gt(columns, broadcast_to(k, columns.dims())), chosen_row,
                                  full_like(chosen_row, 0));
  Value next =
      hlo::subtract(exchanged, hlo::multiply(as_columns(factors, dims), as_rows(right, dims)));
  const Value holds_factor =
      as_columns(below & ~is_singular, dims) & as_rows(equal(columns, k), dims);
  next = hlo::select(holds_factor, as_columns(factors, dims), next);

  const Value steps = position(b, pivots.dims(), 1);
  const Value from_one = hlo::broadcast_in_dim(chosen + 1.0, pivots.dims(), {0});
  return {next, hlo::select(equal(steps, k), from_one, pivots)};
}

// The diagonals of [b, m, n].
Value diagonals(Value matrices) {
  const std::int64_t m = matrices.dim(1);
  const std::int64_t n = matrices.dim(2);
  const Value mask =
      row_compared_to_column(matrices.builder(), m, n, hlo::ComparisonDirection::kEq);
  const Value kept =
      hlo::select(broadcast_to(mask, matrices.dims()), matrices, full_like(matrices, 0));
  return reduce_sum(kept, {m < n ? 2 : 1});
}

LuFactors lu_factors(Value self, bool pivot) {
  hlo::Builder& b = self.builder();
  const Dims batch = batch_dims(self);
  const Value a = flat_batch(self);
  const std::int64_t count = std::min(a.dim(1), a.dim(2));
  const Dims pivot_dims = {a.dim(0), count};
  if (self.num_elements() == 0) {
    return {self, full(b, {DType::kInt32, with_batch(batch, {count})}, 0),
            full(b, {DType::kInt32, batch}, 0)};
  }
  const hlo::Values end = for_each_column(
      b, count, {a, full(b, {DType::kInt32, pivot_dims}, 0)},
      [&](Value k, std::span<const Value> v) { return eliminate(k, v[0], v[1], pivot); });
  const Value steps = position(b, pivot_dims, 1) + 1.0;
  const Value none = static_cast<double>(count) + 1.0 + hlo::full_like(steps, 0);
  const Value first = reduce_min(hlo::select(is_zero(diagonals(end[0])), steps, none), {1});
  const Value info = where(hlo::gt(first, hlo::full_like(first, count)), 0.0, first);
  return {split_batch(end[0], batch), split_batch(end[1], batch), split_batch(info, batch)};
}

// The order into which the exchanges bring the rows: int32 [b, m], from pivots [b, k].
Value row_order(Value pivots, std::int64_t m) {
  hlo::Builder& b = pivots.builder();
  const Dims dims = {pivots.dim(0), m};
  const Value rows = position(b, dims, 1);
  return for_each_column(
      b, pivots.dim(1), {rows}, [&](Value k, std::span<const Value> v) -> hlo::Values {
        const Value steps = position(b, pivots.dims(), 1);
        const auto pick = [](Value mask, Value values) {
          return reduce_sum(hlo::select(mask, values, hlo::full_like(values, 0)), {1});
        };
        const Value other = hlo::broadcast_in_dim(pick(equal(steps, k), pivots) - 1.0, dims, {0});
        const Value at_k = hlo::broadcast_in_dim(pick(equal(rows, k), v[0]), dims, {0});
        const Value at_other = hlo::broadcast_in_dim(pick(hlo::eq(rows, other), v[0]), dims, {0});
        const Value exchanged = hlo::select(hlo::eq(rows, other), at_k, v[0]);
        return {hlo::select(equal(rows, k), at_other, exchanged)};
      })[0];
}

Value inverse_order(Value order) {
  const Value rows = position(order.builder(), order.dims(), 1);
  return hlo::sort({order, rows}, 1, /*is_stable=*/false,
                   [](std::span<const Value> v) { return hlo::lt(v[0], v[1]); })[1];
}

// Row order[i] of each matrix [b, m, r] as row i.
Value ordered_rows(Value matrices, Value order) {
  hlo::GatherDimensionNumbers numbers;
  numbers.offset_dims = {2};
  numbers.collapsed_slice_dims = {1};
  numbers.operand_batching_dims = {0};
  numbers.start_indices_batching_dims = {0};
  numbers.start_index_map = {1};
  numbers.index_vector_dim = 2;
  return hlo::gather(matrices, order, numbers, {1, 1, matrices.dim(2)});
}

// X of A X = B, or of A^H X = B; A as its factors.
Value solve_left(Value lu, Value pivots, Value b, bool use_adjoint) {
  if (b.num_elements() == 0) return b;
  const Dims batch = batch_dims(b);
  const Value factors = flat_batch(lu);
  Value x = flat_batch(b);
  const Value order = row_order(flat_batch(pivots, 1), factors.dim(1));
  const auto solve = [&](bool lower, hlo::TransposeA op) {
    x = hlo::triangular_solve(factors, x, /*left_side=*/true, lower, /*unit_diagonal=*/lower, op);
  };
  if (use_adjoint) {
    solve(/*lower=*/false, hlo::TransposeA::kAdjoint);
    solve(/*lower=*/true, hlo::TransposeA::kAdjoint);
    x = ordered_rows(x, inverse_order(order));
  } else {
    x = ordered_rows(x, order);
    solve(/*lower=*/true, hlo::TransposeA::kNoTranspose);
    solve(/*lower=*/false, hlo::TransposeA::kNoTranspose);
  }
  return split_batch(x, batch);
}

Value lu_solve(Value lu, Value pivots, Value b, bool left, bool use_adjoint) {
  const Dims batch = broadcast_dims(batch_dims(lu), batch_dims(b));
  lu = broadcast_batch(lu, batch);
  b = broadcast_batch(b, batch);
  pivots = broadcast_to(pivots, with_batch(batch, {pivots.dim(pivots.rank() - 1)}));
  if (left) return solve_left(lu, pivots, b, use_adjoint);
  return adjoint(solve_left(lu, pivots, adjoint(b), !use_adjoint));
}

// For determinants PyTorch factors the transpose of a contiguous real matrix, which lies column by
// column as LAPACK wants it, and the derivative formulas rely on that. Every tensor of this device
// is contiguous.
LuFactors lu_of_transpose(Value a) {
  return lu_factors(base::is_complex(a.dtype()) ? a : matrix_transpose(a), /*pivot=*/true);
}

std::vector<Value> solve_ex(Value a, Value b, bool left, bool) {
  const Dims vector_dims = leading_dims(a.dims(), 1);
  const bool is_vector = b.rank() == 1 || (b.rank() + 1 == a.rank() && b.dims() == vector_dims);
  if (is_vector) {
    Dims dims = b.dims();
    dims.push_back(1);
    b = hlo::reshape(b, dims);
  }
  // A vector is a column on either side.
  const bool is_left = left || is_vector;
  const LuFactors f = lu_factors(a, /*pivot=*/true);
  Value x = lu_solve(f.lu, f.pivots, b, is_left, /*use_adjoint=*/false);
  if (is_vector) x = hlo::reshape(x, leading_dims(x.dims(), 1));
  return {x, f.lu, f.pivots, f.info};
}

// The sign of the exchanges' permutation, [b], in a real dtype.
Value exchange_sign(Value pivots, DType dtype) {
  const Value own = position(pivots.builder(), pivots.dims(), 1) + 1.0;
  const Value signs =
      where(hlo::eq(pivots, own), 1.0, full(pivots.builder(), {dtype, pivots.dims()}, -1));
  return reduce_prod(signs, {1});
}

std::vector<Value> det(Value self) {
  const LuFactors f = lu_of_transpose(self);
  const Value product = reduce_prod(diagonals(flat_batch(f.lu)), {1});
  const Value sign = exchange_sign(flat_batch(f.pivots, 1), base::real_dtype(self.dtype()));
  const Value result = hlo::multiply(product, convert(sign, self.dtype()));
  return {hlo::reshape(result, batch_dims(self)), f.lu, f.pivots};
}

std::vector<Value> slogdet(Value self) {
  const LuFactors f = lu_of_transpose(self);
  const Value diagonal = diagonals(flat_batch(f.lu));
  const Value exchanges = exchange_sign(flat_batch(f.pivots, 1), base::real_dtype(self.dtype()));
  const Value sign =
      hlo::multiply(reduce_prod(hlo::sign(diagonal), {1}), convert(exchanges, self.dtype()));
  const Value log_abs = reduce_sum(hlo::log(hlo::abs(diagonal)), {1});
  const Dims batch = batch_dims(self);
  return {hlo::reshape(sign, batch), hlo::reshape(log_abs, batch), f.lu, f.pivots};
}

struct Unpacked {
  Value p;
  Value l;
  Value u;
};

// `matrices` [..., m, n] without what is after the first `rows` and `columns`.
Value leading_part(Value matrices, std::int64_t rows, std::int64_t columns) {
  const Dims limit = with_batch(batch_dims(matrices), {rows, columns});
  return hlo::slice(matrices, Dims(limit.size(), 0), limit, Dims(limit.size(), 1));
}

Unpacked unpack(Value lu, Value pivots, bool unpack_data, bool unpack_pivots) {
  hlo::Builder& b = lu.builder();
  const std::int64_t m = lu.dim(lu.rank() - 2);
  const std::int64_t n = lu.dim(lu.rank() - 1);
  const std::int64_t k = std::min(m, n);
  const Dims batch = batch_dims(lu);
  const Value nothing = full(b, {lu.dtype(), {0}}, 0);
  Unpacked out{nothing, nothing, nothing};
  if (unpack_data) {
    const Value lower = lower_triangle(leading_part(lu, m, k));
    const Value ones = identity(b, lower.type());
    const Value on_diagonal =
        broadcast_to(row_compared_to_column(b, m, k, hlo::ComparisonDirection::kEq), lower.dims());
    out.l = hlo::select(on_diagonal, ones, lower);
    out.u = upper_triangle(leading_part(lu, k, n));
  }
  if (unpack_pivots) {
    const Dims dims = with_batch(batch, {m, m});
    if (base::num_elements(dims) == 0) {
      out.p = full(b, {lu.dtype(), dims}, 0);
    } else {
      const Value order = row_order(flat_batch(pivots, 1), m);
      const Dims flat = {order.dim(0), m, m};
      const Value is_one = hlo::eq(position(b, flat, 1), as_rows(order, flat));
      out.p = split_batch(convert(is_one, lu.dtype()), batch);
    }
  }
  return out;
}

std::vector<Value> linalg_lu(Value a, bool pivot) {
  const LuFactors f = lu_factors(a, pivot);
  const Unpacked parts = unpack(f.lu, f.pivots, true, pivot);
  return {parts.p, parts.l, parts.u};
}

}  // namespace

void register_lu_factors(Registry& m) {
  m.impl("linalg_lu_factor_ex", [](Value a, bool pivot, bool) {
    const LuFactors f = lu_factors(a, pivot);
    return std::tuple(f.lu, f.pivots, f.info);
  });
  m.impl("linalg_lu", linalg_lu);
  m.impl("lu_unpack", [](Value lu, Value pivots, bool unpack_data, bool unpack_pivots) {
    const Unpacked parts = unpack(lu, pivots, unpack_data, unpack_pivots);
    return std::tuple(parts.p, parts.l, parts.u);
  });
  m.impl("linalg_lu_solve", lu_solve);
  m.impl("linalg_inv_ex", [](Value a, bool) {
    const LuFactors f = lu_factors(a, /*pivot=*/true);
    const Value ones = identity(a.builder(), a.type());
    return std::tuple(lu_solve(f.lu, f.pivots, ones, /*left=*/true, false), f.info);
  });
  m.impl("_linalg_solve_ex", solve_ex);
  m.impl("_linalg_det", det);
  m.impl("_linalg_slogdet", slogdet);
}

}  // namespace torch_xla::ops

// QR factors by Householder reflections, with LAPACK's signs: a loop over the columns that makes
// each zero below the diagonal, in the whole batch at once.
#include "ops/expression.h"
#include "ops/linear_algebra.h"
#include "ops/matrix_batch.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

// I - tau v v^H, which takes a column to (beta, 0, ..., 0) when its adjoint is applied.
struct Reflection {
  Value v;     // [b, m], zero before row k and one there
  Value tau;   // [b]
  Value beta;  // [b]
};

Value conjugate(Value value) { return base::is_complex(value.dtype()) ? hlo::conj(value) : value; }
Value real_part(Value value) { return base::is_complex(value.dtype()) ? hlo::real(value) : value; }

Value masked(Value mask, Value value) { return hlo::select(mask, value, full_like(value, 0)); }

Value as_columns(Value value, const Dims& dims) {
  return hlo::broadcast_in_dim(value, dims, {0, 1});
}

Reflection reflection(Value matrices, Value k) {
  hlo::Builder& b = matrices.builder();
  const Value x = column(matrices, k);
  const DType dtype = x.dtype();
  const Value rows = position(b, x.dims(), 1);
  const Value is_head = equal(rows, k);
  const Value is_tail = hlo::gt(rows, broadcast_to(k, rows.dims()));
  const Value alpha = reduce_sum(masked(is_head, x), {1});
  const Value squares = real_part(hlo::multiply(x, conjugate(x)));
  const Value tail = reduce_sum(masked(is_tail, squares), {1});
  const Value total = hlo::sqrt(tail + real_part(hlo::multiply(alpha, conjugate(alpha))));
  const Value alpha_real = real_part(alpha);
  const Value beta_real = where(less(alpha_real, 0.0), total, -total);
  // A column that is (real, 0, ..., 0) already, or too little beside its matrix, is left as it is.
  Value is_done = equal(tail, 0.0);
  if (base::is_complex(dtype)) {
    is_done = (is_done & equal(hlo::imag(alpha), 0.0)) | equal(total, 0.0);
  }
  const Value beta = hlo::select(is_done, alpha, convert(beta_real, dtype));
  const Value one = full_like(alpha, 1);
  const Value divisor = hlo::select(is_done, one, hlo::subtract(alpha, beta));
  const Value quotient = hlo::divide(hlo::subtract(beta, alpha), hlo::select(is_done, one, beta));
  const Value tau = hlo::select(is_done, full_like(alpha, 0), quotient);
  const Value scaled = hlo::divide(x, hlo::broadcast_in_dim(divisor, x.dims(), {0}));
  const Value v = hlo::select(is_head, full_like(x, 1), masked(is_tail, scaled));
  return {v, tau, beta};
}

// [b, 1, m] x [b, m, n] as [b, n].
Value row_times(Value rows, Value matrices) {
  return convert(contract(rows, matrices, {{0}, {0}, {1}, {1}}), matrices.dtype());
}

// (I - factor v v^H) M.
Value reflected(Value matrices, Value v, Value factor) {
  const Value products = row_times(conjugate(v), matrices);
  const Value scaled = hlo::multiply(products, hlo::broadcast_in_dim(factor, products.dims(), {0}));
  const Value change = hlo::multiply(as_columns(v, matrices.dims()),
                                     hlo::broadcast_in_dim(scaled, matrices.dims(), {0, 2}));
  return hlo::subtract(matrices, change);
}

// What a matrix is divided by so that no square is beyond the range of floats, or lost below it.
Value scale_of(Value a) {
  const Value part =
      base::is_complex(a.dtype()) ? max(abs(hlo::real(a)), abs(hlo::imag(a))) : abs(a);
  const Value greatest = reduce_max(part, {1, 2});
  const Value is_extreme = greater(greatest, 1e15) | (less(greatest, 1e-15) & greater(greatest, 0));
  const Value scale = convert(where(is_extreme, greatest, 1), a.dtype());
  return hlo::broadcast_in_dim(scale, a.dims(), {0});
}

struct Reflections {
  Value a;    // [b, m, n]: R, and below the diagonal the vectors without their ones
  Value tau;  // [b, min(m, n)]
};

Reflections reflections(Value a) {
  hlo::Builder& b = a.builder();
  const std::int64_t count = std::min(a.dim(1), a.dim(2));
  const Shape tau_shape{a.dtype(), {a.dim(0), count}};
  const Value scale = scale_of(a);
  a = hlo::divide(a, scale);
  const hlo::Values end = for_each_column(
      b, count, {a, full(b, tau_shape, 0)}, [&](Value k, std::span<const Value> s) -> hlo::Values {
        const Dims dims = s[0].dims();
        const Reflection r = reflection(s[0], k);
        const Value rows = position(b, dims, 1);
        const Value columns = position(b, dims, 2);
        // Columns before k hold vectors already; column k takes this one.
        const Value whole = reflected(s[0], r.v, conjugate(r.tau));
        const Value is_right = hlo::gt(columns, broadcast_to(k, dims));
        const Value is_below = hlo::gt(rows, broadcast_to(k, dims)) & equal(columns, k);
        const Value is_pivot = equal(rows, k) & equal(columns, k);
        Value next = hlo::select(is_right, whole, s[0]);
        next = hlo::select(is_below, as_columns(r.v, dims), next);
        next = hlo::select(is_pivot, hlo::broadcast_in_dim(r.beta, dims, {0}), next);
        const Value is_step = equal(position(b, s[1].dims(), 1), k);
        return {next, hlo::select(is_step, hlo::broadcast_in_dim(r.tau, s[1].dims(), {0}), s[1])};
      });
  const Value is_r = hlo::le(position(b, a.dims(), 1), position(b, a.dims(), 2));
  return {hlo::select(is_r, hlo::multiply(end[0], scale), end[0]), end[1]};
}

// The first `columns` columns of the product of the reflections in `a` [b, m, n] and `tau` [b, k].
Value reflections_product(Value a, Value tau, std::int64_t columns) {
  hlo::Builder& b = a.builder();
  const std::int64_t count = tau.dim(1);
  const Dims dims = {a.dim(0), a.dim(1), columns};
  // The last reflection acts on the identity first.
  return for_each_column(b, count, {identity(b, {a.dtype(), dims})},
                         [&](Value step, std::span<const Value> s) -> hlo::Values {
                           const Value k = static_cast<double>(count - 1) - step;
                           const Value x = column(a, k);
                           const Value rows = position(b, x.dims(), 1);
                           const Value tail =
                               masked(hlo::gt(rows, broadcast_to(k, rows.dims())), x);
                           const Value v = hlo::select(equal(rows, k), full_like(x, 1), tail);
                           const Value is_step = equal(position(b, tau.dims(), 1), k);
                           return {reflected(s[0], v, reduce_sum(masked(is_step, tau), {1}))};
                         })[0];
}

std::tuple<Value, Value> geqrf(Value self) {
  const Dims batch = batch_dims(self);
  const std::int64_t count = std::min(self.dim(self.rank() - 2), self.dim(self.rank() - 1));
  if (self.num_elements() == 0) {
    return {self, full(self.builder(), {self.dtype(), with_batch(batch, {count})}, 0)};
  }
  const Reflections r = reflections(flat_batch(self));
  return {split_batch(r.a, batch), split_batch(r.tau, batch)};
}

Value householder_product(Value input, Value tau) {
  static constexpr std::string_view kName = "torch.linalg.householder_product: ";
  const std::int64_t rank = input.rank();
  base::check(rank >= 2, kName, "input must have at least 2 dimensions.");
  base::check(input.dim(rank - 2) >= input.dim(rank - 1), kName,
              "input.shape[-2] must be greater than or equal to input.shape[-1]");
  base::check(tau.rank() == rank - 1, kName,
              "Expected tau to have one dimension less than input, but got tau.ndim equal to ",
              tau.rank(), " and input.ndim is equal to ", rank);
  if (input.num_elements() == 0) return input;
  if (tau.num_elements() == 0) return identity(input.builder(), input.type());
  const Value product =
      reflections_product(flat_batch(input), flat_batch(tau, 1), input.dim(input.rank() - 1));
  return split_batch(product, batch_dims(input));
}

std::tuple<Value, Value> linalg_qr(Value self, std::string mode) {
  hlo::Builder& b = self.builder();
  const Dims batch = batch_dims(self);
  const std::int64_t m = self.dim(self.rank() - 2);
  const std::int64_t n = self.dim(self.rank() - 1);
  base::check(mode == "reduced" || mode == "complete" || mode == "r",
              "qr received unrecognized mode '", mode,
              "' but expected one of 'reduced' (default), 'r', or 'complete'");
  const bool has_q = mode != "r";
  const std::int64_t rank = mode == "complete" ? m : std::min(m, n);
  const Shape q_shape{self.dtype(), with_batch(batch, {m, rank})};
  const Shape r_shape{self.dtype(), with_batch(batch, {rank, n})};
  const Value no_q = full(b, {self.dtype(), {0}}, 0);
  if (self.num_elements() == 0) {
    if (!has_q) return {no_q, full(b, r_shape, 0)};
    return {q_shape.num_elements() == 0 ? full(b, q_shape, 0) : identity(b, q_shape),
            full(b, r_shape, 0)};
  }
  const Reflections f = reflections(flat_batch(self));
  const Value upper = hlo::slice(f.a, {0, 0, 0}, {f.a.dim(0), rank, n}, {1, 1, 1});
  const Value r = split_batch(upper_triangle(upper), batch);
  if (!has_q) return {no_q, r};
  return {split_batch(reflections_product(f.a, f.tau, rank), batch), r};
}

}  // namespace

void register_qr_factors(Registry& m) {
  m.impl("geqrf", geqrf);
  m.impl("linalg_householder_product", householder_product);
  m.impl("linalg_qr", linalg_qr);
}

}  // namespace torch_xla::ops

// Cholesky factors and triangular systems, which XLA has, and what follows from them: solutions and
// inverses by a Cholesky factor.
#include "ops/expression.h"
#include "ops/linear_algebra.h"
#include "ops/matrix_batch.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

// NaN has no equal; of complex numbers the diagonal is real.
Value not_a_number(Value value) {
  const Value part = base::is_complex(value.dtype()) ? hlo::real(value) : value;
  return not_equal(part, part);
}

struct CholeskyResult {
  Value factor;
  Value info;  // int32: the order of the first leading minor that is not positive, or 0
};

// XLA fills the factor of a matrix that is not positive definite with NaN.
CholeskyResult cholesky_factor(Value self, bool upper) {
  const Dims batch = batch_dims(self);
  const std::int64_t n = self.dim(self.rank() - 1);
  hlo::Builder& b = self.builder();
  if (self.num_elements() == 0) return {self, full(b, {DType::kInt32, batch}, 0)};
  const Value factor = lower_triangle(hlo::cholesky(upper ? adjoint(self) : self, /*lower=*/true));
  const Value diagonal = row_compared_to_column(b, n, n, hlo::ComparisonDirection::kEq);
  const Value failed = broadcast_to(diagonal, self.dims()) & not_a_number(factor);
  const Value order = hlo::iota(b, {DType::kInt32, self.dims()}, self.rank() - 1) + 1.0;
  const Value first = reduce_min(where(failed, order, static_cast<double>(n + 1)),
                                 {self.rank() - 2, self.rank() - 1});
  const Value info = where(greater(first, static_cast<double>(n)), 0.0, first);
  return {upper ? adjoint(factor) : factor, info};
}

// X of op(A) X = B, or of X op(A) = B, with the leading dimensions broadcast.
Value solve_triangular(Value a, Value b, bool left, bool upper, bool unitriangular,
                       hlo::TransposeA transpose) {
  const Dims batch = broadcast_dims(batch_dims(a), batch_dims(b));
  b = broadcast_batch(b, batch);
  if (b.num_elements() == 0) return b;
  return hlo::triangular_solve(broadcast_batch(a, batch), b, left, !upper, unitriangular,
                               transpose);
}

// X of A X = B, where `factor` is A's Cholesky factor.
Value cholesky_solve(Value b, Value factor, bool upper) {
  const auto first = upper ? hlo::TransposeA::kAdjoint : hlo::TransposeA::kNoTranspose;
  const auto second = upper ? hlo::TransposeA::kNoTranspose : hlo::TransposeA::kAdjoint;
  const Value y = solve_triangular(factor, b, true, upper, false, first);
  return solve_triangular(factor, y, true, upper, false, second);
}

}  // namespace

void register_matrix_factors(Registry& m) {
  register_lu_factors(m);
  register_qr_factors(m);
  m.impl("linalg_cholesky_ex", [](Value self, bool upper, bool) {
    const CholeskyResult result = cholesky_factor(self, upper);
    return std::tuple(result.factor, result.info);
  });
  m.impl("cholesky", [](Value self, bool upper) { return cholesky_factor(self, upper).factor; });
  m.impl("_cholesky_solve_helper", cholesky_solve);
  m.impl("cholesky_inverse", [](Value self, bool upper) {
    check_square(self, "cholesky_inverse", "A");
    return cholesky_solve(identity(self.builder(), self.type()), self, upper);
  });
  m.impl("linalg_solve_triangular", [](Value self, Value b, bool upper, bool left,
                                       bool unitriangular) {
    check_square(self, "linalg.solve_triangular", "A");
    return solve_triangular(self, b, left, upper, unitriangular, hlo::TransposeA::kNoTranspose);
  });
  m.impl("triangular_solve",
         [](Value self, Value a, bool upper, bool transpose, bool unitriangular) {
           const auto op = transpose ? hlo::TransposeA::kTranspose : hlo::TransposeA::kNoTranspose;
           const Value solution = solve_triangular(a, self, true, upper, unitriangular, op);
           const Dims batch = broadcast_dims(batch_dims(self), batch_dims(a));
           return std::tuple(solution, broadcast_batch(a, batch));
         });
}

}  // namespace torch_xla::ops

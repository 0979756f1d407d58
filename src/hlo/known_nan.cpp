#include "hlo/known_nan.h"

#include "hlo/ops.h"

namespace torch_xla::hlo {
namespace {

// Of float64 the C library computes them.
bool may_be_left_out(const Value& operand) {
  return operand && !operand.builder().barrier_call().empty() &&
         base::size_bytes(base::real_dtype(operand.dtype())) < 8;
}

}  // namespace

Value past_nan(const Value& result, const Value& operand) {
  if (!may_be_left_out(operand)) return result;
  if (!base::is_complex(operand.dtype())) return select(eq(operand, operand), result, operand);
  // An imaginary part of 0 stays one, as C's functions have it.
  const Value x = real(operand);
  const Value y = imag(operand);
  return select(eq(x, x), result, complex(x, select(eq(y, full_like(y, 0)), y, x)));
}

}  // namespace torch_xla::hlo

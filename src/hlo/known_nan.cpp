#include "hlo/known_nan.h"

#include <utility>

#include "hlo/ops.h"

namespace torch_xla::hlo {
namespace {

thread_local bool is_left_out_now = false;

}  // namespace

KnownNanScope::KnownNanScope(bool is_left_out)
    : before_(std::exchange(is_left_out_now, is_left_out)) {}

KnownNanScope::~KnownNanScope() { is_left_out_now = before_; }

Value past_nan(const Value& result, const Value& operand) {
  // Those of float64 are the C library's.
  if (!is_left_out_now || base::size_bytes(base::real_dtype(operand.dtype())) == 8) return result;
  if (!base::is_complex(operand.dtype())) return select(eq(operand, operand), result, operand);
  // An imaginary part of 0 stays one, as C's functions have it.
  const Value x = real(operand);
  const Value y = imag(operand);
  return select(eq(x, x), result, complex(x, select(eq(y, full_like(y, 0)), y, x)));
}

}  // namespace torch_xla::hlo

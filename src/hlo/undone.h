// Functions that XLA's algebraic simplification undoes: `log(exp(x))` becomes x, which is finite
// where `exp` has overflown, and a number where it was NaN.
#pragma once

#include <string_view>

#include "hlo/builder.h"

namespace torch_xla::hlo {

// `operand` as the operation `name` may take it as its first or only one: itself, or the same value
// computed so that the compiler does not see the function that `name` would undo.
Value hidden_from(std::string_view name, const Value& operand);
// `rhs`, the second operand, likewise.
Value hidden_from(std::string_view name, const Value& lhs, const Value& rhs);

}  // namespace torch_xla::hlo

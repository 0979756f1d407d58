// Checks of numbers that travel to the device as data: lowerings and Meta kernels never see their
// values, so they are looked at on every call; and of tensors' values, where the host computes with
// them. Which operator has which is said in operator_rules.cpp.
#pragma once

#include "aten/operator_rules.h"

namespace torch_xla::aten {

// The arguments at `first` to `last` must be numbers of self's dtype.
void check_fits_self(CallArguments arguments, std::size_t first, std::size_t last);
inline void check_fits_self(CallArguments arguments, std::size_t value) {
  check_fits_self(arguments, value, value);
}
// The same of what is computed in float32 where self is of half precision.
void check_fits_computed(CallArguments arguments, std::size_t first, std::size_t last);
// Of kernels that refuse integers whatever the numbers are.
void check_fits_floats(CallArguments arguments, std::size_t first, std::size_t last);
// Of the dtype that the argument at `dtype` asks for, else of self's or the default one.
void check_fits_dtype(CallArguments arguments, std::size_t value, std::size_t dtype);
// The bounds at `first` to `last` must have the result's dtype.
void check_bounds(CallArguments arguments, std::size_t first, std::size_t last);

// The dtype that the argument at `dtype` asks for must hold self's numbers.
void check_dtype_of_norm(CallArguments arguments, std::size_t dtype);

// `check` of each element of a call's lists, where one of their numbers may not fit.
void check_each(CallArguments arguments, ArgumentCheck check);

void check_abs_in_place(CallArguments arguments);
void check_alpha(CallArguments arguments);
void check_cauchy(CallArguments arguments);
void check_conj(CallArguments arguments);
void check_divisor(CallArguments arguments);
void check_divisor_of_mode(CallArguments arguments);
void check_exponent(CallArguments arguments);
void check_exponential(CallArguments arguments);
void check_exponents(CallArguments arguments);
void check_factor(CallArguments arguments);
void check_factor_of_quotient(CallArguments arguments);
void check_factors_of_outer(CallArguments arguments);
void check_geometric(CallArguments arguments);
void check_hardshrink(CallArguments arguments);
void check_hardtanh(CallArguments arguments);
void check_histogram(CallArguments arguments);
void check_index_fill(CallArguments arguments);
void check_log_normal(CallArguments arguments);
void check_logit(CallArguments arguments);
void check_margin(CallArguments arguments);
void check_masked_fill(CallArguments arguments);
void check_nan_to_num(CallArguments arguments);
void check_narrow_copy(CallArguments arguments);
void check_normal(CallArguments arguments);
void check_polar(CallArguments arguments);
void check_random_any(CallArguments arguments);
void check_random_from(CallArguments arguments);
void check_random_to(CallArguments arguments);
void check_scalar_tensor(CallArguments arguments);
void check_steps(CallArguments arguments);
void check_triangle(CallArguments arguments);
void check_uniform(CallArguments arguments);
void check_weight(CallArguments arguments);
void check_zero_point(CallArguments arguments);

// Of a tensor's values, which it reads.
void check_eigvals(CallArguments arguments);
void check_ldl_pivots(CallArguments arguments);

}  // namespace torch_xla::aten

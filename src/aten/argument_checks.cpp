// Numbers converted to a tensor's dtype, bounds of distributions' parameters, numbers that are not
// for integers, and values that end the process.
#include "aten/argument_checks.h"

#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/result_type.h>
#include <c10/core/DefaultDtype.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "aten/meta_kernel.h"
#include "aten/overlap.h"
#include "aten/tensor.h"
#include "aten/torch_differences.h"

namespace torch_xla::aten {
namespace {

void check_fits(const at::Scalar& value, at::ScalarType dtype) {
  AT_DISPATCH_V2(dtype, "fill_out", AT_WRAP([&] { (void)value.to<scalar_t>(); }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), AT_EXPAND(AT_FLOAT8_TYPES),
                 AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), at::kBool, at::kHalf, at::kBFloat16,
                 at::kComplexHalf);
}

bool fits(const at::Scalar& value, at::ScalarType dtype) {
  try {
    check_fits(value, dtype);
    return true;
  } catch (const c10::Error&) {
    return false;
  }
}

void check_limits_of_integers(at::ScalarType dtype, std::int64_t low, std::int64_t high) {
  TORCH_CHECK(low <= 0 || fits(low, dtype), "Clamp min value ", low,
              " is outside the representable range of ", dtype);
  TORCH_CHECK(high >= 0 || fits(high, dtype), "Clamp max value ", high,
              " is outside the representable range of ", dtype);
}

// PyTorch's own checks of the bounds, without its numbers.
template <typename>
struct NoNumbers {
  template <typename... Arguments>
  void operator()(const Arguments&...) const {}
};
void check_random(const at::Tensor& tensor, std::int64_t from, const c10::IValue& to) {
  at::Tensor self = to_meta(tensor);
  at::native::templates::random_from_to_impl<NoNumbers, at::Generator>(
      self, from, to.toOptional<std::int64_t>(), std::nullopt);
}

const graph::TensorType* type_of_self(CallArguments arguments) {
  const TensorImpl* self = as_xla(arguments[0].toTensor());
  return self == nullptr ? nullptr : self->xla_type();
}

// A number that every dtype has, as nearly all are.
bool is_small(const c10::IValue& number) {
  if (!number.isScalar()) return true;
  const at::Scalar value = number.toScalar();
  return !value.isComplex() &&
         std::abs(value.toDouble()) <= std::numeric_limits<std::int8_t>::max();
}

// Half precision is computed in float32.
at::ScalarType computed_in(at::ScalarType dtype) {
  return c10::isReducedFloatingType(dtype) ? at::kFloat : dtype;
}

void check_fit(CallArguments numbers, at::ScalarType dtype) {
  for (const c10::IValue& number : numbers) {
    if (!is_small(number)) check_fits(number.toScalar(), dtype);
  }
}

// Calls `check` with the arguments of each element of a call's lists.
void check_elements(CallArguments arguments, ArgumentCheck check) {
  const std::size_t count = arguments[0].toListRef().size();
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<c10::IValue> one = arguments.vec();
    for (c10::IValue& argument : one) {
      if (!argument.isList()) continue;
      if (argument.toListRef().size() != count) return;  // as the lowering says
      argument = c10::IValue(argument.toListRef()[i]);
    }
    check(one);
  }
}

// Of a number that is known at the call; on the device a zero is data. One that does not fit wraps.
bool is_integer_zero(const at::Tensor& self, const c10::IValue& number) {
  at::Scalar value = 1;
  at::ScalarType dtype = self.scalar_type();
  if (number.isTensor()) {
    const at::Tensor& tensor = number.toTensor();
    if (!tensor.is_cpu() || tensor.dim() != 0) return false;
    value = tensor.item();
    dtype = at::result_type(self, tensor);
  } else if (number.isScalar()) {
    value = number.toScalar();
    dtype = at::result_type(self, value);
  }
  if (!value.isIntegral(/*includeBool=*/true)) return false;
  return static_cast<std::uint64_t>(value.toLong()) << (64 - 8 * at::elementSize(dtype)) == 0;
}

}  // namespace

void check_fits_self(CallArguments arguments, std::size_t first, std::size_t last) {
  check_fit(arguments.slice(first, last + 1 - first), arguments[0].toTensor().scalar_type());
}

void check_fits_computed(CallArguments arguments, std::size_t first, std::size_t last) {
  check_fit(arguments.slice(first, last + 1 - first),
            computed_in(arguments[0].toTensor().scalar_type()));
}

void check_fits_floats(CallArguments arguments, std::size_t first, std::size_t last) {
  if (at::isIntegralType(arguments[0].toTensor().scalar_type(), /*includeBool=*/true)) return;
  check_fits_computed(arguments, first, last);
}

void check_fits_dtype(CallArguments arguments, std::size_t value, std::size_t dtype) {
  if (!arguments[value].isScalar()) return;
  const at::Scalar number = arguments[value].toScalar();
  if (arguments[dtype].isTensor()) {
    return check_fits(number, arguments[dtype].toTensor().scalar_type());  // of `out=`
  }
  if (!arguments[dtype].isNone()) return check_fits(number, arguments[dtype].toScalarType());
  if (arguments[0].isTensor()) return check_fits(number, arguments[0].toTensor().scalar_type());
  if (number.isFloatingPoint()) check_fits(number, c10::get_default_dtype_as_scalartype());
}

// The kernel words this itself.
void check_index_fill(CallArguments arguments) {
  if (!arguments[3].toScalar().isComplex()) check_fits_self(arguments, 3);
}

// PyTorch reads the number. Here that is done where its dtype does not tell whether it fits: a
// complex one does without an imaginary part.
void check_masked_fill(CallArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& value = arguments[2].toTensor();
  if (value.dim() != 0) return;
  const bool may_not_fit = value.is_complex() && !self.is_complex();
  if (may_not_fit || value.is_cpu()) check_fits(value.item(), self.scalar_type());
}

void check_polar(CallArguments arguments) {
  const at::ScalarType abs = arguments[0].toTensor().scalar_type();
  const at::ScalarType angle = arguments[1].toTensor().scalar_type();
  const auto fits = [](at::ScalarType type) {
    return type == at::kHalf || type == at::kFloat || type == at::kDouble;
  };
  TORCH_CHECK(fits(abs) && fits(angle),
              "Expected both inputs to be Half, Float or Double tensors but got ", abs, " and ",
              angle);
}

// PyTorch makes infinities here of what half precision cannot hold.
void check_scalar_tensor(CallArguments arguments) {
  const bool is_half =
      !arguments[1].isNone() && c10::isReducedFloatingType(arguments[1].toScalarType());
  if (is_half && !arguments[0].toScalar().isComplex()) return;
  check_fits_dtype(arguments, 0, 1);
}

// PyTorch divides what lies between by the step, the least integer by -1 too, which ends the
// process.
void check_steps(CallArguments arguments) {
  const auto number = [&](std::size_t i) { return arguments[i].toScalar(); };
  if (number(0).isComplex() || number(1).isComplex() || number(2).isComplex()) return;
  TORCH_CHECK(number(2).toDouble() != -1 || number(0).toDouble() - number(1).toDouble() < 0x1p63,
              "invalid size, possible overflow?");
}

// Bounds of integers are cut off to integers.
void check_hardtanh(CallArguments arguments) {
  const at::ScalarType dtype = arguments[0].toTensor().scalar_type();
  if (kLimitsMayLieBeyondIntegers && c10::isIntegralType(dtype, /*includeBool=*/false)) {
    return check_limits_of_integers(dtype, arguments[1].toScalar().toLong(),
                                    arguments[2].toScalar().toLong());
  }
  TORCH_CHECK(dtype != at::kByte ||
                  (arguments[1].toScalar().toLong() >= 0 && arguments[2].toScalar().toLong() >= 0),
              "cannot do hardtanh on an unsigned type with negative limits");
  check_bounds(arguments, 1, 2);
}

void check_bounds(CallArguments arguments, std::size_t first, std::size_t last) {
  const at::Tensor& self = arguments[0].toTensor();
  at::ScalarType dtype = self.scalar_type();
  for (std::size_t i = first; i <= last; ++i) {
    if (arguments[i].isNone()) continue;
    const at::Scalar bound = arguments[i].toScalar();
    const bool is_one_sided = first == last;
    TORCH_CHECK_NOT_IMPLEMENTED(!bound.isComplex() || (self.is_floating_point() && !is_one_sided),
                                "clamp is not supported for complex types");
    if (bound.isComplex()) (void)bound.to<double>();
    dtype = c10::promoteTypes(dtype, at::result_type(self, bound));
  }
  for (std::size_t i = first; i <= last; ++i) {
    if (!arguments[i].isNone()) check_fits(arguments[i].toScalar(), dtype);
  }
}

void check_dtype_of_norm(CallArguments arguments, std::size_t dtype) {
  const at::ScalarType self = arguments[0].toTensor().scalar_type();
  if (arguments[dtype].isNone() || !c10::isFloatingType(self) || c10::isFloat8Type(self)) return;
  const at::ScalarType wanted = arguments[dtype].toScalarType();
  TORCH_CHECK(c10::promoteTypes(self, wanted) == wanted,
              "linalg.vector_norm: the dtype of the input (", self,
              ") should be convertible without narrowing to the specified dtype (", wanted, ")");
}

void check_exponential(CallArguments arguments) {
  const double lambda = arguments[1].toDouble();
  TORCH_CHECK(lambda > 0.0, "exponential_ expects lambda > 0.0, but found lambda=", lambda);
}

void check_cauchy(CallArguments arguments) {
  const double sigma = arguments[2].toDouble();
  TORCH_CHECK(sigma > 0.0, "cauchy_ expects sigma > 0.0, but found sigma=", sigma);
}

void check_log_normal(CallArguments arguments) {
  const double std = arguments[2].toDouble();
  TORCH_CHECK(std > 0.0, "log_normal_ expects std > 0.0, but found std=", std);
}

void check_geometric(CallArguments arguments) {
  const double p = arguments[1].toDouble();
  TORCH_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
}

void check_random_from(CallArguments arguments) {
  check_random(arguments[0].toTensor(), arguments[1].toInt(), arguments[2]);
}

void check_random_to(CallArguments arguments) {
  check_random(arguments[0].toTensor(), 0, arguments[1]);
}

void check_uniform(CallArguments arguments) {
  at::Tensor self = to_meta(arguments[0].toTensor());
  at::native::templates::uniform_impl_<NoNumbers, at::Generator>(
      self, arguments[1].toDouble(), arguments[2].toDouble(), std::nullopt);
}

void check_normal(CallArguments arguments) {
  const at::ScalarType dtype = arguments[0].toTensor().scalar_type();
  const double std = arguments[2].toDouble();
  TORCH_CHECK_NOT_IMPLEMENTED(!c10::isIntegralType(dtype, /*includeBool=*/true),
                              "\"normal_kernel_cpu\" not implemented for '", dtype, "'");
  TORCH_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", std);
}

void check_random_any(CallArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex(), "\"random_kernel_cpu\" not implemented for '",
                              self.scalar_type(), "'");
}

// The zero point is data to the lowering, which refuses an empty range itself.
void check_zero_point(CallArguments arguments) {
  const std::int64_t zero_point = arguments[2].toInt();
  const std::int64_t quant_min = arguments[3].toInt();
  const std::int64_t quant_max = arguments[4].toInt();
  const bool is_inside = quant_min <= zero_point && zero_point <= quant_max;
  TORCH_CHECK(is_inside || quant_min > quant_max,
              "`zero_point` must be between `quant_min` and `quant_max`.");
}

// PyTorch writes batches of matrices that do not follow one another by way of a copy. Matrices of
// one batch, and batches that repeat in the first dimension, it writes where they are.
void check_triangle(CallArguments arguments) {
  const graph::TensorType* type = type_of_self(arguments);
  if (type == nullptr || type->shape.dims.size() < 4) return;
  const std::vector<std::int64_t>& sizes = type->shape.dims;
  std::int64_t step = sizes[sizes.size() - 1] * sizes[sizes.size() - 2];
  for (std::size_t d = sizes.size() - 2; d-- > 0;) {
    const bool is_free = d == 0 && (type->strides[d] == 0 || sizes[d] == 1);
    if (!is_free && type->strides[d] != step) return check_no_overlap(*type);
    step *= sizes[d];
  }
}

// Of real numbers there is nothing to do.
void check_conj(CallArguments arguments) {
  const graph::TensorType* type = type_of_self(arguments);
  if (type != nullptr && base::is_complex(type->shape.dtype)) check_no_overlap(*type);
}

// Of integers there is nothing to do.
void check_nan_to_num(CallArguments arguments) {
  const graph::TensorType* type = type_of_self(arguments);
  if (type != nullptr && !base::is_integral(type->shape.dtype)) check_no_overlap(*type);
}

void check_abs_in_place(CallArguments arguments) {
  const bool is_complex = arguments[0].isTensor()
                              ? arguments[0].toTensor().is_complex()
                              : std::ranges::any_of(arguments[0].toTensorVector(),
                                                    [](const auto& x) { return x.is_complex(); });
  TORCH_CHECK(!is_complex, "In-place abs is not supported for complex tensors.");
}

void check_narrow_copy(CallArguments arguments) {
  const std::int64_t dim = arguments[0].toTensor().dim();
  TORCH_CHECK(dim == 0 || arguments[1].toInt() < dim,
              "Expected dim < static_cast<int64_t>(self_sizes.size()) to be true, but got false.  "
              "(Could this error message be improved?  If so, please report an enhancement request "
              "to PyTorch.)");
}

// The kernels for float32 and wider take the exponent as it is.
void check_exponent(CallArguments arguments) {
  if (!arguments[0].isTensor() || !arguments[1].isScalar()) return;
  const at::Tensor& base = arguments[0].toTensor();
  const at::Scalar exponent = arguments[1].toScalar();
  const bool is_fraction = at::isIntegralType(base.scalar_type(), /*includeBool=*/true) &&
                           exponent.isIntegral(/*includeBool=*/true) && exponent.toLong() < 0;
  TORCH_CHECK(!is_fraction, "Integers to negative integer powers are not allowed.");
  if (is_small(arguments[1])) return;
  const at::ScalarType dtype = at::result_type(base, exponent);
  const bool is_converted =
      at::isIntegralType(dtype, /*includeBool=*/true) || c10::isReducedFloatingType(dtype);
  if (is_converted) check_fits(exponent, dtype);
}

void check_exponents(CallArguments arguments) { check_elements(arguments, check_exponent); }

void check_factor(CallArguments arguments) {
  if (is_small(arguments[3])) return;
  const at::Tensor& self = arguments[0].toTensor();
  const at::ScalarType dtype = c10::promoteTypes(at::result_type(self, arguments[1].toTensor()),
                                                 at::result_type(self, arguments[2].toTensor()));
  check_fits(arguments[3].toScalar(), computed_in(dtype));
}

// Integers are refused whatever the number.
void check_factor_of_quotient(CallArguments arguments) {
  const bool is_of_integers =
      at::isIntegralType(arguments[1].toTensor().scalar_type(), /*includeBool=*/true) &&
      at::isIntegralType(arguments[2].toTensor().scalar_type(), /*includeBool=*/true);
  if (!is_of_integers) check_factor(arguments);
}

void check_weight(CallArguments arguments) {
  const at::ScalarType dtype = arguments[0].toTensor().scalar_type();
  if (is_small(arguments[2]) || at::isIntegralType(dtype, /*includeBool=*/true)) return;
  check_fits(arguments[2].toScalar(), computed_in(dtype));
}

void check_margin(CallArguments arguments) {
  const std::size_t margin = arguments.size() - 3;  // before the weight and the reduction
  const at::ScalarType dtype = arguments[0].toTensor().scalar_type();
  if (at::isFloatingType(dtype)) check_fits(arguments[margin].toScalar(), computed_in(dtype));
}

// Complex ones, and fractions of integers, are looked at elsewhere.
void check_alpha(CallArguments arguments) {
  if (is_small(arguments[2])) return;
  const at::Scalar alpha = arguments[2].toScalar();
  const at::ScalarType dtype = at::result_type(arguments[0].toTensor(), arguments[1].toTensor());
  const bool is_fraction =
      alpha.isFloatingPoint() && at::isIntegralType(dtype, /*includeBool=*/true);
  if (!alpha.isComplex() && !is_fraction) check_fits(alpha, dtype);
}

void check_factors_of_outer(CallArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (self.scalar_type() != at::kBool) {
    TORCH_CHECK(!arguments[3].toScalar().isBoolean(),
                "Boolean beta only supported for Boolean results.");
    TORCH_CHECK(!arguments[4].toScalar().isBoolean(),
                "Boolean alpha only supported for Boolean results.");
  }
  for (const std::size_t i : {3, 4}) {
    // The kernel words what is no integer itself.
    const bool is_for_kernel = at::isIntegralType(self.scalar_type(), /*includeBool=*/true) &&
                               !arguments[i].toScalar().isIntegral(/*includeBool=*/true);
    if (!is_for_kernel) check_fits_self(arguments, i);
  }
}

void check_hardshrink(CallArguments arguments) {
  if (at::isFloatingType(arguments[0].toTensor().scalar_type())) check_fits_self(arguments, 1);
}

void check_histogram(CallArguments arguments) {
  const double min = arguments[2].toScalar().toDouble();
  const double max = arguments[3].toScalar().toDouble();
  TORCH_CHECK(std::isfinite(min) && std::isfinite(max), "torch.histc: range of [", min, ", ", max,
              "] is not finite");
  if (min <= max) check_fits_self(arguments, 2, 3);
}

void check_logit(CallArguments arguments) {
  if (is_small(arguments[1])) return;
  const at::ScalarType dtype = arguments[0].toTensor().scalar_type();
  const bool is_integral = at::isIntegralType(dtype, /*includeBool=*/true);
  check_fits(arguments[1].toScalar(), is_integral ? c10::get_default_dtype_as_scalartype() : dtype);
}

void check_each(CallArguments arguments, ArgumentCheck check) {
  const auto is_any = [](const c10::IValue& argument) {
    return argument.isList() ? !std::ranges::all_of(argument.toListRef(), is_small)
                             : !is_small(argument);
  };
  if (std::ranges::any_of(arguments, is_any)) check_elements(arguments, check);
}

void check_divisor(CallArguments arguments) {
  if (!arguments[0].isTensor()) return;
  const at::Tensor& self = arguments[0].toTensor();
  if (!at::isIntegralType(self.scalar_type(), /*includeBool=*/true) || self.numel() == 0) return;
  TORCH_CHECK(!is_integer_zero(self, arguments[1]), "ZeroDivisionError");
}

void check_divisor_of_mode(CallArguments arguments) {
  if (!arguments[2].isNone()) check_divisor(arguments);
}

// MKL ends the process over eigenvalues of what is not finite. PyTorch looks in `linalg.eig` alone.
void check_eigvals(CallArguments arguments) {
  if (c10::isFloat8Type(arguments.front().toTensor().scalar_type())) return;
  TORCH_CHECK(at::isfinite(arguments.front().toTensor()).all().item<bool>(),
              "torch.linalg.eigvals: input tensor should not contain infs or NaNs.");
}

// LAPACK takes them for rows without looking: a block of one row has the row that it changed places
// with, counted from 1, and a block of two the negative of one, twice.
void check_ldl_pivots(CallArguments arguments) {
  const at::Tensor pivots = arguments[1].toTensor().to(at::kLong).contiguous();
  const std::int64_t num_rows = pivots.size(-1);
  const auto* const all = pivots.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < pivots.numel(); ++i) {
    const std::int64_t pivot = all[i];
    const bool is_row = pivot != 0 && std::abs(pivot) <= num_rows;
    const bool is_twice = (i + 1) % num_rows != 0 && all[i + 1] == pivot;
    TORCH_CHECK(is_row && (pivot > 0 || is_twice),
                "torch.linalg.ldl_solve: pivots must be what ldl_factor returned, got ", pivot,
                " for row ", i % num_rows, " of ", num_rows);
    if (pivot < 0) ++i;
  }
}

}  // namespace torch_xla::aten

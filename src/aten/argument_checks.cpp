// The operators that convert a number to a tensor's dtype, those whose distributions have
// parameters with bounds, and those of integers that some numbers are not for.
#include "aten/argument_checks.h"

#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/ops/result_type.h>
#include <c10/core/DefaultDtype.h>

#include "aten/meta_kernel.h"
#include "aten/overlap.h"
#include "aten/tensor.h"

namespace torch_xla::aten {
namespace {

using Arguments = at::ArrayRef<c10::IValue>;

void check_fits(const at::Scalar& value, at::ScalarType dtype) {
  AT_DISPATCH_V2(dtype, "fill_out", AT_WRAP([&] { (void)value.to<scalar_t>(); }),
                 AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), AT_EXPAND(AT_FLOAT8_TYPES),
                 AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), at::kBool, at::kHalf, at::kBFloat16,
                 at::kComplexHalf);
}

// Argument `value` must be a number of self's dtype.
template <std::size_t value>
void check_fits_self(Arguments arguments) {
  check_fits(arguments[value].toScalar(), arguments[0].toTensor().scalar_type());
}

// Of the dtype that the argument at `dtype` asks for, else of self's or the default one.
template <std::size_t value, std::size_t dtype>
void check_fits_dtype(Arguments arguments) {
  const at::Scalar number = arguments[value].toScalar();
  if (!arguments[dtype].isNone()) return check_fits(number, arguments[dtype].toScalarType());
  if (arguments[0].isTensor()) return check_fits(number, arguments[0].toTensor().scalar_type());
  if (number.isFloatingPoint()) check_fits(number, c10::get_default_dtype_as_scalartype());
}

// The kernel words this itself.
void check_index_fill(Arguments arguments) {
  if (!arguments[3].toScalar().isComplex()) check_fits_self<3>(arguments);
}

// PyTorch reads the number. Here that is done where its dtype does not tell whether it fits: a
// complex one does without an imaginary part.
void check_masked_fill(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& value = arguments[2].toTensor();
  if (value.dim() != 0) return;
  const bool may_not_fit = value.is_complex() && !self.is_complex();
  if (may_not_fit || value.is_cpu()) check_fits(value.item(), self.scalar_type());
}

void check_polar(Arguments arguments) {
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
void check_scalar_tensor(Arguments arguments) {
  if (!arguments[1].isNone() && c10::isReducedFloatingType(arguments[1].toScalarType())) return;
  check_fits_dtype<0, 1>(arguments);
}

// Bounds have the result's dtype.
template <std::size_t first, std::size_t last>
void check_bounds(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  at::ScalarType dtype = self.scalar_type();
  for (std::size_t i = first; i <= last; ++i) {
    if (arguments[i].isNone()) continue;
    const at::Scalar bound = arguments[i].toScalar();
    TORCH_CHECK_NOT_IMPLEMENTED(!bound.isComplex() || self.is_floating_point(),
                                "clamp is not supported for complex types");
    if (bound.isComplex()) (void)bound.to<double>();
    dtype = c10::promoteTypes(dtype, at::result_type(self, bound));
  }
  for (std::size_t i = first; i <= last; ++i) {
    if (!arguments[i].isNone()) check_fits(arguments[i].toScalar(), dtype);
  }
}

void check_exponential(Arguments arguments) {
  const double lambda = arguments[1].toDouble();
  TORCH_CHECK(lambda > 0.0, "exponential_ expects lambda > 0.0, but found lambda=", lambda);
}

void check_cauchy(Arguments arguments) {
  const double sigma = arguments[2].toDouble();
  TORCH_CHECK(sigma > 0.0, "cauchy_ expects sigma > 0.0, but found sigma=", sigma);
}

void check_log_normal(Arguments arguments) {
  const double std = arguments[2].toDouble();
  TORCH_CHECK(std > 0.0, "log_normal_ expects std > 0.0, but found std=", std);
}

void check_geometric(Arguments arguments) {
  const double p = arguments[1].toDouble();
  TORCH_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
}

// PyTorch's own checks of the bounds, without its numbers.
template <typename>
struct NoNumbers {
  template <typename... Arguments>
  void operator()(const Arguments&...) const {}
};
template <bool has_from>
void check_random(Arguments arguments) {
  at::Tensor self = to_meta(arguments[0].toTensor());
  const std::int64_t from = has_from ? arguments[1].toInt() : 0;
  at::native::templates::random_from_to_impl<NoNumbers, at::Generator>(
      self, from, arguments[has_from ? 2 : 1].toOptional<std::int64_t>(), std::nullopt);
}

void check_uniform(Arguments arguments) {
  at::Tensor self = to_meta(arguments[0].toTensor());
  at::native::templates::uniform_impl_<NoNumbers, at::Generator>(
      self, arguments[1].toDouble(), arguments[2].toDouble(), std::nullopt);
}

void check_normal(Arguments arguments) {
  const at::ScalarType dtype = arguments[0].toTensor().scalar_type();
  const double std = arguments[2].toDouble();
  TORCH_CHECK_NOT_IMPLEMENTED(!c10::isIntegralType(dtype, /*includeBool=*/true),
                              "\"normal_kernel_cpu\" not implemented for '", dtype, "'");
  TORCH_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", std);
}

void check_random_any(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex(), "\"random_kernel_cpu\" not implemented for '",
                              self.scalar_type(), "'");
}

// The zero point is data to the lowering, which refuses an empty range itself.
void check_zero_point(Arguments arguments) {
  const std::int64_t zero_point = arguments[2].toInt();
  const std::int64_t quant_min = arguments[3].toInt();
  const std::int64_t quant_max = arguments[4].toInt();
  const bool is_inside = quant_min <= zero_point && zero_point <= quant_max;
  TORCH_CHECK(is_inside || quant_min > quant_max,
              "`zero_point` must be between `quant_min` and `quant_max`.");
}

const graph::TensorType* type_of_self(Arguments arguments) {
  const TensorImpl* self = as_xla(arguments[0].toTensor());
  return self == nullptr ? nullptr : self->xla_type();
}

// PyTorch writes batches of matrices that do not follow one another by way of a copy. Matrices of
// one batch, and batches that repeat in the first dimension, it writes where they are.
void check_triangle(Arguments arguments) {
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
void check_conj(Arguments arguments) {
  const graph::TensorType* type = type_of_self(arguments);
  if (type != nullptr && base::is_complex(type->shape.dtype)) check_no_overlap(*type);
}

// Of integers there is nothing to do.
void check_nan_to_num(Arguments arguments) {
  const graph::TensorType* type = type_of_self(arguments);
  if (type != nullptr && !base::is_integral(type->shape.dtype)) check_no_overlap(*type);
}

void check_abs_in_place(Arguments arguments) {
  const bool is_complex = arguments[0].isTensor()
                              ? arguments[0].toTensor().is_complex()
                              : std::ranges::any_of(arguments[0].toTensorVector(),
                                                    [](const auto& x) { return x.is_complex(); });
  TORCH_CHECK(!is_complex, "In-place abs is not supported for complex tensors.");
}

void check_narrow_copy(Arguments arguments) {
  const std::int64_t dim = arguments[0].toTensor().dim();
  TORCH_CHECK(dim == 0 || arguments[1].toInt() < dim,
              "Expected dim < static_cast<int64_t>(self_sizes.size()) to be true, but got false.  "
              "(Could this error message be improved?  If so, please report an enhancement request "
              "to PyTorch.)");
}

void check_power(const at::Tensor& base, const at::Scalar& exponent) {
  const bool is_fraction = at::isIntegralType(base.scalar_type(), /*includeBool=*/true) &&
                           exponent.isIntegral(/*includeBool=*/true) && exponent.toLong() < 0;
  TORCH_CHECK(!is_fraction, "Integers to negative integer powers are not allowed.");
}

void check_exponent(Arguments arguments) {
  if (arguments[0].isTensor()) check_power(arguments[0].toTensor(), arguments[1].toScalar());
}

void check_exponent_of_list(Arguments arguments) {
  for (const at::Tensor& base : arguments[0].toTensorVector()) {
    check_power(base, arguments[1].toScalar());
  }
}

// Of a number that is known at the call; on the device a zero is data.
bool is_integer_zero(const c10::IValue& number) {
  if (!number.isTensor()) {
    return number.isScalar() && number.toScalar().isIntegral(/*includeBool=*/true) &&
           number.toScalar().toLong() == 0;
  }
  const at::Tensor& tensor = number.toTensor();
  return tensor.is_cpu() && tensor.dim() == 0 &&
         at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true) &&
         tensor.item().toLong() == 0;
}

void check_divisor(Arguments arguments) {
  if (!arguments[0].isTensor()) return;
  const at::Tensor& self = arguments[0].toTensor();
  if (!at::isIntegralType(self.scalar_type(), /*includeBool=*/true) || self.numel() == 0) return;
  TORCH_CHECK(!is_integer_zero(arguments[1]), "ZeroDivisionError");
}

void check_divisor_of_mode(Arguments arguments) {
  if (!arguments[2].isNone()) check_divisor(arguments);
}

struct Entry {
  std::string_view op;
  ArgumentCheck check;
};
constexpr Entry kChecks[] = {
    {"_foreach_abs_", check_abs_in_place},
    {"_foreach_pow.Scalar", check_exponent_of_list},
    {"abs_", check_abs_in_place},
    {"cauchy", check_cauchy},
    {"clamp", check_bounds<1, 2>},
    {"clamp_max", check_bounds<1, 1>},
    {"clamp_min", check_bounds<1, 1>},
    {"conj_physical_", check_conj},
    {"constant_pad_nd", check_fits_self<2>},
    {"div.Scalar_mode", check_divisor_of_mode},
    {"div.Tensor_mode", check_divisor_of_mode},
    {"exponential", check_exponential},
    {"fake_quantize_per_tensor_affine_cachemask", check_zero_point},
    {"fill.Scalar", check_fits_self<1>},
    {"floor_divide", check_divisor},
    {"floor_divide.Scalar", check_divisor},
    {"floor_divide.Tensor", check_divisor},
    {"fmod.Scalar", check_divisor},
    {"fmod.Tensor", check_divisor},
    {"full", check_fits_dtype<1, 2>},
    {"full_like", check_fits_dtype<1, 2>},
    {"geometric", check_geometric},
    {"index_fill.int_Scalar", check_index_fill},
    {"log_normal", check_log_normal},
    {"masked_fill.Scalar", check_fits_self<2>},
    {"masked_fill.Tensor", check_masked_fill},
    {"nan_to_num_", check_nan_to_num},
    {"narrow_copy", check_narrow_copy},
    {"new_full", check_fits_dtype<2, 3>},
    {"normal_", check_normal},
    {"polar", check_polar},
    {"pow.Scalar", check_exponent},
    {"pow.Tensor_Scalar", check_exponent},
    {"random", check_random_any},
    {"random.from", check_random<true>},
    {"random.to", check_random<false>},
    {"remainder.Scalar", check_divisor},
    {"remainder.Tensor", check_divisor},
    {"scalar_tensor", check_scalar_tensor},
    {"scatter.value", check_fits_self<3>},
    {"tril_", check_triangle},
    {"triu_", check_triangle},
    {"uniform", check_uniform},
};

}  // namespace

ArgumentCheck find_argument_check(std::string_view name) {
  for (const Entry& entry : kChecks) {
    if (entry.op == name) return entry.check;
  }
  return nullptr;
}

}  // namespace torch_xla::aten

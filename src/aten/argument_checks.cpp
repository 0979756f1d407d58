// The operators that convert a number to a tensor's dtype, and those whose distributions have
// parameters with bounds.
#include "aten/argument_checks.h"

#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/result_type.h>
#include <c10/core/DefaultDtype.h>

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

struct Entry {
  std::string_view op;
  ArgumentCheck check;
};
constexpr Entry kChecks[] = {
    {"cauchy", check_cauchy},
    {"clamp", check_bounds<1, 2>},
    {"clamp_max", check_bounds<1, 1>},
    {"clamp_min", check_bounds<1, 1>},
    {"constant_pad_nd", check_fits_self<2>},
    {"exponential", check_exponential},
    {"fill.Scalar", check_fits_self<1>},
    {"full", check_fits_dtype<1, 2>},
    {"full_like", check_fits_dtype<1, 2>},
    {"geometric", check_geometric},
    {"index_fill.int_Scalar", check_index_fill},
    {"log_normal", check_log_normal},
    {"masked_fill.Scalar", check_fits_self<2>},
    {"new_full", check_fits_dtype<2, 3>},
    {"scalar_tensor", check_scalar_tensor},
    {"scatter.value", check_fits_self<3>},
};

}  // namespace

ArgumentCheck find_argument_check(std::string_view functional_name) {
  for (const Entry& entry : kChecks) {
    if (entry.op == functional_name) return entry.check;
  }
  return nullptr;
}

}  // namespace torch_xla::aten

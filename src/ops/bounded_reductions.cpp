// Sums, means, extrema and what is cumulated, of as many elements as are data.
#include <algorithm>

#include "ops/bounded_emission.h"
#include "ops/promotion.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

template <int number>
Results reduction_from(Emission& e) {
  e.require_fixed();
  e.hide(0, scalar(e.builder(), e.operand(0).dtype(), number));
  return e.ordinary();
}

Results maximum_of(Emission& e) {
  e.require_fixed();
  e.hide(0, lowest(e.builder(), e.operand(0).dtype()));
  return e.ordinary();
}

Results minimum_of(Emission& e) {
  e.require_fixed();
  e.hide(0, highest(e.builder(), e.operand(0).dtype()));
  return e.ordinary();
}

// The place in all elements depends on how many there are.
void require_places(Emission& e) { e.require(!e.is_none(1) || e.variables(0).size() == 1); }

Results place_of_maximum(Emission& e) {
  require_places(e);
  return maximum_of(e);
}

Results place_of_minimum(Emission& e) {
  require_places(e);
  return minimum_of(e);
}

// (self, ord, ...)
Results vector_norm(Emission& e) {
  e.require(std::get<graph::Number>(e.arg(1)).constant.to<double>() >= 0);
  return reduction_from<0>(e);
}

// ---- Means and variances: by how many elements there are ----------------------------------------

// The argument's dimensions, where none are all.
Dims dims_of(Emission& e, std::size_t arg) {
  const std::int64_t rank = e.operand(0).rank();
  const auto* dims = std::get_if<Dims>(&e.arg(arg));
  return dims == nullptr || dims->empty() ? all_but(rank, rank) : wrap_dims(*dims, rank);
}

bool are_fixed(Emission& e, const Dims& dims) {
  return std::ranges::all_of(dims, [&](std::int64_t dim) {
    return e.variables(0)[static_cast<std::size_t>(dim)] == kNoVariable;
  });
}

Value mean_along(Emission& e, Value x, const Dims& dims) {
  const Value sum = reduce_sum(x, dims);
  return hlo::divide(sum, broadcast_to(e.count(0, sum.dtype(), dims), sum.dims()));
}

// Zeros behind the elements of the operand, in the dtype in which `result` is computed.
Value hidden_operand(Emission& e, DType result) {
  e.require(!base::is_complex(e.operand(0).dtype()));
  e.hide(0, e.zero(0));
  return convert(e.operand(0), accumulate_dtype(result));
}

Value as_output(Emission& e, Value value) {
  return convert(hlo::reshape(value, e.output_dims()), e.output_dtype());
}

// (self, dtype) or (self, dim, keepdim, dtype)
Results mean(Emission& e) {
  e.require_fixed();
  const Dims dims = dims_of(e, 1);
  if (are_fixed(e, dims)) return e.ordinary();
  return {as_output(e, mean_along(e, hidden_operand(e, e.output_dtype()), dims))};
}

// (self, dim, correction, keepdim)
template <bool is_std>
Results variance(Emission& e) {
  e.require_fixed();
  const Dims dims = dims_of(e, 1);
  if (are_fixed(e, dims)) return e.ordinary();
  const Value x = hidden_operand(e, e.operand(0).dtype());
  const Value centered = hlo::subtract(x, spread(mean_along(e, x, dims), x.dims(), dims));
  const Value deviation =
      hlo::select(e.are_elements(x.dims(), e.variables(0)), centered, hlo::full_like(x, 0));
  const Value sum = reduce_sum(hlo::multiply(deviation, deviation), dims);
  const double correction =
      e.is_none(2) ? 1.0 : std::get<graph::Number>(e.arg(2)).constant.to<double>();
  const Value count = e.count(0, x.dtype(), dims);
  const Value freedom = hlo::maximum(hlo::subtract(count, hlo::full_like(count, correction)),
                                     hlo::full_like(count, 0));
  const Value variance = hlo::divide(sum, broadcast_to(freedom, sum.dims()));
  return {as_output(e, is_std ? hlo::sqrt(variance) : variance)};
}

}  // namespace

const Rules& reduction_rules() {
  static const Rules table = {
      {"sum", reduction_from<0>},
      {"sum.dim_IntList", reduction_from<0>},
      {"nansum", reduction_from<0>},
      {"count_nonzero", reduction_from<0>},
      {"count_nonzero.dim_IntList", reduction_from<0>},
      {"linalg_vector_norm", vector_norm},
      {"any", reduction_from<0>},
      {"any.dim", reduction_from<0>},
      {"any.dims", reduction_from<0>},
      {"prod", reduction_from<1>},
      {"prod.dim_int", reduction_from<1>},
      {"all", reduction_from<1>},
      {"all.dim", reduction_from<1>},
      {"all.dims", reduction_from<1>},
      {"max", maximum_of},
      {"max.dim", maximum_of},
      {"amax", maximum_of},
      {"argmax", place_of_maximum},
      {"logsumexp", maximum_of},
      {"min", minimum_of},
      {"min.dim", minimum_of},
      {"amin", minimum_of},
      {"argmin", place_of_minimum},
      {"cumsum", reduction_from<0>},
      {"cumprod", reduction_from<1>},
      {"cummax", maximum_of},
      {"cummin", minimum_of},
      {"logcumsumexp", maximum_of},
      {"mean", mean},
      {"mean.dim", mean},
      {"var.correction", variance<false>},
      {"std.correction", variance<true>},
  };
  return table;
}

}  // namespace torch_xla::ops

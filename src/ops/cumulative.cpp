// Cumulative operators: sums, products, extrema with indices, and log-sum-exp along a dimension.
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "ops/promotion.h"
#include "ops/reduce.h"
#include "ops/registry.h"
#include "ops/scan.h"

namespace torch_xla::ops {

hlo::Values scan(hlo::Values inputs, const hlo::Values& identities, std::int64_t dim,
                 const Combine& combine) {
  const std::int64_t size = inputs[0].dim(dim);
  for (std::int64_t distance = 1; distance < size; distance *= 2) {
    Dims low(static_cast<std::size_t>(inputs[0].rank()));
    Dims high = low;
    low[static_cast<std::size_t>(dim)] = distance;
    high[static_cast<std::size_t>(dim)] = -distance;
    hlo::Values earlier;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      earlier.push_back(hlo::pad(inputs[i], identities[i], low, high));
    }
    inputs = combine(earlier, inputs);
  }
  return inputs;
}

namespace {

Value scan_one(Value input, const Scalar& identity, std::int64_t dim,
               const hlo::BinaryRegion& combine) {
  const Value start = scalar(input.builder(), input.dtype(), identity);
  return scan(hlo::Values{input}, hlo::Values{start}, dim,
              [&](const hlo::Values& earlier, const hlo::Values& later) -> hlo::Values {
                return {combine(earlier[0], later[0])};
              })[0];
}

Value sum_or_product(Value self, std::int64_t dim, std::optional<DType> dtype, int identity,
                     const hlo::BinaryRegion& combine) {
  const DType result =
      dtype.value_or(base::is_integral(self.dtype()) ? DType::kInt64 : self.dtype());
  const Value x = at_least_1d(convert(self, accumulate_dtype(result)));
  const Value scanned = scan_one(x, identity, wrap_dim(dim, x.rank()), combine);
  return hlo::reshape(convert(scanned, result), self.dims());
}

// The greatest (or least) so far and the index of its last occurrence; a NaN, once met, stays until
// the next NaN.
std::tuple<Value, Value> extremum(Value self, std::int64_t dim, bool greatest) {
  check_implemented(!base::is_complex(self.dtype()), greatest ? "cummax_cpu" : "cummin_cpu",
                    self.dtype());
  const Value x = at_least_1d(self);
  const std::int64_t axis = wrap_dim(dim, x.rank());
  hlo::Builder& builder = self.builder();
  const Value start = greatest ? lowest(builder, x.dtype()) : highest(builder, x.dtype());
  const Value index = hlo::iota(builder, {DType::kInt64, x.dims()}, axis);
  const Value zero = hlo::scalar(builder, DType::kInt64, 0);
  const bool has_nan = base::is_floating(x.dtype());
  const hlo::Values results =
      scan({x, index}, {start, zero}, axis,
           [&](const hlo::Values& earlier, const hlo::Values& later) -> hlo::Values {
             const Value a = earlier[0];
             const Value b = later[0];
             // Not "earlier is better": true as well where either is NaN.
             Value keep = greatest ? hlo::ge(b, a) : hlo::le(b, a);
             if (has_nan) keep = hlo::or_(keep, hlo::ne(b, b));
             return {hlo::select(keep, b, a), hlo::select(keep, later[1], earlier[1])};
           });
  return {hlo::reshape(results[0], self.dims()), hlo::reshape(results[1], self.dims())};
}

// log(exp(a) + exp(b)); of complex numbers the one of greater real part is taken out.
Value log_add_exp(Value a, Value b) {
  const bool is_complex = base::is_complex(a.dtype());
  const Value a_size = is_complex ? hlo::real(a) : a;
  const Value b_size = is_complex ? hlo::real(b) : b;
  const Value a_is_greater = hlo::or_(hlo::ge(a_size, b_size), hlo::ne(a_size, a_size));
  const Value greater = hlo::select(a_is_greater, a, b);
  const Value less = hlo::select(a_is_greater, b, a);
  const Value difference = hlo::exponential(hlo::subtract(less, greater));
  const Value sum = hlo::add(greater, hlo::log_plus_one(difference));
  const Value is_finite = hlo::is_finite(is_complex ? hlo::real(greater) : greater);
  return hlo::select(is_finite, sum, greater);
}

Value logcumsumexp(Value self, std::int64_t dim) {
  check_implemented(!base::is_integral(self.dtype()), "logcumsumexp_out_cpu", self.dtype());
  const Value x = at_least_1d(convert(self, accumulate_dtype(self.dtype())));
  const Value scanned =
      scan_one(x, -std::numeric_limits<double>::infinity(), wrap_dim(dim, x.rank()), log_add_exp);
  return hlo::reshape(convert(scanned, self.dtype()), self.dims());
}

}  // namespace

void register_cumulative(Registry& m) {
  m.impl("cumsum", [](Value self, std::int64_t dim, std::optional<DType> dtype) {
    return sum_or_product(self, dim, dtype, 0, hlo::add);
  });
  m.impl("cumprod", [](Value self, std::int64_t dim, std::optional<DType> dtype) {
    return sum_or_product(self, dim, dtype, 1, hlo::multiply);
  });
  m.impl("cummax",
         [](Value self, std::int64_t dim) { return extremum(self, dim, /*greatest=*/true); });
  m.impl("cummin",
         [](Value self, std::int64_t dim) { return extremum(self, dim, /*greatest=*/false); });
  m.impl({"logcumsumexp", "_logcumsumexp"}, logcumsumexp);
}

}  // namespace torch_xla::ops

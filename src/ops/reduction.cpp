// Reductions: sums, products, extrema and their indices, moments, norms, counts and tests. What
// they are made of stands in ops/reduce.h; here are ATen's argument conventions and result dtypes.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "base/error.h"
#include "ops/promotion.h"
#include "ops/reduce.h"
#include "ops/registry.h"

namespace torch_xla::ops {
namespace {

using Pair = std::tuple<Value, Value>;

Dims all_dims(Value self) { return wrap_dims({}, self.rank()); }

// `dim` as most reductions take it: None and [] mean every dimension.
Dims dims_of(Value self, const std::optional<Dims>& dim) {
  return wrap_dims(dim.value_or(Dims{}), self.rank());
}

// One dimension; a 0-dim tensor has none to reduce.
Dims dims_of(Value self, std::int64_t dim) { return wrap_dims({dim}, self.rank()); }

Value with_keepdim(Value reduced, Value self, const Dims& dims, bool keepdim) {
  return keepdim ? keep_dims(reduced, self.dims(), dims) : reduced;
}

// ---- Sums, products, means ----------------------------------------------------------------------

// Sums and products of integers are int64.
DType sum_dtype(Value self, std::optional<DType> dtype) {
  if (dtype.has_value()) return *dtype;
  return base::is_integral(self.dtype()) ? DType::kInt64 : self.dtype();
}

Value sum(Value self, const std::optional<Dims>& dim, bool keepdim, std::optional<DType> dtype) {
  const DType result = sum_dtype(self, dtype);
  const Dims dims = dims_of(self, dim);
  const Value total = reduce_sum(convert(self, accumulate_dtype(result)), dims);
  return with_keepdim(convert(total, result), self, dims, keepdim);
}

Value nansum(Value self, const std::optional<Dims>& dim, bool keepdim, std::optional<DType> dtype) {
  base::check(!base::is_complex(self.dtype()), "nansum on CPU does not support complex inputs");
  if (base::is_floating(self.dtype())) {
    self = hlo::select(is_nan(self), hlo::full_like(self, 0), self);
  }
  return sum(self, dim, keepdim, dtype);
}

Value prod(Value self, const Dims& dims, bool keepdim, std::optional<DType> dtype) {
  const DType result = sum_dtype(self, dtype);
  const Value product = reduce_prod(convert(self, accumulate_dtype(result)), dims);
  return with_keepdim(convert(product, result), self, dims, keepdim);
}

Value mean(Value self, const std::optional<Dims>& dim, bool keepdim, std::optional<DType> dtype) {
  const DType result = dtype.value_or(self.dtype());
  base::check(
      !base::is_integral(result), "mean(): could not infer output dtype. ",
      dtype.has_value() ? "Optional" : "Input",
      " dtype must be either a floating point or complex dtype. Got: ", scalar_type_name(result));
  const Dims dims = dims_of(self, dim);
  const Value value = reduce_mean(convert(self, accumulate_dtype(result)), dims);
  return with_keepdim(convert(value, result), self, dims, keepdim);
}

void register_sums(Registry& m) {
  const Options options = {.computes_in_out_dtype = true};
  m.impl(
      "sum",
      [](Value self, std::optional<DType> dtype) { return sum(self, std::nullopt, false, dtype); },
      options);
  m.impl("sum.dim_IntList", sum, options);
  m.impl("nansum", nansum, options);
  m.impl(
      "prod",
      [](Value self, std::optional<DType> dtype) {
        return prod(self, all_dims(self), false, dtype);
      },
      options);
  m.impl(
      "prod.dim_int",
      [](Value self, std::int64_t dim, bool keepdim, std::optional<DType> dtype) {
        return prod(self, dims_of(self, dim), keepdim, dtype);
      },
      options);
  m.impl(
      "mean",
      [](Value self, std::optional<DType> dtype) { return mean(self, std::nullopt, false, dtype); },
      options);
  m.impl("mean.dim", mean, options);
  m.impl("trace", [](Value self) {
    base::check(self.rank() == 2, "trace: expected a matrix, but got tensor with dim ",
                self.rank());
    check_implemented(self.dtype() != DType::kBool, "trace", self.dtype());
    const std::int64_t columns = self.dim(1);
    const std::int64_t length = std::min(self.dim(0), columns);
    const Value flat = hlo::reshape(self, {self.num_elements()});
    const std::int64_t limit = length == 0 ? 0 : (length - 1) * (columns + 1) + 1;
    const Value diagonal = hlo::slice(flat, {0}, {limit}, {columns + 1});
    return sum(diagonal, std::nullopt, false, std::nullopt);
  });
}

// ---- Extrema ------------------------------------------------------------------------------------

void check_not_empty(Value self, std::string_view op) {
  base::check(self.num_elements() > 0, op,
              "(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
              "reduction dim with the 'dim' argument.");
}

Value extremum(Value self, bool greatest, std::string_view op) {
  check_not_empty(self, op);
  check_implemented(!base::is_complex(self.dtype()), greatest ? "max_all" : "min_all",
                    self.dtype());
  return greatest ? reduce_max(self, all_dims(self)) : reduce_min(self, all_dims(self));
}

void check_ordered(Value self, std::string_view op) {
  base::check(!base::is_complex(self.dtype()), op, "(): does not support complex input");
}

Pair extremum_along(Value self, std::int64_t dim, bool keepdim, bool greatest) {
  check_ordered(self, greatest ? "max" : "min");
  const Value operand = at_least_1d(self);
  const Dims dims = wrap_dims({dim}, operand.rank());
  const auto [value, index] = reduce_with_index(operand, dims[0], greatest);
  const Dims result = self.rank() == 0 ? Dims{} : reduced_dims(self.dims(), dims, keepdim);
  return {hlo::reshape(value, result), hlo::reshape(index, result)};
}

Value index_of_extremum(Value self, std::optional<std::int64_t> dim, bool keepdim, bool greatest) {
  check_ordered(self, greatest ? "argmax" : "argmin");
  if (dim.has_value()) return std::get<1>(extremum_along(self, *dim, keepdim, greatest));
  const Value flat = hlo::reshape(self, {self.num_elements()});
  const Value index = reduce_with_index(flat, 0, greatest).second;
  return with_keepdim(index, self, all_dims(self), keepdim);
}

void register_extrema(Registry& m) {
  m.impl("max", [](Value self) { return extremum(self, true, "max"); });
  m.impl("min", [](Value self) { return extremum(self, false, "min"); });
  m.impl("max.dim", [](Value self, std::int64_t dim, bool keepdim) {
    return extremum_along(self, dim, keepdim, true);
  });
  m.impl("min.dim", [](Value self, std::int64_t dim, bool keepdim) {
    return extremum_along(self, dim, keepdim, false);
  });
  m.impl("argmax", [](Value self, std::optional<std::int64_t> dim, bool keepdim) {
    return index_of_extremum(self, dim, keepdim, true);
  });
  m.impl("argmin", [](Value self, std::optional<std::int64_t> dim, bool keepdim) {
    return index_of_extremum(self, dim, keepdim, false);
  });
  m.impl("amax", [](Value self, const Dims& dim, bool keepdim) {
    check_implemented(!base::is_complex(self.dtype()), "max_values_cpu", self.dtype());
    const Dims dims = wrap_dims(dim, self.rank());
    return with_keepdim(reduce_max(self, dims), self, dims, keepdim);
  });
  m.impl("amin", [](Value self, const Dims& dim, bool keepdim) {
    check_implemented(!base::is_complex(self.dtype()), "min_values_cpu", self.dtype());
    const Dims dims = wrap_dims(dim, self.rank());
    return with_keepdim(reduce_min(self, dims), self, dims, keepdim);
  });
  const auto aminmax = [](Value self, std::optional<std::int64_t> dim, bool keepdim) -> Pair {
    check_implemented(!base::is_complex(self.dtype()), "aminmax_cpu", self.dtype());
    const Dims dims = dim.has_value() ? dims_of(self, *dim) : all_dims(self);
    return {with_keepdim(reduce_min(self, dims), self, dims, keepdim),
            with_keepdim(reduce_max(self, dims), self, dims, keepdim)};
  };
  m.impl("aminmax", aminmax);
  m.impl("_aminmax", [aminmax](Value self) { return aminmax(self, std::nullopt, false); });
  m.impl("_aminmax.dim", [aminmax](Value self, std::int64_t dim, bool keepdim) {
    return aminmax(self, dim, keepdim);
  });
}

// ---- Any, all, counts ---------------------------------------------------------------------------

// The result is bool, but uint8 for uint8.
Value any_or_all(Value self, const Dims& dims, bool keepdim, bool is_any) {
  const DType result = self.dtype() == DType::kUInt8 ? DType::kUInt8 : DType::kBool;
  const Value test = convert(self, DType::kBool);
  const Value reduced = is_any ? reduce_or(test, dims) : reduce_and(test, dims);
  return with_keepdim(convert(reduced, result), self, dims, keepdim);
}

void register_tests(Registry& m, bool is_any) {
  const std::string name = is_any ? "any" : "all";
  m.impl(name, [is_any](Value self) { return any_or_all(self, all_dims(self), false, is_any); });
  m.impl(name + ".dim", [is_any](Value self, std::int64_t dim, bool keepdim) {
    return any_or_all(self, dims_of(self, dim), keepdim, is_any);
  });
  m.impl(name + ".dims", [is_any](Value self, const std::optional<Dims>& dim, bool keepdim) {
    // Unlike elsewhere, an empty list reduces nothing.
    const bool is_elementwise = dim.has_value() && dim->empty();
    return any_or_all(self, is_elementwise ? Dims{} : dims_of(self, dim), keepdim, is_any);
  });
  m.impl(is_any ? "_is_any_true" : "_is_all_true",
         [is_any](Value self) { return any_or_all(self, all_dims(self), false, is_any); });
}

Value count_nonzero(Value self, const Dims& dims) {
  return reduce_sum(convert(convert(self, DType::kBool), DType::kInt64), dims);
}

void register_counts(Registry& m) {
  m.impl("count_nonzero", [](Value self, std::optional<std::int64_t> dim) {
    return count_nonzero(self, dim.has_value() ? dims_of(self, *dim) : all_dims(self));
  });
  m.impl("count_nonzero.dim_IntList",
         [](Value self, const Dims& dim) { return count_nonzero(self, dims_of(self, dim)); });
}

// ---- Moments ------------------------------------------------------------------------------------

// The mean and, in the dtype of its real part, the variance or its square root.
Pair mean_and_spread(Value self, const std::optional<Dims>& dim,
                     const std::optional<Scalar>& correction, bool keepdim, bool is_std) {
  base::check(!base::is_integral(self.dtype()),
              "std and var only support floating point and complex dtypes");
  const Dims dims = dims_of(self, dim);
  const double delta = correction.has_value() ? correction->to<double>() : 1.0;
  const auto [mean, variance] = moments(convert(self, accumulate_dtype(self.dtype())), dims, delta);
  const Value width = is_std ? hlo::sqrt(variance) : variance;
  return {with_keepdim(convert(mean, self.dtype()), self, dims, keepdim),
          with_keepdim(convert(width, base::real_dtype(self.dtype())), self, dims, keepdim)};
}

void register_moments(Registry& m, bool is_std) {
  const std::string name = is_std ? "std" : "var";
  m.impl(name + ".correction", [is_std](Value self, const std::optional<Dims>& dim,
                                        const std::optional<Scalar>& correction, bool keepdim) {
    return std::get<1>(mean_and_spread(self, dim, correction, keepdim, is_std));
  });
  m.impl(name + "_mean.correction",
         [is_std](Value self, const std::optional<Dims>& dim,
                  const std::optional<Scalar>& correction, bool keepdim) -> Pair {
           const auto [mean, width] = mean_and_spread(self, dim, correction, keepdim, is_std);
           return {width, mean};
         });
}

// ---- Norms --------------------------------------------------------------------------------------

Value norm(Value self, double ord, const std::optional<Dims>& dim, bool keepdim,
           std::optional<DType> dtype) {
  base::check(!base::is_integral(self.dtype()),
              "linalg.vector_norm: Expected a floating point or complex tensor as input. Got ",
              scalar_type_name(self.dtype()));
  const Dims dims = dims_of(self, dim);
  base::check(reduced_size(self.dims(), dims) > 0 || (ord >= 0 && !std::isinf(ord)),
              "linalg.vector_norm cannot compute the ", ord,
              " norm on an empty tensor because the operation does not have an identity");
  const DType in = dtype.value_or(self.dtype());
  const Value value = vector_norm(convert(self, accumulate_dtype(in)), ord, dims);
  return with_keepdim(convert(value, base::real_dtype(in)), self, dims, keepdim);
}

double ord_of(const std::optional<Scalar>& p) { return p.has_value() ? p->to<double>() : 2.0; }

void register_norms(Registry& m) {
  m.impl("linalg_vector_norm",
         [](Value self, double ord, const std::optional<Dims>& dim, bool keepdim,
            std::optional<DType> dtype) { return norm(self, ord, dim, keepdim, dtype); });
  m.impl("norm.Scalar",
         [](Value self, double p) { return norm(self, p, std::nullopt, false, std::nullopt); });
  m.impl("norm.ScalarOpt_dtype", [](Value self, const std::optional<Scalar>& p, DType dtype) {
    return norm(self, ord_of(p), std::nullopt, false, dtype);
  });
  m.impl("norm.ScalarOpt_dim",
         [](Value self, const std::optional<Scalar>& p, const Dims& dim, bool keepdim) {
           return norm(self, ord_of(p), dim, keepdim, std::nullopt);
         });
  m.impl("norm.ScalarOpt_dim_dtype",
         [](Value self, const std::optional<Scalar>& p, const Dims& dim, bool keepdim,
            DType dtype) { return norm(self, ord_of(p), dim, keepdim, dtype); });
  m.impl("dist", [](Value self, Value other, double p) {
    const auto operands = promote({self, other});
    base::check(!base::is_integral(operands[0].dtype()),
                "norm(): input dtype should be either floating point or complex. Got ",
                scalar_type_name(operands[0].dtype()), " instead.");
    const Value difference = hlo::subtract(operands[0], operands[1]);
    return norm(difference, p, std::nullopt, false, std::nullopt);
  });
}

// ---- logsumexp ----------------------------------------------------------------------------------

Value logsumexp(Value self, const Dims& dim, bool keepdim) {
  const DType result = float_result_type({self});
  const Dims dims = wrap_dims(dim, self.rank());
  const Value x = convert(self, accumulate_dtype(result));
  const Value real = base::is_complex(x.dtype()) ? hlo::real(x) : x;
  Value peak = reduce_max(real, dims);
  // An infinite maximum subtracted would make NaN of the infinity that is the answer.
  peak = hlo::select(hlo::is_finite(peak), peak, hlo::full_like(peak, 0));
  const Value shift = convert(peak, x.dtype());
  const Value shifted = hlo::subtract(x, spread(shift, x.dims(), dims));
  const Value value = hlo::add(hlo::log(reduce_sum(hlo::exponential(shifted), dims)), shift);
  return with_keepdim(convert(value, result), self, dims, keepdim);
}

// ---- histc --------------------------------------------------------------------------------------

// Equal bins between `min` and `max`, or between the data's extrema where these are equal. Of
// integers too, unlike the CPU: programs that know of GPUs, whose bins these are, ask for them
// elsewhere.
Value histc(Value self, std::int64_t bins, double min, double max) {
  const bool is_integral = base::is_integral(self.dtype()) && self.dtype() != DType::kBool;
  check_implemented(base::is_floating(self.dtype()) || is_integral, "histogram_cpu", self.dtype());
  base::check(bins > 0, "bins must be > 0");
  base::check(min <= max, "torch.histc: max must be larger than min");
  hlo::Builder& builder = self.builder();
  const Shape counts_type{self.dtype(), {bins}};
  if (self.num_elements() == 0) return hlo::full(builder, counts_type, 0);
  // In half precision the steps of the formula would round into the next bin.
  const DType computed = is_integral ? DType::kInt64 : accumulate_dtype(self.dtype());
  const Value x = convert(hlo::reshape(self, {self.num_elements()}), computed);
  Value low = hlo::scalar(builder, x.dtype(), min);
  Value high = hlo::scalar(builder, x.dtype(), max);
  if (min == max) {
    low = reduce_min(x, {0});
    high = reduce_max(x, {0});
    const Value one = hlo::full_like(low, 1);
    const Value is_flat = hlo::eq(low, high);
    low = hlo::select(is_flat, hlo::subtract(low, one), low);
    high = hlo::select(is_flat, hlo::add(high, one), high);
  }
  const auto like_x = [&](Value v) { return broadcast_to(v, x.dims()); };
  const Value position = hlo::divide(
      hlo::multiply(hlo::subtract(x, like_x(low)), hlo::full_like(x, static_cast<double>(bins))),
      like_x(hlo::subtract(high, low)));
  const Value last = hlo::scalar(builder, DType::kInt64, bins - 1);
  const Value bin = hlo::minimum(convert(position, DType::kInt64), like_x(last));
  const Value is_inside = hlo::and_(hlo::ge(x, like_x(low)), hlo::le(x, like_x(high)));
  // An index outside is dropped by scatter.
  const Value index = hlo::select(is_inside, bin, hlo::full_like(bin, bins));
  hlo::ScatterDimensionNumbers numbers;
  numbers.inserted_window_dims = {0};
  numbers.scatter_dims_to_operand_dims = {0};
  numbers.index_vector_dim = 1;
  const Value ones = hlo::full(builder, {self.dtype(), x.dims()}, 1);
  return hlo::scatter(hlo::full(builder, counts_type, 0), index, ones, numbers, hlo::add);
}

// ---- hash_tensor --------------------------------------------------------------------------------

// The exclusive or of the elements' bits, widened to 64.
Value hash_tensor(Value self, const Dims& dim, bool keepdim, std::int64_t mode) {
  base::check(mode == 0, "Unknown mode for tensor hash, got ", mode);
  base::check(!base::is_complex(self.dtype()), "hash_tensor does not support complex inputs");
  const Dims dims = wrap_dims(dim, self.rank());
  const Value bits = base::is_floating(self.dtype())
                         ? hlo::bitcast_convert(convert(self, DType::kFloat64), DType::kUInt64)
                         : convert(self, DType::kUInt64);
  if (dims.empty()) return bits;
  const Value zero = hlo::scalar(bits.builder(), DType::kUInt64, 0);
  return with_keepdim(hlo::reduce(bits, zero, dims, hlo::xor_), self, dims, keepdim);
}

}  // namespace

void register_reduction(Registry& m) {
  register_sums(m);
  register_extrema(m);
  register_tests(m, /*is_any=*/true);
  register_tests(m, /*is_any=*/false);
  register_counts(m);
  register_moments(m, /*is_std=*/true);
  register_moments(m, /*is_std=*/false);
  register_norms(m);
  m.impl("logsumexp", logsumexp);
  m.impl("histc", histc);
  m.impl("hash_tensor", hash_tensor);
}

}  // namespace torch_xla::ops

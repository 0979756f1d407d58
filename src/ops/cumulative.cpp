// Cumulative operators: sums, products, extrema with indices, and log-sum-exp along a dimension.
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <tuple>

#include "base/error.h"
#include "hlo/in_place.h"
#include "ops/promotion.h"
#include "ops/reduce.h"
#include "ops/registry.h"
#include "ops/scan.h"
#include "ops/views.h"

namespace torch_xla::ops {
namespace {

Value scan_one(Value input, const Scalar& identity, std::int64_t dim,
               const hlo::BinaryRegion& combine) {
  const Value start = scalar(input.builder(), input.dtype(), identity);
  return scan({input}, {start}, dim, [&](std::span<const Value> args) -> hlo::Values {
    return {combine(args[0], args[1])};
  })[0];
}

// `scanned` of what is to be added or multiplied, and the dimension.
Value sum_or_product(Value self, std::int64_t dim, std::optional<DType> dtype,
                     const std::function<Value(Value, std::int64_t)>& scanned) {
  const DType result =
      dtype.value_or(base::is_integral(self.dtype()) ? DType::kInt64 : self.dtype());
  const Value x = at_least_1d(convert(self, accumulate_dtype(result)));
  return hlo::reshape(convert(scanned(x, wrap_dim(dim, x.rank())), result), self.dims());
}

// Whether a kernel of ours on the host scans the columns (src/aten/column_scan_kernel.cpp). Few
// elements are scanned before a call has begun; PyTorch's kernels are for rows.
bool is_called(const Context& context, Value x, std::int64_t dim) {
  constexpr std::int64_t kLeastElements = 2048;
  return context.has_host_kernels && dim != x.rank() - 1 && x.num_elements() >= kLeastElements;
}

hlo::Values called_scan(const char* name, Value x, std::int64_t dim,
                        const std::vector<Shape>& results) {
  hlo::CustomCall call;
  call.call_target_name = name;
  call.results = results;
  call.backend_config = {{"dim", dim}};
  return hlo::custom_call({x}, call);
}

Value cumulative_sum(const Context& context, Value x, std::int64_t dim) {
  const bool has_kernel = x.dtype() == DType::kFloat32 || x.dtype() == DType::kFloat64;
  if (!has_kernel || !is_called(context, x, dim)) return scan_one(x, 0, dim, hlo::add);
  return called_scan("torch_xla.cumsum", x, dim, {x.type()})[0];
}

// s[i] = terms[i] + factors[i] * s[i + 1], where factors[i] belongs between the two.
Value weighted_sums_to_end(Value terms, Value factors, std::int64_t dim) {
  hlo::Builder& builder = terms.builder();
  const auto number = [&](int n) { return scalar(builder, terms.dtype(), n); };
  const hlo::Values sums =
      scan({hlo::reverse(factors, {dim}), hlo::reverse(terms, {dim})}, {number(1), number(0)}, dim,
           [](std::span<const Value> args) -> hlo::Values {
             return {hlo::multiply(args[0], args[2]),
                     hlo::add(hlo::multiply(args[1], args[2]), args[3])};
           });
  return hlo::reverse(sums[1], {dim});
}

// What stands before an element is a factor of all products that it is in. Nothing is divided, so
// that nothing depends on whether there are zeros.
Value cumprod_backward(Value grad, Value input, std::int64_t dim) {
  const DType dtype = accumulate_dtype(grad.dtype());
  const Value x = hlo::conj(at_least_1d(convert(input, dtype)));
  const std::int64_t axis = wrap_dim(dim, x.rank());
  const std::int64_t size = x.dim(axis);
  if (size <= 1) return grad;
  const Value one = broadcast_to(scalar(x.builder(), dtype, 1), with_dim(x.dims(), axis, 1));
  const Value before = hlo::concatenate({one, slice_dim(x, axis, 0, size - 1)}, axis);
  const Value after = hlo::concatenate({slice_dim(x, axis, 1, size), one}, axis);
  const Value sums = weighted_sums_to_end(at_least_1d(convert(grad, dtype)), after, axis);
  const Value products = scan_one(before, 1, axis, hlo::multiply);
  return hlo::reshape(convert(hlo::multiply(products, sums), grad.dtype()), grad.dims());
}

// The greatest (or least) so far and the index of its last occurrence; a NaN, once met, stays until
// the next NaN.
std::tuple<Value, Value> extremum(const Context& context, Value self, std::int64_t dim,
                                  bool greatest) {
  check_implemented(!base::is_complex(self.dtype()), greatest ? "cummax_cpu" : "cummin_cpu",
                    self.dtype());
  const Value x = at_least_1d(self);
  const std::int64_t axis = wrap_dim(dim, x.rank());
  const bool has_kernel =
      base::is_floating(x.dtype()) ? !base::is_float8(x.dtype()) : x.dtype() == DType::kInt64;
  if (has_kernel && is_called(context, x, axis)) {
    const hlo::Values called = called_scan(greatest ? "torch_xla.cummax" : "torch_xla.cummin", x,
                                           axis, {x.type(), {DType::kInt64, x.dims()}});
    return {called[0], called[1]};
  }
  hlo::Builder& builder = self.builder();
  const Value start = greatest ? lowest(builder, x.dtype()) : highest(builder, x.dtype());
  const Value index = hlo::iota(builder, {DType::kInt32, x.dims()}, axis);
  // No element comes before the first.
  const Value nowhere = hlo::scalar(builder, index.dtype(), -1);
  const bool has_nan = base::is_floating(x.dtype());
  const hlo::Values results =
      scan({x, index}, {start, nowhere}, axis, [&](std::span<const Value> args) -> hlo::Values {
        const Value a = args[0];
        const Value b = args[2];
        Value better = greatest ? hlo::gt(a, b) : hlo::lt(a, b);
        Value equal = hlo::eq(a, b);
        if (has_nan) {
          const Value b_is_number = hlo::eq(b, b);
          const Value a_is_nan = hlo::ne(a, a);
          better = hlo::or_(better, hlo::and_(a_is_nan, b_is_number));
          equal = hlo::or_(equal, hlo::and_(a_is_nan, hlo::not_(b_is_number)));
        }
        const Value first = hlo::or_(better, hlo::and_(equal, hlo::gt(args[1], args[3])));
        return {hlo::select(first, a, b), hlo::select(first, args[1], args[3])};
      });
  return {hlo::reshape(results[0], self.dims()),
          convert(hlo::reshape(results[1], self.dims()), DType::kInt64)};
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

// One element after the other.
Value scan_in_order(Value x, Value identity, std::int64_t dim, const hlo::BinaryRegion& combine) {
  if (x.num_elements() == 0) return x;
  hlo::Builder& builder = x.builder();
  const auto number = [&](std::int64_t n) { return hlo::scalar(builder, DType::kInt64, n); };
  Dims line = x.dims();
  line[static_cast<std::size_t>(dim)] = 1;
  const hlo::Values results = hlo::while_(
      {number(0), broadcast_to(identity, line), x},
      [&](std::span<const Value> args) { return hlo::lt(args[0], number(x.dim(dim))); },
      [&](std::span<const Value> args) -> hlo::Values {
        hlo::Values starts(x.dims().size(), number(0));
        starts[static_cast<std::size_t>(dim)] = args[0];
        const Value sum = combine(args[1], hlo::dynamic_slice(args[2], starts, line));
        return {hlo::add(args[0], number(1)), sum, hlo::update_slice(args[2], sum, starts)};
      });
  return results[2];
}

Value logcumsumexp(Value self, std::int64_t dim) {
  check_implemented(!base::is_integral(self.dtype()), "logcumsumexp_out_cpu", self.dtype());
  const Value x = at_least_1d(convert(self, accumulate_dtype(self.dtype())));
  if (base::is_complex(x.dtype())) {
    // The logarithm has many branches, and the order of the sums decides which one is met.
    const Value start =
        hlo::scalar(x.builder(), x.dtype(), -std::numeric_limits<double>::infinity());
    return hlo::reshape(scan_in_order(x, start, wrap_dim(dim, x.rank()), log_add_exp), self.dims());
  }
  const Value scanned =
      scan_one(x, -std::numeric_limits<double>::infinity(), wrap_dim(dim, x.rank()), log_add_exp);
  return hlo::reshape(convert(scanned, self.dtype()), self.dims());
}

}  // namespace

void register_cumulative(Registry& m) {
  const Options options = {.computes_in_out_dtype = true};
  m.impl(
      "cumsum",
      [](Context& context, Value self, std::int64_t dim, std::optional<DType> dtype) {
        return sum_or_product(self, dim, dtype, [&](Value x, std::int64_t axis) {
          return cumulative_sum(context, x, axis);
        });
      },
      options);
  m.impl(
      "cumprod",
      [](Value self, std::int64_t dim, std::optional<DType> dtype) {
        return sum_or_product(self, dim, dtype, [](Value x, std::int64_t axis) {
          return scan_one(x, 1, axis, hlo::multiply);
        });
      },
      options);
  m.impl("cumprod_backward", [](Value grad, Value input, std::int64_t dim, Value) {
    return cumprod_backward(grad, input, dim);
  });
  m.impl("cummax", [](Context& context, Value self, std::int64_t dim) {
    return extremum(context, self, dim, /*greatest=*/true);
  });
  m.impl("cummin", [](Context& context, Value self, std::int64_t dim) {
    return extremum(context, self, dim, /*greatest=*/false);
  });
  m.impl({"logcumsumexp", "_logcumsumexp"}, logcumsumexp);
}

}  // namespace torch_xla::ops

// Emission of reductions. One StableHLO reduce per call; what accumulates in which dtype is the
// caller's decision.
#include "ops/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "hlo/partitioned.h"
#include "ops/promotion.h"

namespace torch_xla::ops {
namespace {

bool contains(const Dims& dims, std::int64_t dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

// The square of the magnitude, real.
Value squared_magnitude(Value x) {
  if (!base::is_complex(x.dtype())) return hlo::multiply(x, x);
  const Value real = hlo::real(x);
  const Value imag = hlo::imag(x);
  return hlo::add(hlo::multiply(real, real), hlo::multiply(imag, imag));
}

// XLA's CPU compiler takes `maximum` in a reduction for one that may lose a NaN; a selection by
// comparisons keeps it, and is as fast.
hlo::BinaryRegion extremum_body(DType dtype, bool greatest) {
  if (base::is_integral(dtype)) return greatest ? hlo::maximum : hlo::minimum;
  return [greatest](Value a, Value b) {
    const Value take_b = greatest ? hlo::le(a, b) : hlo::ge(a, b);
    return hlo::select(hlo::or_(take_b, hlo::ne(b, b)), b, a);
  };
}

// Devices that meet in a reduction know XLA's own operations alone: NaNs are looked for apart.
Value extremum(Value operand, Value start, const Dims& dims, bool greatest) {
  if (!hlo::is_partitioned() || base::is_integral(operand.dtype())) {
    return hlo::reduce(operand, start, dims, extremum_body(operand.dtype(), greatest));
  }
  const Value found = hlo::reduce(operand, start, dims, greatest ? hlo::maximum : hlo::minimum);
  const Value nan = hlo::full_like(found, std::numeric_limits<double>::quiet_NaN());
  return hlo::select(reduce_or(hlo::ne(operand, operand), dims), nan, found);
}

Value plain_sum(Value operand, const Dims& dims) {
  return hlo::reduce(operand, hlo::scalar(operand.builder(), operand.dtype(), 0), dims, hlo::add);
}

// XLA's CPU compiler adds up a column from its first element to its last: the error grows with
// their number, and one thread has all the work where there are few columns. A long one is added
// up in two steps, of about as many terms each, between which XLA must not look. Of a row, several
// parts are added up side by side.
constexpr std::int64_t kLongColumn = 4096;
constexpr std::int64_t kLongRow = 1 << 17;
constexpr std::int64_t kPartOfRow = 4096;
// How many times as many or as few are still about as many.
constexpr std::int64_t kNear = 4;

bool may_have_many_terms(const Value& operand, const Dims& dims) {
  return !base::is_integral(operand.dtype()) && !operand.builder().barrier_call().empty() &&
         !hlo::is_partitioned() && reduced_size(operand.dims(), dims) >= kLongColumn;
}

// The divisor of `size`, a larger number, that is nearest to `wanted`, as a ratio; 1 where none is
// near.
std::int64_t divisor_near(std::int64_t size, std::int64_t wanted) {
  for (std::int64_t above = wanted; above <= kNear * wanted; ++above) {
    if (size % above == 0) return above;
    const std::int64_t below = wanted * wanted / above;
    if (below > 1 && size % below == 0) return below;
  }
  return 1;
}

// The sum along the first `split` of `size` elements of a dimension, and along the others.
Value sum_in_parts(Value operand, const Dims& dims, std::int64_t dim, std::int64_t split) {
  const auto at = static_cast<std::size_t>(dim);
  const auto part = [&](std::int64_t start, std::int64_t end) {
    Dims starts(operand.dims().size(), 0);
    Dims ends = operand.dims();
    starts[at] = start;
    ends[at] = end;
    return reduce_sum(hlo::slice(operand, starts, ends, Dims(starts.size(), 1)), dims);
  };
  return hlo::add(part(0, split), part(split, operand.dims()[at]));
}

std::int64_t root_of(std::int64_t size) {
  return static_cast<std::int64_t>(std::sqrt(static_cast<double>(size)));
}

// Dimension `dim` as two, of which the second has `part` elements.
Value split(Value operand, std::int64_t dim, std::int64_t part) {
  Dims dims = operand.dims();
  dims[static_cast<std::size_t>(dim)] /= part;
  dims.insert(dims.begin() + dim + 1, part);
  return hlo::reshape(operand, dims);
}

// About `wanted` terms in the first step. `dims` ascend.
Value sum_in_two_steps(Value operand, const Dims& dims, std::int64_t wanted) {
  // From the last dimension on into the first step, unless that were far too many; then a part of
  // the next.
  std::size_t first = dims.size();
  std::int64_t inner_size = 1;
  while (inner_size * operand.dim(dims[first - 1]) <= kNear * wanted) {
    inner_size *= operand.dim(dims[--first]);
  }
  const std::int64_t next = dims[first - 1];
  const std::int64_t size = operand.dim(next);
  const std::int64_t needed = wanted / inner_size;
  const std::int64_t part = needed > kNear ? divisor_near(size, needed) : 1;
  if (part == 1 && needed > kNear) return sum_in_parts(operand, dims, next, size / needed * needed);
  Dims inner = {next + 1};
  for (std::size_t i = first; i < dims.size(); ++i) inner.push_back(dims[i] + 1);
  const Value sums = hlo::optimization_barrier({plain_sum(split(operand, next, part), inner)})[0];
  return plain_sum(sums, Dims(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(first)));
}

// The same where the last dimension is among them: first of columns into which it is cut.
Value sum_of_one_column(Value operand, const Dims& dims) {
  const std::int64_t size = operand.dims().back();
  const std::int64_t wanted = root_of(size);
  const std::int64_t part = wanted > kNear ? divisor_near(size, wanted) : 1;
  if (part == 1) return plain_sum(operand, dims);
  const Value columns = split(operand, operand.rank() - 1, part);
  const Value sums = hlo::optimization_barrier({plain_sum(columns, dims)})[0];
  return plain_sum(sums, {sums.rank() - 1});
}

// Without dimensions of size 1, behind which XLA does not see what is contiguous.
Value sum_of_many_terms(Value operand, const Dims& dims) {
  Dims kept_sizes;
  Dims kept_dims;
  for (std::size_t i = 0; i < operand.dims().size(); ++i) {
    if (operand.dims()[i] == 1) continue;
    if (contains(dims, static_cast<std::int64_t>(i))) {
      kept_dims.push_back(static_cast<std::int64_t>(kept_sizes.size()));
    }
    kept_sizes.push_back(operand.dims()[i]);
  }
  const Value dense = hlo::reshape(operand, kept_sizes);
  const auto sum = [&] {
    const std::int64_t terms = reduced_size(dense.dims(), kept_dims);
    const bool are_rows = kept_dims.back() + 1 == dense.rank();
    if (!are_rows) return sum_in_two_steps(dense, kept_dims, root_of(terms));
    // A column that stands alone is no row to XLA.
    if (operand.dims().back() == 1) return sum_of_one_column(dense, kept_dims);
    if (terms < kLongRow) return plain_sum(dense, kept_dims);
    return sum_in_two_steps(dense, kept_dims, std::max(root_of(terms), kPartOfRow));
  };
  return hlo::reshape(sum(), reduced_dims(operand.dims(), dims, false));
}

}  // namespace

std::int64_t reduced_size(const Dims& operand_dims, const Dims& dims) {
  std::int64_t size = 1;
  for (const std::int64_t d : dims) size *= operand_dims[static_cast<std::size_t>(d)];
  return size;
}

Dims reduced_dims(const Dims& operand_dims, const Dims& dims, bool keepdim) {
  Dims out;
  for (std::size_t i = 0; i < operand_dims.size(); ++i) {
    if (!contains(dims, static_cast<std::int64_t>(i))) {
      out.push_back(operand_dims[i]);
    } else if (keepdim) {
      out.push_back(1);
    }
  }
  return out;
}

Value keep_dims(Value reduced, const Dims& operand_dims, const Dims& dims) {
  return hlo::reshape(reduced, reduced_dims(operand_dims, dims, true));
}

Value spread(Value reduced, const Dims& operand_dims, const Dims& dims) {
  if (reduced.dims() == operand_dims) return reduced;
  Dims kept;
  for (std::size_t i = 0; i < operand_dims.size(); ++i) {
    if (!contains(dims, static_cast<std::int64_t>(i))) kept.push_back(static_cast<std::int64_t>(i));
  }
  return hlo::broadcast_in_dim(reduced, operand_dims, kept);
}

Value reduce_sum(Value operand, const Dims& dims) {
  if (dims.empty()) return operand;
  return may_have_many_terms(operand, dims) ? sum_of_many_terms(operand, dims)
                                            : plain_sum(operand, dims);
}

Value reduce_prod(Value operand, const Dims& dims) {
  if (dims.empty()) return operand;
  return hlo::reduce(operand, hlo::scalar(operand.builder(), operand.dtype(), 1), dims,
                     hlo::multiply);
}

Value reduce_max(Value operand, const Dims& dims) {
  if (dims.empty()) return operand;
  const Value start = lowest(operand.builder(), operand.dtype());
  return extremum(operand, start, dims, /*greatest=*/true);
}

Value reduce_min(Value operand, const Dims& dims) {
  if (dims.empty()) return operand;
  const Value start = highest(operand.builder(), operand.dtype());
  return extremum(operand, start, dims, /*greatest=*/false);
}

Value reduce_or(Value operand, const Dims& dims) {
  if (dims.empty()) return operand;
  return hlo::reduce(operand, hlo::scalar(operand.builder(), DType::kBool, false), dims, hlo::or_);
}

Value reduce_and(Value operand, const Dims& dims) {
  if (dims.empty()) return operand;
  return hlo::reduce(operand, hlo::scalar(operand.builder(), DType::kBool, true), dims, hlo::and_);
}

Value reduce_mean(Value operand, const Dims& dims) {
  const Value sum = reduce_sum(operand, dims);
  const auto size = static_cast<double>(reduced_size(operand.dims(), dims));
  return size == 1 ? sum : hlo::divide(sum, hlo::full_like(sum, size));
}

Moments moments(Value operand, const Dims& dims, double correction) {
  const Value mean = reduce_mean(operand, dims);
  const Value centered = hlo::subtract(operand, spread(mean, operand.dims(), dims));
  const Value sum = reduce_sum(squared_magnitude(centered), dims);
  const auto size = static_cast<double>(reduced_size(operand.dims(), dims));
  return {mean, hlo::divide(sum, hlo::full_like(sum, std::max(0.0, size - correction)))};
}

Value vector_norm(Value operand, double ord, const Dims& dims) {
  if (ord == 2) return hlo::sqrt(reduce_sum(squared_magnitude(operand), dims));
  if (ord == 0) {
    const Value nonzero = convert(operand, DType::kBool);
    return reduce_sum(convert(nonzero, base::real_dtype(operand.dtype())), dims);
  }
  const Value magnitude = hlo::abs(operand);
  if (ord == 1) return reduce_sum(magnitude, dims);
  if (std::isinf(ord)) return ord > 0 ? reduce_max(magnitude, dims) : reduce_min(magnitude, dims);
  const Value powers = hlo::power(magnitude, hlo::full_like(magnitude, ord));
  const Value sum = reduce_sum(powers, dims);
  return hlo::power(sum, hlo::full_like(sum, 1 / ord));
}

std::pair<Value, Value> reduce_with_index(Value operand, std::int64_t dim, bool greatest) {
  hlo::Builder& builder = operand.builder();
  // 32 bits are half the work, and enough for any size along one dimension but the largest.
  const bool is_small = operand.dim(dim) <= std::numeric_limits<std::int32_t>::max();
  const DType index_dtype = is_small ? DType::kInt32 : DType::kInt64;
  const Value index = hlo::iota(builder, {index_dtype, operand.dims()}, dim);
  const Value start =
      greatest ? lowest(builder, operand.dtype()) : highest(builder, operand.dtype());
  const bool has_nan = base::is_floating(operand.dtype());
  const hlo::Values results =
      hlo::reduce({operand, index}, {start, hlo::scalar(builder, index_dtype, 0)}, {dim},
                  [&](std::span<const Value> args) -> hlo::Values {
                    const Value a = args[0];
                    const Value b = args[2];
                    Value better = greatest ? hlo::gt(a, b) : hlo::lt(a, b);
                    if (has_nan) better = hlo::or_(better, hlo::ne(a, a));
                    const Value earlier = hlo::and_(hlo::eq(a, b), hlo::lt(args[1], args[3]));
                    return {hlo::select(better, a, b),
                            hlo::select(hlo::or_(better, earlier), args[1], args[3])};
                  });
  return {results[0], convert(results[1], DType::kInt64)};
}

Value at_least_1d(Value value) { return value.rank() == 0 ? hlo::reshape(value, {1}) : value; }

Value is_nan(Value value) {
  if (base::is_integral(value.dtype())) {
    return hlo::full(value.builder(), {DType::kBool, value.dims()}, false);
  }
  return hlo::ne(value, value);
}

std::string_view scalar_type_name(DType dtype) {
  switch (dtype) {
    case DType::kBool: return "Bool";
    case DType::kUInt8: return "Byte";
    case DType::kUInt16: return "UInt16";
    case DType::kUInt32: return "UInt32";
    case DType::kUInt64: return "UInt64";
    case DType::kInt8: return "Char";
    case DType::kInt16: return "Short";
    case DType::kInt32: return "Int";
    case DType::kInt64: return "Long";
    case DType::kFloat8E4M3FN: return "Float8_e4m3fn";
    case DType::kFloat8E5M2: return "Float8_e5m2";
    case DType::kFloat16: return "Half";
    case DType::kBFloat16: return "BFloat16";
    case DType::kFloat32: return "Float";
    case DType::kFloat64: return "Double";
    case DType::kComplex64: return "ComplexFloat";
    case DType::kComplex128: return "ComplexDouble";
  }
  return "";
}

void check_implemented(bool is_supported, std::string_view kernel, DType dtype) {
  if (is_supported) return;
  base::fail(base::ErrorKind::kUnimplemented, "\"", kernel, "\" not implemented for '",
             scalar_type_name(dtype), "'");
}

}  // namespace torch_xla::ops

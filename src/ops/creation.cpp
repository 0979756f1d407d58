// Operators that make tensors from numbers: empty, full, arange, linspace, eye and the like. An
// empty tensor is zeros: nothing a program reads is left undefined.
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>

#include "base/error.h"
#include "ops/expression.h"
#include "ops/reduce.h"
#include "ops/sequence_dtypes.h"
#include "ops/special.h"

namespace torch_xla::ops {
namespace {

using base::check;
using MaybeDType = std::optional<DType>;

DType output_dtype(MaybeDType dtype) { return dtype.value_or(DefaultFloat::now()); }

Value filled(Context& context, const Dims& size, DType dtype, const Scalar& number) {
  return full(context.builder, Shape{dtype, size}, number);
}

Value filled(const Dims& size, DType dtype, Value number) {
  return broadcast_to(convert(number, dtype), size);
}

Options constant_options(const Scalar& number) {
  return {.constant =
              number.to<std::int64_t>() == 0 ? graph::Constant::kZero : graph::Constant::kOne};
}

void register_constants(Registry& m, const std::string& name, const Scalar& number) {
  m.impl(
      name,
      [number](Context& context, Dims size, MaybeDType dtype) {
        return filled(context, size, output_dtype(dtype), number);
      },
      constant_options(number));
}

void register_constants_like(Registry& m, const std::string& name, const Scalar& number) {
  m.impl(
      name,
      [number](Context& context, Value self, MaybeDType dtype) {
        return filled(context, self.dims(), dtype.value_or(self.dtype()), number);
      },
      constant_options(number));
}

void register_new_constants(Registry& m, const std::string& name, const Scalar& number) {
  m.impl(
      name,
      [number](Context& context, Value self, Dims size, MaybeDType dtype) {
        return filled(context, size, dtype.value_or(self.dtype()), number);
      },
      constant_options(number));
}

void register_filled(Registry& m) {
  register_constants(m, "empty.memory_format", 0);
  register_constants(m, "zeros", 0);
  register_constants(m, "_efficientzerotensor", 0);
  register_constants(m, "ones", 1);
  register_constants_like(m, "empty_like", 0);
  register_constants_like(m, "zeros_like", 0);
  register_constants_like(m, "ones_like", 1);
  register_new_constants(m, "new_empty", 0);
  register_new_constants(m, "new_zeros", 0);
  register_new_constants(m, "new_ones", 1);
  m.impl(
      {"empty_strided", "empty_permuted"},
      [](Context& context, Dims size, Dims, MaybeDType dtype) {
        return filled(context, size, output_dtype(dtype), 0);
      },
      constant_options(0));
  m.impl("full",
         [](Dims size, Value fill_value, MaybeDType dtype) {
           return filled(size, dtype.value_or(number_dtype(fill_value.dtype())), fill_value);
         },
         {.constant = graph::Constant::kArgument});
  m.impl("full_like",
         [](Value self, Value fill_value, MaybeDType dtype) {
           return filled(self.dims(), dtype.value_or(self.dtype()), fill_value);
         },
         {.constant = graph::Constant::kArgument});
  m.impl("new_full",
         [](Value self, Dims size, Value fill_value, MaybeDType dtype) {
           return filled(size, dtype.value_or(self.dtype()), fill_value);
         },
         {.constant = graph::Constant::kArgument});
  m.impl("scalar_tensor",
         [](Value s, MaybeDType dtype) { return filled({}, output_dtype(dtype), s); });
}

bool fits_float(const Scalar& number) {
  const double value = number.to<double>();
  return !std::isfinite(value) || std::abs(value) <= std::numeric_limits<float>::max();
}

// The dtype in which a sequence of `dtype` is computed.
DType sequence_dtype(const Scalar& start, const Scalar& step, DType dtype) {
  if (base::is_integral(dtype)) return DType::kInt64;
  return fits_float(start) && fits_float(step) ? accumulate_dtype(dtype) : DType::kFloat64;
}

void check_sequence(const char* kernel, DType dtype, bool takes_complex) {
  check_implemented(can_count(dtype) || (takes_complex && base::is_complex(dtype)), kernel, dtype);
}

// start + step * (0, 1, ..., count - 1).
Value arithmetic_sequence(Context& context, std::int64_t count, const Scalar& start,
                          const Scalar& step, DType dtype) {
  const Shape shape{sequence_dtype(start, step, dtype), {count}};
  const Value index = hlo::iota(context.builder, shape, 0);
  const Value scaled = hlo::multiply(index, full(context.builder, shape, step));
  return convert(hlo::add(scaled, full(context.builder, shape, start)), dtype);
}

// PyTorch counts integers in int64, and in float32 what is narrower.
void check_counts(const Scalar& number, DType dtype) {
  if (base::is_integral(dtype)) {
    const auto value = number.to<double>();
    check(!number.is_floating() || (value >= -0x1p63 && value < 0x1p63),
          "value cannot be converted to type int64_t without overflow");
  } else if (base::size_bytes(dtype) < 4) {
    check(fits_float(number), "value cannot be converted to type float without overflow");
  }
}

void check_bounds(double start, double end, double step) {
  check(step != 0, "step must be nonzero");
  check(std::isfinite(start) && std::isfinite(end), "unsupported range: ", start, " -> ", end);
  check(step > 0 ? end >= start : end <= start,
        "upper bound and lower bound inconsistent with step sign");
}

std::int64_t wrapped_difference(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}

// Of the least integer by -1 it is that integer, where a division ends the process.
std::int64_t wrapped_quotient(std::int64_t a, std::int64_t b) {
  return b == -1 ? wrapped_difference(0, a) : a / b;
}

std::int64_t arange_count(const Scalar& start, const Scalar& end, const Scalar& step, DType dtype) {
  check_bounds(start.to<double>(), end.to<double>(), step.to<double>());
  check_counts(start, dtype);
  check_counts(step, dtype);
  if (dtype == DType::kInt64) {
    check_counts(end, dtype);
    const auto size = step.to<std::int64_t>();
    if (size == 0) base::fail(base::ErrorKind::kValue, "step must be nonzero");
    const auto distance = wrapped_difference(end.to<std::int64_t>(), start.to<std::int64_t>());
    return wrapped_quotient(wrapped_difference(distance, (size > 0 ? 1 : -1) - size), size);
  }
  return static_cast<std::int64_t>(
      std::ceil((end.to<double>() - start.to<double>()) / step.to<double>()));
}

std::int64_t range_count(const Scalar& start, const Scalar& end, const Scalar& step, DType dtype) {
  for (const Scalar& number : {start, end, step}) check_counts(number, dtype);
  if (!base::is_integral(dtype)) {
    check_bounds(start.to<double>(), end.to<double>(), step.to<double>());
    return static_cast<std::int64_t>((end.to<double>() - start.to<double>()) / step.to<double>()) +
           1;
  }
  const auto first = start.to<std::int64_t>(), last = end.to<std::int64_t>();
  const auto size = step.to<std::int64_t>();
  check_bounds(static_cast<double>(first), static_cast<double>(last), static_cast<double>(size));
  return wrapped_difference(wrapped_quotient(wrapped_difference(last, first), size), -1);
}

Value arange(Context& context, const Scalar& start, const Scalar& end, const Scalar& step,
             MaybeDType dtype) {
  const bool is_integral = !start.is_floating() && !end.is_floating() && !step.is_floating();
  const DType out = is_integral ? dtype.value_or(DType::kInt64) : output_dtype(dtype);
  check_sequence("arange_cpu", out, false);
  return arithmetic_sequence(context, arange_count(start, end, step, out), start, step, out);
}

Value range(Context& context, const Scalar& start, const Scalar& end, const Scalar& step,
            MaybeDType dtype) {
  const DType out = output_dtype(dtype);
  check_sequence("range_cpu", out, false);
  return arithmetic_sequence(context, range_count(start, end, step, out), start, step, out);
}

DType linspace_dtype(MaybeDType dtype, Value start, Value end) {
  const bool is_complex = base::is_complex(start.dtype()) || base::is_complex(end.dtype());
  return is_complex ? dtype.value_or(number_dtype(DType::kComplex128)) : output_dtype(dtype);
}

// The points between two bounds in the dtype in which they are computed. Like PyTorch, the second
// half is counted back from the end, which makes both bounds exact.
Value linear_points(Context& context, Value start, Value end, std::int64_t steps, DType dtype) {
  check(start.rank() == 0 && end.rank() == 0,
        "linspace only supports 0-dimensional start and end tensors, but got start with ",
        start.rank(), " dimension(s) and end with ", end.rank(), " dimension(s).");
  check(steps >= 0, "number of steps must be non-negative");
  // Integral bounds are truncated first, the points between them last.
  const DType type = base::is_integral(dtype) ? DType::kFloat64 : accumulate_dtype(dtype);
  start = convert(convert(start, dtype), type);
  end = convert(convert(end, dtype), type);
  const Dims dims{steps};
  if (steps < 2) return broadcast_to(start, dims);
  hlo::Builder& builder = context.builder;
  // XLA multiplies by a constant's reciprocal, which would not reach integers that are to be met.
  const Value intervals = hlo::optimization_barrier({scalar(builder, type, steps - 1)})[0];
  const Value step = hlo::divide(hlo::subtract(end, start), intervals);
  const Value index = hlo::iota(builder, Shape{DType::kInt64, dims}, 0);
  const auto index_constant = [&](std::int64_t n) {
    return hlo::full(builder, Shape{DType::kInt64, dims}, n);
  };
  const Value from_end = hlo::subtract(index_constant(steps - 1), index);
  const Value steps_between = broadcast_to(step, dims);
  const Value rising =
      hlo::add(broadcast_to(start, dims), hlo::multiply(steps_between, convert(index, type)));
  const Value falling =
      hlo::subtract(broadcast_to(end, dims), hlo::multiply(steps_between, convert(from_end, type)));
  return hlo::select(hlo::lt(index, index_constant(steps / 2)), rising, falling);
}

Value widest(Value value) {
  return convert(value, base::is_complex(value.dtype()) ? DType::kComplex128 : DType::kFloat64);
}

void register_sequences(Registry& m) {
  m.impl("arange", [](Context& context, Scalar end, MaybeDType dtype) {
    return arange(context, 0, end, 1, dtype);
  });
  m.impl("arange.start", [](Context& context, Scalar start, Scalar end, MaybeDType dtype) {
    return arange(context, start, end, 1, dtype);
  });
  m.impl("arange.start_step",
         [](Context& context, Scalar start, Scalar end, Scalar step, MaybeDType dtype) {
           return arange(context, start, end, step, dtype);
         });
  m.impl("range", [](Context& context, Scalar start, Scalar end, MaybeDType dtype) {
    return range(context, start, end, 1, dtype);
  });
  m.impl("range.step", [](Context& context, Scalar start, Scalar end, Scalar step,
                          MaybeDType dtype) { return range(context, start, end, step, dtype); });
  m.impl({"linspace", "linspace.Tensor_Tensor", "linspace.Tensor_Scalar", "linspace.Scalar_Tensor"},
         [](Context& context, Value start, Value end, std::int64_t steps, MaybeDType dtype) {
           const DType out = linspace_dtype(dtype, start, end);
           check_sequence("linspace_cpu", out, true);
           return convert(linear_points(context, start, end, steps, out), out);
         });
  m.impl({"logspace", "logspace.Tensor_Tensor", "logspace.Tensor_Scalar", "logspace.Scalar_Tensor"},
         [](Context& context, Value start, Value end, std::int64_t steps, double base,
            MaybeDType dtype) {
           const DType out = linspace_dtype(dtype, start, end);
           check_sequence("logspace_cpu", out, true);
           Value points = linear_points(context, start, end, steps, out);
           // PyTorch does not round the exponent of a single point to the dtype.
           if (steps == 1) points = broadcast_to(widest(start), {1});
           return convert(hlo::power(full_like(points, base), points), out);
         });
}

Value eye(Context& context, std::int64_t rows, std::int64_t columns, MaybeDType dtype) {
  check(rows >= 0, "n must be greater or equal to 0, got ", rows);
  check(columns >= 0, "m must be greater or equal to 0, got ", columns);
  const Shape shape{DType::kInt32, {rows, columns}};
  const Value is_diagonal =
      hlo::eq(hlo::iota(context.builder, shape, 0), hlo::iota(context.builder, shape, 1));
  return convert(is_diagonal, output_dtype(dtype));
}

// The lower triangle of a matrix, row by row: rows that grow by one element each, from
// `first_length`, then full ones.
struct Triangle {
  std::int64_t first_row;
  std::int64_t first_length;
  std::int64_t growing_rows;
  std::int64_t growing_size;
  std::int64_t size;

  Triangle(std::int64_t rows, std::int64_t columns, std::int64_t offset) {
    first_row = std::clamp<std::int64_t>(-offset, 0, rows);
    first_length = std::clamp<std::int64_t>(first_row + 1 + offset, 0, columns);
    growing_rows = std::clamp<std::int64_t>(columns - first_length, 0, rows - first_row);
    growing_size = growing_rows * first_length + growing_rows * (growing_rows - 1) / 2;
    size = growing_size + (rows - first_row - growing_rows) * columns;
  }
};

// The rows and the columns of the elements, int64.
std::pair<Value, Value> lower_triangle(hlo::Builder& builder, std::int64_t rows,
                                       std::int64_t columns, std::int64_t offset) {
  const Triangle t(rows, columns, offset);
  const Shape shape{DType::kInt64, {t.size}};
  const auto number = [&](std::int64_t n) { return hlo::full(builder, shape, n); };
  const Value i = hlo::iota(builder, shape, 0);
  // Row r of the growing part starts at r * first_length + r * (r - 1) / 2. The root of that is
  // right but for rounding, so one step either way makes it exact.
  const auto start_of = [&](Value r) {
    const Value pairs = hlo::divide(hlo::multiply(r, hlo::subtract(r, number(1))), number(2));
    return hlo::add(hlo::multiply(r, number(t.first_length)), pairs);
  };
  const Shape real{DType::kFloat64, {t.size}};
  const double b = 2 * static_cast<double>(t.first_length) - 1;
  const Value discriminant =
      hlo::add(hlo::multiply(convert(i, DType::kFloat64), hlo::full(builder, real, 8.0)),
               hlo::full(builder, real, b * b));
  const Value root =
      hlo::multiply(hlo::subtract(hlo::sqrt(discriminant), hlo::full(builder, real, b)),
                    hlo::full(builder, real, 0.5));
  Value row = convert(hlo::floor(root), DType::kInt64);
  row = hlo::subtract(row, convert(hlo::gt(start_of(row), i), DType::kInt64));
  const Value next = hlo::add(row, number(1));
  row = hlo::add(row, convert(hlo::le(start_of(next), i), DType::kInt64));
  const Value column = hlo::subtract(i, start_of(row));
  const Value beyond = hlo::subtract(i, number(t.growing_size));
  const Value width = number(std::max<std::int64_t>(columns, 1));
  const Value is_growing = hlo::lt(i, number(t.growing_size));
  const Value full_row = hlo::add(hlo::divide(beyond, width), number(t.growing_rows));
  const Value out_row = hlo::add(hlo::select(is_growing, row, full_row), number(t.first_row));
  return {out_row, hlo::select(is_growing, column, hlo::remainder(beyond, width))};
}

Value stack_indices(Value rows, Value columns, DType dtype) {
  const Dims dims{1, rows.dim(0)};
  return convert(hlo::concatenate({hlo::reshape(rows, dims), hlo::reshape(columns, dims)}, 0),
                 dtype);
}

void check_triangle(std::int64_t row, std::int64_t col) {
  check(row >= 0, "row must be non-negative, got", row);
  check(col >= 0, "col must be non-negative, got", col);
}

// A window of which the sequence is one period, or the whole, computed in float64.
Value kaiser_window(Context& context, std::int64_t length, bool periodic, double beta,
                    MaybeDType dtype) {
  check(length >= 0,
        "kaiser_window requires non-negative window_length, got window_length=", length);
  const DType out = output_dtype(dtype);
  check(base::is_floating(out),
        "kaiser_window expects floating point dtypes, got: ", base::dtype_info(out).name);
  if (length == 1) return full(context.builder, {out, {length}}, 1);
  const double half = static_cast<double>(length - (periodic ? 0 : 1)) / 2;
  const Value x = (hlo::iota(context.builder, {DType::kFloat64, {length}}, 0) - half) / half;
  const Value reach = sqrt(max(1.0 - x * x, 0)) * std::abs(beta);
  return convert(bessel_i0(reach) / std::cyl_bessel_i(0.0, std::abs(beta)), out);
}

void register_windows(Registry& m) {
  m.impl("kaiser_window", [](Context& context, std::int64_t length, MaybeDType dtype) {
    return kaiser_window(context, length, true, 12, dtype);
  });
  m.impl("kaiser_window.periodic",
         [](Context& context, std::int64_t length, bool periodic, MaybeDType dtype) {
           return kaiser_window(context, length, periodic, 12, dtype);
         });
  m.impl("kaiser_window.beta",
         [](Context& context, std::int64_t length, bool periodic, double beta, MaybeDType dtype) {
           return kaiser_window(context, length, periodic, beta, dtype);
         });
}

DType dtype_of_indices(std::string_view name, MaybeDType dtype) {
  const DType out = dtype.value_or(DType::kInt64);
  check_implemented(out == DType::kInt32 || out == DType::kInt64, name, out);
  return out;
}

void register_matrices(Registry& m) {
  m.impl("eye", [](Context& context, std::int64_t n, MaybeDType dtype) {
    return eye(context, n, n, dtype);
  });
  m.impl("eye.m", [](Context& context, std::int64_t rows, std::int64_t columns, MaybeDType dtype) {
    return eye(context, rows, columns, dtype);
  });
  m.impl("tril_indices", [](Context& context, std::int64_t row, std::int64_t col,
                            std::int64_t offset, MaybeDType dtype) {
    const DType out = dtype_of_indices("tril_indices", dtype);
    check_triangle(row, col);
    const auto [rows, columns] = lower_triangle(context.builder, row, col, offset);
    return stack_indices(rows, columns, out);
  });
  // Turned by half a circle, an upper triangle is a lower one, listed backwards.
  m.impl("triu_indices", [](Context& context, std::int64_t row, std::int64_t col,
                            std::int64_t offset, MaybeDType dtype) {
    const DType out = dtype_of_indices("triu_indices", dtype);
    check_triangle(row, col);
    const auto [rows, columns] = lower_triangle(context.builder, row, col, col - row - offset);
    const auto turned = [](Value indices, std::int64_t size) {
      return hlo::subtract(full_like(indices, size - 1), hlo::reverse(indices, {0}));
    };
    return stack_indices(turned(rows, row), turned(columns, col), out);
  });
}

}  // namespace

void register_creation(Registry& m) {
  register_filled(m);
  register_sequences(m);
  register_windows(m);
  register_matrices(m);
}

}  // namespace torch_xla::ops

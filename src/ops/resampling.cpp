// Resampling to another size, one dimension after the other: nearest, linear, cubic and antialiased
// filters, and their gradients. Which inputs make an output, and with what weights, depends on
// sizes alone; the program computes it once, in tables, so that its text does not grow with the
// output. Few taps become gathers, many taps and all gradients a product with the matrix of the
// weights.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <optional>

#include "base/error.h"
#include "ops/expression.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/views.h"

namespace torch_xla::ops {
namespace {

using base::check;
using MaybeScale = std::optional<double>;

// output[o] = sum over t of weights[o][t] * input[first[o] + t], where places beyond an edge of the
// input are that at the edge.
struct Taps {
  std::int64_t input_size = 0;
  std::int64_t count = 0;    // per output
  std::int64_t repeats = 0;  // how often each input is repeated, if that is all; nothing follows
  Value first = {};          // [output], int64
  Value weights = {};        // [output, count]; without, each is 1

  std::int64_t output_size() const { return first.dim(0); }
  // [output, count], int64, not at the edge yet.
  Value places() const {
    const Dims table{output_size(), count};
    return hlo::add(hlo::broadcast_in_dim(first, table, {0}),
                    hlo::iota(first.builder(), {DType::kInt64, table}, 1));
  }
  Value indices() const {
    const DType narrow =
        input_size <= std::numeric_limits<std::int32_t>::max() ? DType::kInt32 : DType::kInt64;
    const Value all = places();
    return convert(min(max(all, 0), static_cast<double>(input_size - 1)), narrow);
  }
};

// How far in the input one step in the output goes. PyTorch works in float32 for float32 tensors,
// where rounding can decide which neighbour is nearest.
template <typename Real>
Real step_size(std::int64_t input, std::int64_t output, bool align_corners, MaybeScale scale) {
  if (align_corners) {
    return output > 1 ? static_cast<Real>(input - 1) / static_cast<Real>(output - 1) : Real(0);
  }
  if (scale.has_value() && *scale > 0) return static_cast<Real>(1.0 / *scale);
  return static_cast<Real>(input) / static_cast<Real>(output);
}

struct Resampling {
  bool align_corners = false;
  MaybeScale scale;
};

// A product, rounded before anything is added: the least of it and the greatest number is the same,
// but nothing that XLA or LLVM fuses. Indices and weights are computed in loops of their own, and
// would not fit if one of them rounded a position otherwise.
Value rounded(Value product) {
  const bool is_double = product.dtype() == DType::kFloat64;
  return min(product, is_double ? std::numeric_limits<double>::max()
                                : static_cast<double>(std::numeric_limits<float>::max()));
}

// One dimension to be resampled. Positions are computed in the type that PyTorch uses: float64 for
// float64 and bytes.
struct Line {
  hlo::Builder& builder;
  DType dtype;  // of positions
  std::int64_t input;
  std::int64_t output;
  Resampling how;

  double step() const {
    return dtype == DType::kFloat64 ? step_size<double>(input, output, how.align_corners, how.scale)
                                    : step_size<float>(input, output, how.align_corners, how.scale);
  }
  Value outputs() const { return hlo::iota(builder, {dtype, {output}}, 0); }
  Value centers() const { return rounded((outputs() + 0.5) * step()); }
  Value positions() const {
    return how.align_corners ? rounded(outputs() * step()) : centers() - 0.5;
  }
};

// Towards zero, int64.
Value as_indices(Value positions) { return convert(positions, DType::kInt64); }

// The columns, [output] each, side by side.
Value table_of(const hlo::Values& columns) {
  hlo::Values parts;
  for (const Value& column : columns) parts.push_back(insert_dim(column, 1));
  return hlo::concatenate(parts, 1);
}

// The size ratio when every output is a whole-number repeat of its input, else 0. What is nearest
// only grows, so that the ends of each repeat tell.
std::int64_t repeats_of(std::int64_t input, std::int64_t output, float step, float shift) {
  if (input == 0 || output == 0 || output % input != 0) return 0;
  const std::int64_t ratio = output / input;
  const auto nearest = [&](std::int64_t o) {
    const float position = std::floor((static_cast<float>(o) + shift) * step);
    return std::min(static_cast<std::int64_t>(position), input - 1);
  };
  for (std::int64_t i = 0; i < input; ++i) {
    if (nearest(i * ratio) != i || nearest((i + 1) * ratio - 1) != i) return 0;
  }
  return ratio;
}

// In float32 for every dtype.
Taps nearest_taps(Line line, float shift) {
  line.dtype = DType::kFloat32;
  line.how.align_corners = false;
  const auto step = static_cast<float>(line.step());
  const std::int64_t repeats = repeats_of(line.input, line.output, step, shift);
  if (repeats > 0) return {line.input, 1, repeats};
  const Value first = as_indices(floor((line.outputs() + shift) * step));
  return {line.input, 1, 0, first};
}

Taps floor_taps(const Line& line) { return nearest_taps(line, 0.0F); }
Taps exact_taps(const Line& line) { return nearest_taps(line, 0.5F); }

Taps linear_taps(const Line& line) {
  const Value position = max(line.positions(), 0);
  const Value first = min(as_indices(position), static_cast<double>(line.input - 1));
  const Value fraction = min(max(position - convert(first, line.dtype), 0), 1);
  return {line.input, 2, 0, first, table_of({1.0 - fraction, fraction})};
}

// The cubic convolution kernel with the given parameter: at distances up to 1, and from 1 to 2.
Value cubic_near(Value x, double a) { return ((x * (a + 2)) - (a + 3)) * x * x + 1.0; }
Value cubic_far(Value x, double a) { return ((x * a - 5 * a) * x + 8 * a) * x - 4 * a; }

Taps cubic_taps(const Line& line) {
  constexpr double a = -0.75;
  const Value position = line.positions();
  const Value index = min(as_indices(floor(position)), static_cast<double>(line.input - 1));
  const Value fraction = min(max(position - convert(index, line.dtype), 0), 1);
  const Value t = convert(fraction, DType::kFloat64);
  const Value weights = table_of(
      {cubic_far(t + 1.0, a), cubic_near(t, a), cubic_near(1.0 - t, a), cubic_far(2.0 - t, a)});
  return {line.input, 4, 0, index - 1.0, weights};
}

// A filter for antialiasing: its weight at a distance, and how far it reaches.
struct Filter {
  Value (*weight)(Value distance);
  double reach;
};

Value triangle_weight(Value x) { return max(1.0 - abs(x), 0); }

Value cubic_weight(Value x) {
  constexpr double a = -0.5;
  x = abs(x);
  return where(less(x, 1), cubic_near(x, a), where(less(x, 2), cubic_far(x, a), 0));
}

Value lanczos_weight(Value x) {
  constexpr double lobes = 3;
  const Value angle = where(equal(x, 0), 1, x * std::numbers::pi);
  const Value weight = sine(angle) / angle * sine(angle / lobes) / (angle / lobes);
  return where(equal(x, 0), 1, where(greater_equal(abs(x), lobes), 0, weight));
}

constexpr Filter kTriangle{triangle_weight, 1};
constexpr Filter kCubic{cubic_weight, 2};
constexpr Filter kLanczos{lanczos_weight, 3};

// A filter stretched over what one output covers when the size falls.
Taps filter_taps(const Line& line, const Filter& filter) {
  const double stretch = std::max(line.step(), 1.0);
  const double reach = filter.reach * stretch;
  const auto count = static_cast<std::int64_t>(std::ceil(reach)) * 2 + 1;
  const Dims dims{line.output, count};
  const Value center = line.centers();
  const Value first = max(as_indices(center - reach + 0.5), 0);
  const Value end = min(as_indices(center + reach + 0.5), static_cast<double>(line.input));
  Taps taps{line.input, count, 0, first};
  const Value places = taps.places();
  const Value distance =
      (convert(places, line.dtype) - hlo::broadcast_in_dim(center, dims, {0}) + 0.5) / stretch;
  const Value is_reached = less(places, hlo::broadcast_in_dim(end, dims, {0}));
  const Value weights = where(is_reached, filter.weight(convert(distance, DType::kFloat64)), 0);
  const Value sum = hlo::broadcast_in_dim(reduce_sum(weights, {1}), dims, {0});
  taps.weights = where(equal(sum, 0), 0, weights / sum);
  return taps;
}

using MakeTaps = std::function<Taps(const Line& line)>;

Taps taps_of(Value self, std::int64_t input, std::int64_t output, const Resampling& how,
             const MakeTaps& make) {
  const DType dtype = self.dtype();
  const bool is_double = dtype == DType::kFloat64 || dtype == DType::kUInt8;
  return make({self.builder(), is_double ? DType::kFloat64 : DType::kFloat32, input, output, how});
}

Dims split_dim(const Dims& dims, std::int64_t dim, std::int64_t outer, std::int64_t inner) {
  Dims out = with_dim(dims, dim, outer);
  out.insert(out.begin() + dim + 1, inner);
  return out;
}

Value repeat_dim(Value self, std::int64_t dim, std::int64_t ratio) {
  const Dims dims = split_dim(self.dims(), dim, self.dim(dim), ratio);
  Dims places = wrap_dims({}, self.rank() + 1);
  places.erase(places.begin() + dim + 1);
  return hlo::reshape(hlo::broadcast_in_dim(self, dims, places),
                      with_dim(self.dims(), dim, self.dim(dim) * ratio));
}

// The indices and the weights in the dtype, behind a barrier, so that simplifications do not pull
// them into the loops that use them.
struct Tables {
  Value indices;
  Value weights;
};
Tables tables_of(const Taps& taps, DType dtype) {
  if (!taps.weights) {
    const Value indices = hlo::optimization_barrier({taps.indices()})[0];
    return {indices, full(indices.builder(), {dtype, indices.dims()}, 1)};
  }
  const hlo::Values tables =
      hlo::optimization_barrier({taps.indices(), convert(taps.weights, dtype)});
  return {tables[0], tables[1]};
}

Value gather_taps(Value self, std::int64_t dim, const Taps& taps) {
  const Tables tables = tables_of(taps, self.dtype());
  const auto column = [](Value table, std::int64_t t) {
    return remove_dim(slice_dim(table, 1, t, t + 1), 1);
  };
  Value sum;
  for (std::int64_t t = 0; t < taps.count; ++t) {
    Value part = take_slices(self, dim, column(tables.indices, t));
    if (taps.count > 1) {
      part = part * hlo::broadcast_in_dim(column(tables.weights, t), part.dims(), {dim});
    }
    sum = sum ? sum + part : part;
  }
  return sum;
}

// The weights as a matrix, [output, input].
Value weight_matrix(const Taps& taps, DType dtype) {
  const Tables tables = tables_of(taps, dtype);
  const Dims dims{taps.output_size(), taps.input_size, taps.count};
  const Value position = hlo::iota(taps.first.builder(), {tables.indices.dtype(), dims}, 1);
  const Value is_tap = hlo::eq(position, hlo::broadcast_in_dim(tables.indices, dims, {0, 2}));
  const Value spread = hlo::broadcast_in_dim(tables.weights, dims, {0, 2});
  return reduce_sum(where(is_tap, spread, 0), {2});
}

// The sum over a dimension of `self` with one of the matrix.
Value contract(Value self, std::int64_t dim, Value matrix, std::int64_t matrix_dim) {
  hlo::DotDimensionNumbers numbers;
  numbers.lhs_contracting_dimensions = {dim};
  numbers.rhs_contracting_dimensions = {matrix_dim};
  const Value product =
      hlo::dot_general(self, matrix, numbers, std::nullopt, hlo::Precision::kHighest);
  return move_dim(product, self.rank() - 1, dim);
}

// With more taps than this a product with the matrix is cheaper.
constexpr std::int64_t kMaxGatheredTaps = 4;

Value resample_dim(Value self, std::int64_t dim, const Taps& taps) {
  if (taps.repeats == 1) return self;
  if (taps.repeats > 0) return repeat_dim(self, dim, taps.repeats);
  if (taps.count <= kMaxGatheredTaps) return gather_taps(self, dim, taps);
  return contract(self, dim, weight_matrix(taps, self.dtype()), 1);
}

Value gradient_of_dim(Value grad, std::int64_t dim, const Taps& taps) {
  if (taps.repeats == 1) return grad;
  if (taps.repeats > 0) {
    const Dims split = split_dim(grad.dims(), dim, taps.input_size, taps.repeats);
    return reduce_sum(hlo::reshape(grad, split), {dim + 1});
  }
  return contract(grad, dim, weight_matrix(taps, grad.dtype()), 0);
}

// The weights with those beyond an edge added to that at the edge.
Value merged_weights(const Taps& taps) {
  const Value places = taps.places();
  const auto last = static_cast<double>(taps.input_size - 1);
  const auto sum_where = [&](Value condition) {
    const Value sum = reduce_sum(where(condition, taps.weights, 0), {1});
    return hlo::broadcast_in_dim(sum, places.dims(), {0});
  };
  const Value is_low = less(places, 0);
  const Value is_high = greater(places, last);
  return where(is_low | is_high, 0, taps.weights) + where(equal(places, 0), sum_where(is_low), 0) +
         where(equal(places, last), sum_where(is_high), 0);
}

// The weights rounded to 16 bits, with as many of them after the point as the greatest allows.
Value rounded_to_fixed_point(Value weights) {
  std::vector<double> powers;
  for (int bits = 0; bits <= 22; ++bits) powers.push_back(std::ldexp(1.0, bits));
  const Value ones = hlo::constant(weights.builder(), {weights.dtype(), {std::ssize(powers)}},
                                   std::span<const double>(powers));
  const Value greatest = floor(ones * reduce_max(weights, {0, 1}) + 0.5);
  const Value one = reduce_max(where(less(greatest, 1 << 15), ones, 1), {0});
  return hlo::round_nearest_afz(weights * one) / one;
}

// Bytes are weighed in fixed point and rounded after each dimension, the last one first, as image
// libraries do.
Value resample_bytes(Value self, std::int64_t dim, Taps taps) {
  if (taps.count == 1 || taps.output_size() == 0) return resample_dim(self, dim, taps);
  taps.weights = rounded_to_fixed_point(merged_weights(taps));
  const Value out = resample_dim(convert(self, DType::kFloat32), dim, taps);
  const Value rounded = hlo::floor(hlo::add(out, full_like(out, 0.5)));
  hlo::Builder& builder = self.builder();
  return convert(hlo::clamp(scalar(builder, DType::kFloat32, 0), rounded,
                            scalar(builder, DType::kFloat32, 255)),
                 self.dtype());
}

using Scales = std::vector<MaybeScale>;

// Each size of the output is one of the input's after batch and channel.
void check_ranks(std::size_t input_rank, const Dims& output_size, const Scales& scales) {
  check(output_size.size() == scales.size(), "It is expected output_size equals to ", scales.size(),
        ", but got size ", output_size.size());
  check(input_rank == scales.size() + 2, "It is expected input_size equals to ", scales.size() + 2,
        ", but got size ", input_rank);
}

Value resample(Value self, const Dims& output_size, bool align_corners, const Scales& scales,
               const MakeTaps& make_taps) {
  check_ranks(self.dims().size(), output_size, scales);
  const DType dtype = self.dtype();
  const bool is_integral = base::is_integral(dtype);
  Value out = self;
  for (std::size_t i = output_size.size(); i-- > 0;) {
    const auto dim = static_cast<std::int64_t>(i) + 2;
    const Taps taps =
        taps_of(self, self.dim(dim), output_size[i], {align_corners, scales[i]}, make_taps);
    if (taps.count > 1 && !is_integral) out = convert(out, accumulate_dtype(dtype));
    out = is_integral ? resample_bytes(out, dim, taps) : resample_dim(out, dim, taps);
  }
  return convert(out, dtype);
}

Value resample_gradient(Value grad, const Dims& output_size, const Dims& input_size,
                        bool align_corners, const Scales& scales, const MakeTaps& make_taps) {
  check_ranks(input_size.size(), output_size, scales);
  check_ranks(grad.dims().size(), output_size, scales);
  const DType dtype = grad.dtype();
  Value out = convert(grad, accumulate_dtype(dtype));
  for (std::size_t i = 0; i < output_size.size(); ++i) {
    const Taps taps =
        taps_of(grad, input_size[i + 2], output_size[i], {align_corners, scales[i]}, make_taps);
    out = gradient_of_dim(out, static_cast<std::int64_t>(i) + 2, taps);
  }
  return convert(out, dtype);
}

// Operators over 1, 2 or 3 dimensions have as many scales, and some an `align_corners` before them.
void register_nearest(Registry& m, const std::string& name, const MakeTaps& make) {
  const auto full_name = [&](int rank) { return base::str(name, rank, "d"); };
  m.impl(full_name(1), [make](Value self, Dims size, MaybeScale w) {
    return resample(self, size, false, {w}, make);
  });
  m.impl(full_name(2), [make](Value self, Dims size, MaybeScale h, MaybeScale w) {
    return resample(self, size, false, {h, w}, make);
  });
  m.impl(full_name(3), [make](Value self, Dims size, MaybeScale d, MaybeScale h, MaybeScale w) {
    return resample(self, size, false, {d, h, w}, make);
  });
  m.impl(full_name(1) + "_backward", [make](Value grad, Dims size, Dims input, MaybeScale w) {
    return resample_gradient(grad, size, input, false, {w}, make);
  });
  m.impl(full_name(2) + "_backward",
         [make](Value grad, Dims size, Dims input, MaybeScale h, MaybeScale w) {
           return resample_gradient(grad, size, input, false, {h, w}, make);
         });
  m.impl(full_name(3) + "_backward",
         [make](Value grad, Dims size, Dims input, MaybeScale d, MaybeScale h, MaybeScale w) {
           return resample_gradient(grad, size, input, false, {d, h, w}, make);
         });
}

void register_planar(Registry& m, const std::string& name, const MakeTaps& make) {
  m.impl(name, [make](Value self, Dims size, bool align_corners, MaybeScale h, MaybeScale w) {
    return resample(self, size, align_corners, {h, w}, make);
  });
  m.impl(name + "_backward",
         [make](Value grad, Dims size, Dims input, bool align_corners, MaybeScale h, MaybeScale w) {
           return resample_gradient(grad, size, input, align_corners, {h, w}, make);
         });
}

void register_linear_and_trilinear(Registry& m, const MakeTaps& make) {
  m.impl("upsample_linear1d", [make](Value self, Dims size, bool align_corners, MaybeScale w) {
    return resample(self, size, align_corners, {w}, make);
  });
  m.impl("upsample_linear1d_backward",
         [make](Value grad, Dims size, Dims input, bool align_corners, MaybeScale w) {
           return resample_gradient(grad, size, input, align_corners, {w}, make);
         });
  m.impl("upsample_trilinear3d",
         [make](Value self, Dims size, bool align_corners, MaybeScale d, MaybeScale h,
                MaybeScale w) { return resample(self, size, align_corners, {d, h, w}, make); });
  m.impl("upsample_trilinear3d_backward",
         [make](Value grad, Dims size, Dims input, bool align_corners, MaybeScale d, MaybeScale h,
                MaybeScale w) {
           return resample_gradient(grad, size, input, align_corners, {d, h, w}, make);
         });
}

}  // namespace

void register_resampling(Registry& m) {
  const auto filter = [](const Filter& f) -> MakeTaps {
    return [f](const Line& line) { return filter_taps(line, f); };
  };
  register_nearest(m, "upsample_nearest", floor_taps);
  register_nearest(m, "_upsample_nearest_exact", exact_taps);
  register_linear_and_trilinear(m, linear_taps);
  register_planar(m, "upsample_bilinear2d", linear_taps);
  register_planar(m, "upsample_bicubic2d", cubic_taps);
  register_planar(m, "_upsample_bilinear2d_aa", filter(kTriangle));
  register_planar(m, "_upsample_bicubic2d_aa", filter(kCubic));
  register_planar(m, "_upsample_lanczos2d_aa", filter(kLanczos));
}

}  // namespace torch_xla::ops

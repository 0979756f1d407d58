// Resampling to another size, one dimension after the other: nearest, linear, cubic and antialiased
// filters, and their gradients. Which inputs make an output, and with what weights, depends on
// sizes alone, so it is worked out here and enters the program as constants: few taps become
// gathers, many taps and all gradients a product with the matrix of the weights.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <optional>
#include <utility>

#include "base/error.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/views.h"

namespace torch_xla::ops {
namespace {

using base::check;
using MaybeScale = std::optional<double>;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// output[o] = sum over t of weights[o][t] * input[indices[o][t]].
struct Taps {
  std::int64_t input_size = 0;
  std::int64_t output_size = 0;
  std::int64_t count = 0;  // per output
  std::vector<std::int64_t> indices;
  std::vector<double> weights;

  Taps(std::int64_t input, std::int64_t output, std::int64_t taps)
      : input_size(input), output_size(output), count(taps) {}
  void add(std::int64_t index, double weight) {
    indices.push_back(std::clamp<std::int64_t>(index, 0, input_size - 1));
    weights.push_back(weight);
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

template <typename Real>
Real source_position(Real step, std::int64_t o, bool align_corners, bool is_clamped) {
  if (align_corners) return step * static_cast<Real>(o);
  const Real position = step * (static_cast<Real>(o) + Real(0.5)) - Real(0.5);
  return is_clamped && position < 0 ? Real(0) : position;
}

struct Resampling {
  bool align_corners = false;
  MaybeScale scale;
};

Taps nearest_taps(std::int64_t input, std::int64_t output, const Resampling& r, float shift) {
  Taps taps(input, output, 1);
  const auto step = step_size<float>(input, output, false, r.scale);
  for (std::int64_t o = 0; o < output; ++o) {
    const auto position = std::floor((static_cast<float>(o) + shift) * step);
    taps.add(static_cast<std::int64_t>(position), 1);
  }
  return taps;
}

Taps floor_taps(std::int64_t input, std::int64_t output, const Resampling& r) {
  return nearest_taps(input, output, r, 0.0F);
}

Taps exact_taps(std::int64_t input, std::int64_t output, const Resampling& r) {
  return nearest_taps(input, output, r, 0.5F);
}

template <typename Real>
Taps linear_taps_in(std::int64_t input, std::int64_t output, const Resampling& r) {
  Taps taps(input, output, 2);
  const auto step = step_size<Real>(input, output, r.align_corners, r.scale);
  for (std::int64_t o = 0; o < output; ++o) {
    const Real position = source_position<Real>(step, o, r.align_corners, true);
    const auto index = std::min(static_cast<std::int64_t>(position), input - 1);
    const Real fraction = std::clamp<Real>(position - static_cast<Real>(index), Real(0), Real(1));
    taps.add(index, Real(1) - fraction);
    taps.add(index + 1, fraction);
  }
  return taps;
}

// The cubic convolution kernel with the given parameter: at distances up to 1, and from 1 to 2.
double cubic_near(double x, double a) { return ((a + 2) * x - (a + 3)) * x * x + 1; }
double cubic_far(double x, double a) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; }

template <typename Real>
Taps cubic_taps_in(std::int64_t input, std::int64_t output, const Resampling& r) {
  constexpr double a = -0.75;
  Taps taps(input, output, 4);
  const auto step = step_size<Real>(input, output, r.align_corners, r.scale);
  for (std::int64_t o = 0; o < output; ++o) {
    const Real position = source_position<Real>(step, o, r.align_corners, false);
    const auto index = std::min(static_cast<std::int64_t>(std::floor(position)), input - 1);
    const double t = std::clamp<double>(position - static_cast<Real>(index), 0, 1);
    taps.add(index - 1, cubic_far(t + 1, a));
    taps.add(index, cubic_near(t, a));
    taps.add(index + 1, cubic_near(1 - t, a));
    taps.add(index + 2, cubic_far(2 - t, a));
  }
  return taps;
}

// A filter for antialiasing: its weight at a distance, and how far it reaches.
struct Filter {
  double (*weight)(double distance);
  double reach;
};

double triangle_weight(double x) { return std::max(0.0, 1 - std::abs(x)); }

double cubic_weight(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return cubic_near(x, a);
  return x < 2 ? cubic_far(x, a) : 0;
}

double lanczos_weight(double x) {
  constexpr double lobes = 3;
  if (x == 0) return 1;
  if (std::abs(x) >= lobes) return 0;
  const double angle = std::numbers::pi * x;
  return std::sin(angle) / angle * std::sin(angle / lobes) / (angle / lobes);
}

constexpr Filter kTriangle{triangle_weight, 1};
constexpr Filter kCubic{cubic_weight, 2};
constexpr Filter kLanczos{lanczos_weight, 3};

// A filter stretched over what one output covers when the size falls.
template <typename Real>
Taps filter_taps_in(std::int64_t input, std::int64_t output, const Resampling& r,
                    const Filter& filter) {
  const auto step = step_size<Real>(input, output, r.align_corners, r.scale);
  const Real stretch = std::max<Real>(step, 1);
  const Real reach = static_cast<Real>(filter.reach) * stretch;
  const auto count = static_cast<std::int64_t>(std::ceil(reach)) * 2 + 1;
  Taps taps(input, output, count);
  for (std::int64_t o = 0; o < output; ++o) {
    const Real center = step * (static_cast<Real>(o) + Real(0.5));
    const auto first =
        std::max<std::int64_t>(static_cast<std::int64_t>(center - reach + Real(0.5)), 0);
    const auto end = std::min(static_cast<std::int64_t>(center + reach + Real(0.5)), input);
    std::vector<double> weights(at(count), 0.0);
    double sum = 0;
    for (std::int64_t t = 0; t < std::min(end - first, count); ++t) {
      const Real distance = (static_cast<Real>(t + first) - center + Real(0.5)) / stretch;
      weights[at(t)] = filter.weight(distance);
      sum += weights[at(t)];
    }
    for (std::int64_t t = 0; t < count; ++t) {
      taps.add(first + t, sum == 0 ? 0 : weights[at(t)] / sum);
    }
  }
  return taps;
}

using MakeTaps =
    std::function<Taps(DType, std::int64_t input, std::int64_t output, const Resampling&)>;

// The taps computed in the type that PyTorch uses for tensors of the dtype: float64 for bytes.
template <auto InFloat, auto InDouble, typename... Extra>
MakeTaps taps_by_dtype(Extra... extra) {
  return [=](DType dtype, std::int64_t input, std::int64_t output, const Resampling& r) {
    return dtype == DType::kFloat64 || dtype == DType::kUInt8 ? InDouble(input, output, r, extra...)
                                                              : InFloat(input, output, r, extra...);
  };
}

// One tap's index, or weight, for every output.
std::vector<std::int64_t> tap_indices(const Taps& taps, std::int64_t t) {
  std::vector<std::int64_t> out;
  for (std::int64_t o = 0; o < taps.output_size; ++o) {
    out.push_back(taps.indices[at(o * taps.count + t)]);
  }
  return out;
}
std::vector<double> tap_weights(const Taps& taps, std::int64_t t) {
  std::vector<double> out;
  for (std::int64_t o = 0; o < taps.output_size; ++o) {
    out.push_back(taps.weights[at(o * taps.count + t)]);
  }
  return out;
}

// The size ratio when every output is a whole-number repeat of its input, else 0.
std::int64_t repeats_of(const Taps& taps) {
  if (taps.count != 1 || taps.input_size == 0 || taps.output_size % taps.input_size != 0) return 0;
  const std::int64_t ratio = taps.output_size / taps.input_size;
  for (std::int64_t o = 0; o < taps.output_size; ++o) {
    if (taps.indices[at(o)] != o / ratio) return 0;
  }
  return ratio;
}

bool is_identity(const Taps& taps) { return repeats_of(taps) == 1; }

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

Value gather_taps(Value self, std::int64_t dim, const Taps& taps) {
  hlo::Builder& builder = self.builder();
  const Dims dims{taps.output_size};
  Value sum;
  for (std::int64_t t = 0; t < taps.count; ++t) {
    const std::vector<std::int64_t> tap = tap_indices(taps, t);
    const Value indices =
        hlo::constant(builder, Shape{DType::kInt32, dims}, std::span<const std::int64_t>(tap));
    Value part = take_slices(self, dim, indices);
    if (taps.count > 1) {
      const std::vector<double> factors = tap_weights(taps, t);
      const Value weights =
          hlo::constant(builder, Shape{self.dtype(), dims}, std::span<const double>(factors));
      part = hlo::multiply(part, hlo::broadcast_in_dim(weights, part.dims(), {dim}));
    }
    sum = sum ? hlo::add(sum, part) : part;
  }
  return sum;
}

// The weights as a matrix, [output, input].
Value weight_matrix(hlo::Builder& builder, const Taps& taps, DType dtype) {
  const Dims table{taps.output_size, taps.count};
  const Dims dims{taps.output_size, taps.input_size, taps.count};
  const Value weights = hlo::constant(builder, Shape{dtype, table}, std::span(taps.weights));
  const Value indices =
      hlo::constant(builder, Shape{DType::kInt32, table}, std::span(taps.indices));
  const Value position = hlo::iota(builder, Shape{DType::kInt32, dims}, 1);
  const Value is_tap = hlo::eq(position, hlo::broadcast_in_dim(indices, dims, {0, 2}));
  const Value spread = hlo::broadcast_in_dim(weights, dims, {0, 2});
  return reduce_sum(hlo::select(is_tap, spread, full_like(spread, 0)), {2});
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
  if (is_identity(taps)) return self;
  if (const std::int64_t ratio = repeats_of(taps); ratio > 0) return repeat_dim(self, dim, ratio);
  if (taps.count <= kMaxGatheredTaps) return gather_taps(self, dim, taps);
  return contract(self, dim, weight_matrix(self.builder(), taps, self.dtype()), 1);
}

Value gradient_of_dim(Value grad, std::int64_t dim, const Taps& taps) {
  if (is_identity(taps)) return grad;
  if (const std::int64_t ratio = repeats_of(taps); ratio > 0) {
    return reduce_sum(hlo::reshape(grad, split_dim(grad.dims(), dim, taps.input_size, ratio)),
                      {dim + 1});
  }
  return contract(grad, dim, weight_matrix(grad.builder(), taps, grad.dtype()), 0);
}

// Taps beyond an edge added to those at the edge.
void merge_taps(Taps& taps) {
  for (std::size_t i = 0; i < taps.indices.size(); ++i) {
    std::size_t first = i - i % at(taps.count);
    while (taps.indices[first] != taps.indices[i]) ++first;
    if (first < i) taps.weights[first] += std::exchange(taps.weights[i], 0);
  }
}

// The weights rounded to 16 bits, with as many of them after the point as the greatest allows.
void round_to_fixed_point(std::vector<double>& weights) {
  const double greatest = *std::max_element(weights.begin(), weights.end());
  double one = 1;
  while (one < (1 << 22) && std::floor(0.5 + greatest * one * 2) < (1 << 15)) one *= 2;
  for (double& weight : weights) weight = std::round(weight * one) / one;
}

// Bytes are weighed in fixed point and rounded after each dimension, the last one first, as image
// libraries do.
Value resample_bytes(Value self, std::int64_t dim, Taps taps) {
  if (taps.count == 1 || taps.output_size == 0) return resample_dim(self, dim, taps);
  merge_taps(taps);
  round_to_fixed_point(taps.weights);
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
        make_taps(dtype, self.dim(dim), output_size[i], Resampling{align_corners, scales[i]});
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
        make_taps(dtype, input_size[i + 2], output_size[i], Resampling{align_corners, scales[i]});
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
  const MakeTaps linear = taps_by_dtype<linear_taps_in<float>, linear_taps_in<double>>();
  const MakeTaps cubic = taps_by_dtype<cubic_taps_in<float>, cubic_taps_in<double>>();
  const auto filter = [](const Filter& f) -> MakeTaps {
    return taps_by_dtype<filter_taps_in<float>, filter_taps_in<double>>(f);
  };
  register_nearest(m, "upsample_nearest", taps_by_dtype<floor_taps, floor_taps>());
  register_nearest(m, "_upsample_nearest_exact", taps_by_dtype<exact_taps, exact_taps>());
  register_linear_and_trilinear(m, linear);
  register_planar(m, "upsample_bilinear2d", linear);
  register_planar(m, "upsample_bicubic2d", cubic);
  register_planar(m, "_upsample_bilinear2d_aa", filter(kTriangle));
  register_planar(m, "_upsample_bicubic2d_aa", filter(kCubic));
  register_planar(m, "_upsample_lanczos2d_aa", filter(kLanczos));
}

}  // namespace torch_xla::ops

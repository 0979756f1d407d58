// grid_sampler_2d and _3d and their gradients: an image read at positions that a tensor gives.
// Along each dimension a position touches one, two or four pixels (nearest, linear, cubic); the
// value is the sum over all their combinations, and both gradients are sums over the same ones.
#include <functional>
#include <tuple>

#include "base/error.h"
#include "ops/at.h"
#include "ops/expression.h"
#include "ops/reduce.h"
#include "ops/views.h"

namespace torch_xla::ops {
namespace {

// PyTorch's numbers.
enum class Interpolation : std::int64_t { kBilinear = 0, kNearest = 1, kBicubic = 2 };
enum class Padding : std::int64_t { kZeros = 0, kBorder = 1, kReflection = 2 };

struct Sampling {
  Interpolation interpolation;
  Padding padding;
  bool align_corners;
};

// A position along one dimension and how it changes with the coordinate that it was made of.
struct Position {
  Value value;
  Value slope;
};

Position from_coordinate(Value coordinate, std::int64_t size, bool align_corners) {
  const double extent = static_cast<double>(align_corners ? size - 1 : size);
  const Value scaled = (coordinate + 1.0) * (extent / 2);
  return {align_corners ? scaled : scaled - 0.5, hlo::full_like(coordinate, extent / 2)};
}

Position clipped(const Position& p, std::int64_t size) {
  const double last = static_cast<double>(size - 1);
  const Value is_inside = greater(p.value, 0.0) & less(p.value, last);
  // PyTorch's comparisons make the last pixel of a NaN.
  const Value value = where(less_equal(p.value, last), max(p.value, 0.0), last);
  return {value, where(is_inside, p.slope, 0.0)};
}

// Folded back at the edges until it is inside: at the outermost pixels' centers, or at their outer
// borders.
Position reflected(const Position& p, std::int64_t size, bool align_corners) {
  const double low = align_corners ? 0 : -0.5;
  const double span = static_cast<double>(align_corners ? size - 1 : size);
  if (span == 0) return {hlo::full_like(p.value, 0.0), hlo::full_like(p.value, 0.0)};
  const Value shifted = p.value - low;
  const Value is_negative = less(shifted, 0.0);
  const Value distance = hlo::abs(shifted);
  const Value extra = hlo::remainder(distance, hlo::full_like(distance, span));
  const Value flips = hlo::floor(distance / span);
  const Value is_even = equal(hlo::remainder(flips, hlo::full_like(flips, 2.0)), 0.0);
  const Value slope = where(is_negative, -p.slope, p.slope);
  return {where(is_even, extra + low, (span + low) - extra), where(is_even, slope, -slope)};
}

Position padded(const Position& p, std::int64_t size, const Sampling& options) {
  if (options.padding == Padding::kZeros) return p;
  if (options.padding == Padding::kBorder) return clipped(p, size);
  return clipped(reflected(p, size, options.align_corners), size);
}

// A pixel that a position touches: its index, whether it exists, its weight, and how the weight
// changes with the coordinate.
struct Tap {
  Value index;
  Value is_inside;
  Value weight;
  Value slope;
};

Tap tap_at(Value pixel, std::int64_t size, Value weight, Value slope) {
  const Value index = convert(pixel, DType::kInt32);
  const Value is_inside =
      greater_equal(pixel, 0.0) & less_equal(pixel, static_cast<double>(size - 1));
  // What is infinitely far away, or NaN, has a weight of NaN.
  return {index, is_inside, where(is_inside, weight, 0.0), where(is_inside, slope, 0.0)};
}

// The four weights of cubic convolution at a fraction, and their derivatives.
std::vector<std::pair<Value, Value>> cubic_weights(Value t) {
  constexpr double a = -0.75;
  const auto near = [](Value x) { return ((x * (a + 2)) - (a + 3)) * x * x + 1.0; };
  const auto near_slope = [](Value x) { return (x * (3 * (a + 2)) - 2 * (a + 3)) * x; };
  const auto far = [](Value x) { return ((x * a - 5 * a) * x + 8 * a) * x - 4 * a; };
  const auto far_slope = [](Value x) { return (x * (3 * a) - 10 * a) * x + 8 * a; };
  const Value before = t + 1.0;
  const Value after = 1.0 - t;
  const Value beyond = 2.0 - t;
  return {{far(before), far_slope(before)},
          {near(t), near_slope(t)},
          {near(after), -near_slope(after)},
          {far(beyond), -far_slope(beyond)}};
}

std::vector<Tap> cubic_taps(const Position& p, std::int64_t size, const Sampling& options) {
  const Value first = hlo::floor(p.value);
  std::vector<Tap> taps;
  double offset = -1;
  for (const auto& [weight, slope] : cubic_weights(p.value - first)) {
    const Position pixel = padded({first + offset, p.slope}, size, options);
    taps.push_back(tap_at(pixel.value, size, weight, slope * p.slope));
    offset += 1;
  }
  return taps;
}

std::vector<Tap> taps_of(Value coordinate, std::int64_t size, const Sampling& options) {
  const Position raw = from_coordinate(coordinate, size, options.align_corners);
  // Cubic interpolation pads each pixel that it reads, not the position.
  if (options.interpolation == Interpolation::kBicubic) return cubic_taps(raw, size, options);
  const Position p = padded(raw, size, options);
  if (options.interpolation == Interpolation::kNearest) {
    return {tap_at(hlo::round_nearest_even(p.value), size, hlo::full_like(p.value, 1.0),
                   hlo::full_like(p.value, 0.0))};
  }
  const Value first = hlo::floor(p.value);
  const Value fraction = p.value - first;
  return {tap_at(first, size, 1.0 - fraction, -p.slope),
          tap_at(first + 1.0, size, fraction, p.slope)};
}

// One combination of taps, one per dimension: the place in the flattened image.
struct Pixel {
  Value index;
  Value is_inside;
  std::vector<const Tap*> taps;

  Value weight() const {
    Value product = taps[0]->weight;
    for (std::size_t d = 1; d < taps.size(); ++d) product = product * taps[d]->weight;
    return product;
  }
  // How the weight changes with the coordinate of one dimension.
  Value slope(std::size_t dim) const {
    Value product = taps[dim]->slope;
    for (std::size_t d = 0; d < taps.size(); ++d) {
      if (d != dim) product = product * taps[d]->weight;
    }
    return product;
  }
};

// An image [N, C, pixels] and the taps of P points in it, along each dimension.
struct Sampler {
  Value image;
  Dims sizes;
  Dims point_dims;
  std::vector<std::vector<Tap>> taps;

  Sampler(Value input, Value grid, const Sampling& options) {
    const auto num_dims = input.rank() - 2;
    sizes.assign(input.dims().begin() + 2, input.dims().end());
    point_dims = leading_dims(grid.dims(), 1);
    point_dims.erase(point_dims.begin());
    const DType dtype = accumulate_dtype(input.dtype());
    const std::int64_t batch = input.dim(0);
    image = hlo::reshape(convert(input, dtype), {batch, input.dim(1), base::num_elements(sizes)});
    const Value points =
        hlo::reshape(convert(grid, dtype), {batch, base::num_elements(point_dims), num_dims});
    for (std::int64_t d = 0; d < num_dims; ++d) {
      // The last coordinate is that of the first dimension.
      const std::int64_t place = num_dims - 1 - d;
      const Value coordinate = remove_dim(slice_dim(points, 2, place, place + 1), 2);
      taps.push_back(taps_of(coordinate, sizes[at(d)], options));
    }
  }

  void for_each_pixel(const std::function<void(const Pixel&)>& visit) const {
    std::vector<const Tap*> chosen;
    choose(chosen, visit);
  }

  // The pixel's value in every channel, [N, C, P]; zero where there is none.
  Value read(const Pixel& pixel) const {
    hlo::GatherDimensionNumbers numbers;
    numbers.offset_dims = {1};
    numbers.collapsed_slice_dims = {2};
    numbers.operand_batching_dims = {0};
    numbers.start_indices_batching_dims = {0};
    numbers.start_index_map = {2};
    numbers.index_vector_dim = 2;
    const Value values = hlo::gather(image, pixel.index, numbers, {1, image.dim(1), 1});
    return where(over_channels(pixel.is_inside), values, 0.0);
  }

  // `updates`, [N, C, P], added to an image where the pixel exists.
  Value add_to(Value target, const Pixel& pixel, Value updates) const {
    hlo::ScatterDimensionNumbers numbers;
    numbers.update_window_dims = {1};
    numbers.inserted_window_dims = {2};
    numbers.input_batching_dims = {0};
    numbers.scatter_indices_batching_dims = {0};
    numbers.scatter_dims_to_operand_dims = {2};
    numbers.index_vector_dim = 2;
    const Value outside = hlo::full_like(pixel.index, image.dim(2));
    return hlo::scatter(target, where(pixel.is_inside, pixel.index, outside), updates, numbers,
                        hlo::add);
  }

  Value over_channels(Value points) const {
    return hlo::broadcast_in_dim(points, {image.dim(0), image.dim(1), points.dim(1)}, {0, 2});
  }

 private:
  void choose(std::vector<const Tap*>& chosen,
              const std::function<void(const Pixel&)>& visit) const {
    if (chosen.size() < taps.size()) {
      for (const Tap& tap : taps[chosen.size()]) {
        chosen.push_back(&tap);
        choose(chosen, visit);
        chosen.pop_back();
      }
      return;
    }
    Pixel pixel{chosen[0]->index, chosen[0]->is_inside, chosen};
    for (std::size_t d = 1; d < chosen.size(); ++d) {
      const Value row = hlo::multiply(pixel.index, hlo::full_like(pixel.index, sizes[d]));
      pixel.index = hlo::add(row, chosen[d]->index);
      pixel.is_inside = pixel.is_inside & chosen[d]->is_inside;
    }
    visit(pixel);
  }
};

void check_grid(Value input, Value grid) {
  const std::int64_t rank = input.rank();
  base::check(rank == 4 || rank == 5,
              "grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, "
              "but got input with sizes ",
              base::to_string(input.dims()), " and grid with sizes ", base::to_string(grid.dims()));
  base::check(grid.rank() == rank && grid.dim(rank - 1) == rank - 2,
              "grid_sampler(): expected grid to have size ", rank - 2,
              " in last dimension, but got grid with sizes ", base::to_string(grid.dims()));
}

Value sample(Value input, Value grid, const Sampling& options) {
  check_grid(input, grid);
  const Sampler sampler(input, grid, options);
  Value sum;
  sampler.for_each_pixel([&](const Pixel& pixel) {
    const Value part = sampler.read(pixel) * sampler.over_channels(pixel.weight());
    sum = sum ? sum + part : part;
  });
  Dims dims{input.dim(0), input.dim(1)};
  dims.insert(dims.end(), sampler.point_dims.begin(), sampler.point_dims.end());
  return convert(hlo::reshape(sum, dims), input.dtype());
}

std::tuple<Value, Value> sample_gradients(Value grad, Value input, Value grid,
                                          const Sampling& options,
                                          const std::vector<bool>& output_mask) {
  const Sampler sampler(input, grid, options);
  const Dims flat{input.dim(0), input.dim(1), base::num_elements(sampler.point_dims)};
  const Value wide = hlo::reshape(convert(grad, sampler.image.dtype()), flat);
  Value image_gradient = full_like(sampler.image, 0);
  std::vector<Value> slopes(sampler.taps.size());
  sampler.for_each_pixel([&](const Pixel& pixel) {
    if (output_mask[0]) {
      const Value updates = wide * sampler.over_channels(pixel.weight());
      image_gradient = sampler.add_to(image_gradient, pixel, updates);
    }
    if (!output_mask[1]) return;
    const Value match = reduce_sum(sampler.read(pixel) * wide, {1});
    for (std::size_t d = 0; d < slopes.size(); ++d) {
      const Value part = match * pixel.slope(d);
      slopes[d] = slopes[d] ? slopes[d] + part : part;
    }
  });
  std::tuple<Value, Value> out;
  if (output_mask[0]) {
    std::get<0>(out) = convert(hlo::reshape(image_gradient, input.dims()), input.dtype());
  }
  if (output_mask[1]) {
    hlo::Values parts;
    for (auto slope = slopes.rbegin(); slope != slopes.rend(); ++slope) {
      parts.push_back(insert_dim(*slope, 2));
    }
    std::get<1>(out) = convert(hlo::reshape(hlo::concatenate(parts, 2), grid.dims()), grid.dtype());
  }
  return out;
}

}  // namespace

void register_grid_sampler(Registry& m) {
  m.impl({"grid_sampler_2d", "grid_sampler_3d"},
         [](Value input, Value grid, std::int64_t interpolation_mode, std::int64_t padding_mode,
            bool align_corners) {
           return sample(input, grid,
                         {Interpolation{interpolation_mode}, Padding{padding_mode}, align_corners});
         });
  m.impl({"grid_sampler_2d_backward", "grid_sampler_3d_backward"},
         [](Value grad_output, Value input, Value grid, std::int64_t interpolation_mode,
            std::int64_t padding_mode, bool align_corners, std::vector<bool> output_mask) {
           return sample_gradients(
               grad_output, input, grid,
               {Interpolation{interpolation_mode}, Padding{padding_mode}, align_corners},
               output_mask);
         });
}

}  // namespace torch_xla::ops

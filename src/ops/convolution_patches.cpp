// Convolutions as matrix products: the input's patches, one per output position, become the columns
// of a matrix. XLA's CPU backend reorders weights for every call of its convolution, and takes a
// slow path where the kernel is larger than the image; so where the weight outweighs the patches,
// as in the last stages of a ResNet, this is up to 50 times as fast. So are (by 3 to 4 times)
// images of one channel, which are multiplied one by one where they lie. Elsewhere writing the
// patches costs more than it saves.
#include <numeric>

#include "ops/convolution.h"
#include "ops/expression.h"
#include "ops/linear_algebra.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

// More slices than this cost too much to compile.
constexpr std::int64_t kMostSlices = 64;
// With at most as many inputs to an output position, each image is multiplied by itself.
constexpr std::int64_t kThinPatch = 16;

// Calls `f` with every position in the kernel times the dilation, in row-major order.
template <typename F>
void for_each_offset(const Dims& kernel, const ConvolutionGeometry& g, const F& f) {
  Dims position(kernel.size(), 0);
  for (std::int64_t n = base::num_elements(kernel); n > 0; --n) {
    Dims offset;
    for (std::size_t i = 0; i < kernel.size(); ++i) offset.push_back(position[i] * g.dilation[i]);
    f(offset);
    for (std::size_t i = kernel.size(); i-- > 0;) {
      if (++position[i] < kernel[i]) break;
      position[i] = 0;
    }
  }
}

// [A, B, ...] to [B, A, ...].
Value swap_first(Value value) {
  Dims permutation(value.dims().size());
  std::iota(permutation.begin(), permutation.end(), 0);
  std::swap(permutation[0], permutation[1]);
  return hlo::transpose(value, permutation);
}

Dims joined(Dims first, const Dims& rest) {
  first.insert(first.end(), rest.begin(), rest.end());
  return first;
}

// [A, B, input] to [A, B, output] for every kernel position, as a new dimension `axis`.
Value windows(Value input, const Dims& kernel, const Dims& output, const ConvolutionGeometry& g,
              std::int64_t axis) {
  Dims low = {0, 0};
  Dims high = {0, 0};
  const Dims sizes = spatial_dims(input);
  for (std::size_t i = 0; i < kernel.size(); ++i) {
    const std::int64_t needed = (output[i] - 1) * g.stride[i] + g.extent(kernel, i);
    low.push_back(g.padding[i]);
    high.push_back(std::max<std::int64_t>(needed - sizes[i] - g.padding[i], 0));
  }
  const Value padded = hlo::pad(input, scalar(input.builder(), input.dtype(), 0), low, high);
  hlo::Values parts;
  for_each_offset(kernel, g, [&](const Dims& offset) {
    Dims limit = {padded.dim(0), padded.dim(1)};
    for (std::size_t i = 0; i < kernel.size(); ++i) {
      limit.push_back(offset[i] + (output[i] - 1) * g.stride[i] + 1);
    }
    const Value slice = hlo::slice(padded, joined({0, 0}, offset), limit, joined({1, 1}, g.stride));
    Dims dims = slice.dims();
    dims.insert(dims.begin() + axis, 1);
    parts.push_back(hlo::reshape(slice, dims));
  });
  return parts.size() == 1 ? parts[0] : hlo::concatenate(parts, axis);
}

// [N, C, input] to [C * kernel positions, N * output positions].
Value patches(Value input, const Dims& kernel, const Dims& output, const ConvolutionGeometry& g) {
  return hlo::reshape(
      windows(swap_first(input), kernel, output, g, 1),
      {input.dim(1) * base::num_elements(kernel), input.dim(0) * base::num_elements(output)});
}

// [N, C, input] to [N, C * kernel positions, output positions].
Value patches_per_image(Value input, const Dims& kernel, const Dims& output,
                        const ConvolutionGeometry& g) {
  return hlo::reshape(
      windows(input, kernel, output, g, 2),
      {input.dim(0), input.dim(1) * base::num_elements(kernel), base::num_elements(output)});
}

Value as_matrix(Value weight) {
  return hlo::reshape(weight, {weight.dim(0), weight.num_elements() / weight.dim(0)});
}

}  // namespace

ConvolutionForm best_form(std::string_view platform, const Dims& input, const Dims& weight,
                          const Dims& output, const ConvolutionGeometry& geometry) {
  if (platform != "cpu" || geometry.groups != 1) return ConvolutionForm::kConvolution;
  const auto positions = [](const Dims& dims) {
    return base::num_elements(Dims(dims.begin() + 2, dims.end()));
  };
  const std::int64_t kernel = positions(weight);
  if (kernel > kMostSlices) return ConvolutionForm::kConvolution;
  const bool is_small_image = kernel > std::min(positions(input), positions(output));
  const std::int64_t patch_elements = weight[1] * kernel * output[0] * positions(output);
  if (is_small_image || base::num_elements(weight) >= patch_elements) {
    return ConvolutionForm::kPatches;
  }
  return weight[1] * kernel <= kThinPatch ? ConvolutionForm::kPatchesPerImage
                                          : ConvolutionForm::kConvolution;
}

Value patches_correlate(Value input, Value weight, const Dims& output,
                        const ConvolutionGeometry& geometry, ConvolutionForm form) {
  const Dims kernel = spatial_dims(weight);
  const Value matrix = as_matrix(weight);
  if (form == ConvolutionForm::kPatchesPerImage) {
    const Value columns = patches_per_image(input, kernel, output, geometry);
    const Value repeated = broadcast_to(matrix, joined({input.dim(0)}, matrix.dims()));
    const Value product = contract(repeated, columns, {{0}, {0}, {2}, {1}});
    return hlo::reshape(product, joined({input.dim(0), weight.dim(0)}, output));
  }
  const Value columns = patches(input, kernel, output, geometry);
  const Value product = contract(matrix, columns, {{}, {}, {1}, {0}});
  return swap_first(hlo::reshape(product, joined({weight.dim(0), input.dim(0)}, output)));
}

Value patches_adjoint_input(Value output, Value weight, const Dims& input,
                            const ConvolutionGeometry& g) {
  const std::int64_t channels = weight.dim(1);
  const std::int64_t batch = output.dim(0);
  const Dims kernel = spatial_dims(weight);
  const Dims sizes = spatial_dims(output);
  const Value rows =
      hlo::reshape(swap_first(output), {output.dim(1), batch * base::num_elements(sizes)});
  const Value columns = hlo::reshape(contract(as_matrix(weight), rows, {{}, {}, {0}, {0}}),
                                     {channels, base::num_elements(kernel), rows.dim(1)});
  const Value zero = scalar(columns.builder(), columns.dtype(), 0);
  Value sum;
  std::int64_t position = 0;
  for_each_offset(kernel, g, [&](const Dims& offset) {
    const Value slice =
        hlo::slice(columns, {0, position, 0}, {channels, position + 1, columns.dim(2)}, {1, 1, 1});
    Dims low = {0, 0};
    Dims high = {0, 0};
    Dims interior = {0, 0};
    for (std::size_t i = 0; i < kernel.size(); ++i) {
      const std::int64_t spread = (sizes[i] - 1) * g.stride[i] + 1;
      low.push_back(offset[i] - g.padding[i]);
      high.push_back(input[i] - spread - low.back());
      interior.push_back(g.stride[i] - 1);
    }
    const Value term =
        hlo::pad(hlo::reshape(slice, joined({channels, batch}, sizes)), zero, low, high, interior);
    sum = sum ? sum + term : term;
    ++position;
  });
  return swap_first(sum);
}

Value patches_adjoint_weight(Value input, Value output, const Dims& kernel,
                             const ConvolutionGeometry& geometry, ConvolutionForm form) {
  const Dims sizes = spatial_dims(output);
  const Dims weight = joined({output.dim(1), input.dim(1)}, kernel);
  if (form == ConvolutionForm::kPatchesPerImage) {
    const Value columns = patches_per_image(input, kernel, sizes, geometry);
    const Value rows = hlo::reshape(output, {output.dim(0), output.dim(1), columns.dim(2)});
    const Value products = contract(rows, columns, {{0}, {0}, {2}, {2}});
    return hlo::reshape(reduce_sum(products, {0}), weight);
  }
  const Value columns = patches(input, kernel, sizes, geometry);
  const Value rows = hlo::reshape(swap_first(output), {output.dim(1), columns.dim(1)});
  return hlo::reshape(contract(rows, columns, {{}, {}, {1}, {1}}), weight);
}

}  // namespace torch_xla::ops

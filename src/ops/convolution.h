// The linear maps that convolutions are made of, in two forms: as one StableHLO convolution
// (convolution.cpp) and as a matrix product with patches of the input (convolution_patches.cpp).
#pragma once

#include "ops/registry.h"

namespace torch_xla::ops {

// The arguments that a convolution and its gradient share. Lists have one number per dimension.
struct ConvolutionGeometry {
  Dims stride;
  Dims padding;
  Dims dilation;
  bool transposed = false;
  Dims output_padding;
  std::int64_t groups = 1;

  std::size_t rank() const { return stride.size(); }
  // What a kernel covers along dimension `i`, its gaps included.
  std::int64_t extent(const Dims& kernel, std::size_t i) const {
    return dilation[i] * (kernel[i] - 1) + 1;
  }
};

// The sizes after batch and channels.
Dims spatial_dims(const Value& value);

// How the maps between input [N, C, input], weight [O, C, kernel] and output [N, O, output] are
// written.
enum class ConvolutionForm : std::uint8_t {
  kConvolution,      // as StableHLO's operation
  kPatches,          // as one matrix product over all images
  kPatchesPerImage,  // as one matrix product per image; not for the adjoint in the input
  kCall,             // as a call of a host kernel (convolution_call.cpp)
};
ConvolutionForm best_form(std::string_view platform, const Dims& input, const Dims& weight,
                          const Dims& output, const ConvolutionGeometry& geometry);

// Input and weight to output, in the dtype of accumulation; and the adjoints of that in the input
// and in the weight. All by patches, for groups = 1.
Value patches_correlate(Value input, Value weight, const Dims& output,
                        const ConvolutionGeometry& geometry, ConvolutionForm form);
Value patches_adjoint_input(Value output, Value weight, const Dims& input,
                            const ConvolutionGeometry& geometry);
Value patches_adjoint_weight(Value input, Value output, const Dims& kernel,
                             const ConvolutionGeometry& geometry, ConvolutionForm form);

// The same maps as calls of host kernels, for floating dtypes and any number of groups.
Value called_correlate(const Context& context, Value input, Value weight, const Dims& output,
                       const ConvolutionGeometry& geometry);
Value called_adjoint_input(const Context& context, Value output, Value weight, const Dims& input,
                           const ConvolutionGeometry& geometry);
Value called_adjoint_weight(const Context& context, Value input, Value output, const Dims& kernel,
                            const ConvolutionGeometry& geometry);

}  // namespace torch_xla::ops

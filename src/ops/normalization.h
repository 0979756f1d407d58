// Normalizations by calls of kernels of ours on the host, where these are better than what XLA
// makes (normalization_call.cpp; normalization.cpp has the lowerings).
#pragma once

#include <initializer_list>
#include <optional>
#include <tuple>
#include <vector>

#include "ops/registry.h"

namespace torch_xla::ops {

struct Parameters {
  std::optional<Value> weight;
  std::optional<Value> bias;
};
using Others = std::initializer_list<std::optional<Value>>;

// Whether the input is for a call. The kernels take the others in its dtype only.
bool is_layer_norm_called(const Context& context, Value input, Others others);
bool is_group_norm_called(const Context& context, Value input, const Parameters& parameters);

// The result, and mean and reciprocal deviation of each row, of the sizes `statistics`.
std::tuple<Value, Value, Value> called_layer_norm(Value input, const Dims& statistics,
                                                  const Parameters& parameters, double eps);
// The result, and the reciprocal of each row's root mean square.
std::tuple<Value, Value> called_rms_norm(Value input, const Dims& statistics,
                                         const std::optional<Value>& weight, double eps);
// The same of each group: `statistics` are batch and groups, `space` is the size of a channel.
std::tuple<Value, Value, Value> called_group_norm(Value input, const Dims& statistics,
                                                  const Parameters& parameters, std::int64_t space,
                                                  double eps);
// The gradients of input, weight and bias, where `mask` asks for them.
std::tuple<Value, Value, Value> called_layer_norm_backward(Value grad_out, Value input, Value mean,
                                                           Value rstd,
                                                           const std::optional<Value>& weight,
                                                           const Dims& normalized_shape,
                                                           const std::vector<bool>& mask);

}  // namespace torch_xla::ops

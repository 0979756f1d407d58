// Layer normalization by calls of kernels of ours on the host, where these are better than what XLA
// makes (layer_norm_call.cpp; normalization.cpp has the lowerings).
#pragma once

#include <initializer_list>
#include <optional>
#include <tuple>
#include <vector>

#include "ops/registry.h"

namespace torch_xla::ops {

// Whether the input is for a call. The kernels take the others in its dtype only.
bool is_layer_norm_called(const Context& context, Value input,
                          std::initializer_list<std::optional<Value>> others);

// The result, and mean and reciprocal deviation of each row, of the sizes `statistics`.
std::tuple<Value, Value, Value> called_layer_norm(Value input, const Dims& statistics,
                                                  const std::optional<Value>& weight,
                                                  const std::optional<Value>& bias, double eps);
// The gradients of input, weight and bias, where `mask` asks for them.
std::tuple<Value, Value, Value> called_layer_norm_backward(Value grad_out, Value input, Value mean,
                                                           Value rstd,
                                                           const std::optional<Value>& weight,
                                                           const Dims& normalized_shape,
                                                           const std::vector<bool>& mask);

}  // namespace torch_xla::ops

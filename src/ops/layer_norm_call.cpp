// Layer normalization as calls of kernels of ours on the host (src/aten/layer_norm_kernel.cpp).
#include "ops/layer_norm.h"

#include <algorithm>

namespace torch_xla::ops {
namespace {

// Of float32 XLA fuses what stands around, which is worth more while the rows are in a cache.
constexpr std::int64_t kLeastOfFloats = 1 << 19;
constexpr std::int64_t kLeastOfDoubles = 4096;

}  // namespace

bool is_layer_norm_called(const Context& context, Value input,
                          std::initializer_list<std::optional<Value>> others) {
  const DType dtype = input.dtype();
  const std::int64_t least = dtype == DType::kFloat64 ? kLeastOfDoubles : kLeastOfFloats;
  return context.has_host_kernels && input.num_elements() >= least &&
         (dtype == DType::kFloat64 || dtype == DType::kFloat32) &&
         std::ranges::all_of(others, [&](const std::optional<Value>& v) {
           return !v.has_value() || v->dtype() == dtype;
         });
}

std::tuple<Value, Value, Value> called_layer_norm(Value input, const Dims& statistics,
                                                  const std::optional<Value>& weight,
                                                  const std::optional<Value>& bias, double eps) {
  hlo::Values operands = {input};
  if (weight.has_value()) operands.push_back(*weight);
  if (bias.has_value()) operands.push_back(*bias);
  const Shape numbers{input.dtype(), statistics};
  hlo::CustomCall call;
  call.call_target_name = "torch_xla.layer_norm";
  call.results = {input.type(), numbers, numbers};
  call.backend_config = {
      {"eps", eps}, {"has_weight", weight.has_value()}, {"has_bias", bias.has_value()}};
  const hlo::Values results = hlo::custom_call(operands, call);
  return {results[0], results[1], results[2]};
}

std::tuple<Value, Value, Value> called_layer_norm_backward(Value grad_out, Value input, Value mean,
                                                           Value rstd,
                                                           const std::optional<Value>& weight,
                                                           const Dims& normalized_shape,
                                                           const std::vector<bool>& mask) {
  hlo::Values operands = {grad_out, input, mean, rstd};
  if (weight.has_value()) operands.push_back(*weight);
  const Shape parameter{input.dtype(), normalized_shape};
  hlo::CustomCall call;
  call.call_target_name = "torch_xla.layer_norm_backward";
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (mask[i]) call.results.push_back(i == 0 ? input.type() : parameter);
  }
  call.backend_config = {{"mask", Dims(mask.begin(), mask.end())}};
  const hlo::Values results = hlo::custom_call(operands, call);
  std::size_t next = 0;
  const auto result = [&](std::size_t i) { return mask[i] ? results[next++] : Value(); };
  const Value first = result(0);
  const Value second = result(1);
  return {first, second, result(2)};
}

}  // namespace torch_xla::ops

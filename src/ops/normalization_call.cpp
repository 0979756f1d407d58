// Normalizations as calls of kernels of ours on the host (src/aten/normalization_kernels.cpp).
#include "ops/normalization.h"

#include <algorithm>

namespace torch_xla::ops {
namespace {

constexpr std::int64_t kLeastElements = 4096;
// Of float32 XLA fuses what stands around, which is worth more while the rows are in a cache.
constexpr std::int64_t kLeastOfFloatRows = 1 << 16;

hlo::Values call(const char* name, Value input, const Dims& statistics, std::size_t num_statistics,
                 const Parameters& parameters, double eps, const hlo::Attributes& attributes = {}) {
  hlo::Values operands = {input};
  if (parameters.weight.has_value()) operands.push_back(*parameters.weight);
  if (parameters.bias.has_value()) operands.push_back(*parameters.bias);
  hlo::CustomCall custom_call;
  custom_call.call_target_name = name;
  custom_call.results = {input.type()};
  custom_call.results.resize(1 + num_statistics, Shape{input.dtype(), statistics});
  custom_call.backend_config = {{"eps", eps},
                                {"has_weight", parameters.weight.has_value()},
                                {"has_bias", parameters.bias.has_value()}};
  for (const auto& attribute : attributes) custom_call.backend_config.push_back(attribute);
  return hlo::custom_call(operands, custom_call);
}

bool is_called(const Context& context, Value input, Others others) {
  const DType dtype = input.dtype();
  return context.has_host_kernels && input.num_elements() >= kLeastElements &&
         (dtype == DType::kFloat64 || dtype == DType::kFloat32) &&
         std::ranges::all_of(others, [&](const std::optional<Value>& v) {
           return !v.has_value() || v->dtype() == dtype;
         });
}

}  // namespace

bool is_layer_norm_called(const Context& context, Value input, Others others) {
  return is_called(context, input, others) &&
         (input.dtype() != DType::kFloat32 || input.num_elements() >= kLeastOfFloatRows);
}

bool is_group_norm_called(const Context& context, Value input, const Parameters& parameters) {
  return is_called(context, input, {parameters.weight, parameters.bias});
}

std::tuple<Value, Value, Value> called_layer_norm(Value input, const Dims& statistics,
                                                  const Parameters& parameters, double eps) {
  const hlo::Values results =
      call("torch_xla.layer_norm", input, statistics, /*num_statistics=*/2, parameters, eps);
  return {results[0], results[1], results[2]};
}

std::tuple<Value, Value> called_rms_norm(Value input, const Dims& statistics,
                                         const std::optional<Value>& weight, double eps) {
  const hlo::Values results = call("torch_xla.rms_norm", input, statistics, /*num_statistics=*/1,
                                   {weight, std::nullopt}, eps);
  return {results[0], results[1]};
}

std::tuple<Value, Value, Value> called_group_norm(Value input, const Dims& statistics,
                                                  const Parameters& parameters, std::int64_t space,
                                                  double eps) {
  const hlo::Values results =
      call("torch_xla.group_norm", input, statistics, /*num_statistics=*/2, parameters, eps,
           {{"groups", statistics.back()}, {"space", space}});
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
  hlo::CustomCall custom_call;
  custom_call.call_target_name = "torch_xla.layer_norm_backward";
  for (std::size_t i = 0; i < mask.size(); ++i) {
    if (mask[i]) custom_call.results.push_back(i == 0 ? input.type() : parameter);
  }
  custom_call.backend_config = {{"mask", Dims(mask.begin(), mask.end())}};
  const hlo::Values results = hlo::custom_call(operands, custom_call);
  std::size_t next = 0;
  const auto result = [&](std::size_t i) { return mask[i] ? results[next++] : Value(); };
  const Value first = result(0);
  const Value second = result(1);
  return {first, second, result(2)};
}

}  // namespace torch_xla::ops

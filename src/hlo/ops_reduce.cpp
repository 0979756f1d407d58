// Reductions, windows, sort and batch normalisation.
#include <array>

#include "hlo/checks.h"
#include "hlo/partitioned.h"
#include "hlo/text.h"
#include "hlo/window.h"

namespace torch_xla::hlo {
namespace {

Region as_region(const BinaryRegion& body) {
  return [&body](std::span<const Value> x) { return Values{body(x[0], x[1])}; };
}

// The operands of a reduction: all inputs of the same sizes, with their 0-d initial values.
std::vector<Type> require_reduction(std::string_view name, const Values& inputs,
                                    const Values& init_values) {
  require_values(name, inputs);
  require(inputs.size() == init_values.size(), name, "needs one initial value for each input, got ",
          init_values.size(), " for ", inputs.size());
  std::vector<Type> accumulators;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    require(inputs[i].dims() == inputs[0].dims(), name, "all inputs must have the same sizes, got ",
            Show(inputs[0]), " and ", Show(inputs[i]));
    require_scalar(name, "an initial value", init_values[i], inputs[i].dtype());
    accumulators.push_back({inputs[i].dtype(), {}});
  }
  return accumulators;
}

// Emits the region of a reduction and the operation.
Values emit_reduction(std::string_view name, const Values& inputs, const Values& init_values,
                      const std::vector<Type>& accumulators, const Dims& result_dims,
                      const std::string& properties, const Region& body) {
  std::vector<Type> arguments = accumulators;
  arguments.insert(arguments.end(), accumulators.begin(), accumulators.end());
  Builder& builder = inputs[0].builder();
  const Builder::RegionText region = builder.region(arguments, body);
  require_yields(name, region.yielded, accumulators);
  std::vector<Type> results;
  for (const Type& accumulator : accumulators) results.push_back({accumulator.dtype, result_dims});
  Values operands = inputs;
  operands.insert(operands.end(), init_values.begin(), init_values.end());
  return builder.op(name, operands, results, properties, {&region.text, 1});
}

}  // namespace

Values reduce(const Values& inputs, const Values& init_values, const Dims& dimensions,
              const Region& body) {
  static constexpr std::string_view kName = "stablehlo.reduce";
  const std::vector<Type> accumulators = require_reduction(kName, inputs, init_values);
  require_dimensions(kName, "dimensions", dimensions, inputs[0].rank());
  Dims result_dims;
  for (std::int64_t i = 0; i < inputs[0].rank(); ++i) {
    if (!contains(dimensions, i)) result_dims.push_back(inputs[0].dim(i));
  }
  return emit_reduction(kName, inputs, init_values, accumulators, result_dims,
                        "dimensions = " + array_attribute(dimensions), body);
}

Value reduce(Value input, Value init_value, const Dims& dimensions, const BinaryRegion& body) {
  return reduce(Values{input}, Values{init_value}, dimensions, as_region(body))[0];
}

Values reduce_window(const Values& inputs, const Values& init_values, const Window& window,
                     const Region& body) {
  static constexpr std::string_view kName = "stablehlo.reduce_window";
  const std::vector<Type> accumulators = require_reduction(kName, inputs, init_values);
  const Window w = require_window(kName, window, inputs[0].rank());
  const Dims result_dims = window_counts(inputs[0].dims(), w);
  const std::string properties = "window_dimensions = " + array_attribute(w.dimensions) +
                                 ", window_strides = " + array_attribute(w.strides) +
                                 ", base_dilations = " + array_attribute(w.base_dilations) +
                                 ", window_dilations = " + array_attribute(w.window_dilations) +
                                 ", padding = " + matrix_attribute(w.padding);
  const auto emit = [&](const Values& operands, const Values& initial) {
    return emit_reduction(kName, operands, initial, accumulators, result_dims, properties, body);
  };
  if (inputs.size() == 1 || !is_partitioned()) return emit(inputs, init_values);
  // The partitioner ends the process, or fails, where several inputs lie in different ways.
  std::vector<Type> results;
  for (const Type& accumulator : accumulators) results.push_back({accumulator.dtype, result_dims});
  Values all = inputs;
  all.insert(all.end(), init_values.begin(), init_values.end());
  return on_each_device(all, results, [&](std::span<const Value> x) {
    const auto middle = x.begin() + static_cast<std::ptrdiff_t>(inputs.size());
    return emit({x.begin(), middle}, {middle, x.end()});
  });
}

Value reduce_window(Value input, Value init_value, const Window& window, const BinaryRegion& body) {
  return reduce_window(Values{input}, Values{init_value}, window, as_region(body))[0];
}

Value select_and_scatter(Value operand, Value source, Value init_value, const Window& window,
                         const BinaryRegion& select, const BinaryRegion& scatter) {
  static constexpr std::string_view kName = "stablehlo.select_and_scatter";
  require_value(kName, operand);
  require_value(kName, source);
  require_scalar(kName, "the initial value", init_value, operand.dtype());
  const Window w = require_window(kName, window, operand.rank());
  const Dims ones(operand.dims().size(), 1);
  require(w.base_dilations == ones && w.window_dilations == ones, kName,
          "dilations must be ones, got ", Show(w.base_dilations), " and ",
          Show(w.window_dilations));
  const Type expected{operand.dtype(), window_counts(operand.dims(), w)};
  require(source.type() == expected, kName, "the source must be ", Show(expected), ", got ",
          Show(source));
  Builder& builder = operand.builder();
  const Type element{operand.dtype(), {}};
  const Type boolean_element{DType::kBool, {}};
  const std::array<Type, 2> arguments{element, element};
  Builder::RegionText select_region = builder.region(arguments, as_region(select));
  require_yields(kName, select_region.yielded, {&boolean_element, 1});
  Builder::RegionText scatter_region = builder.region(arguments, as_region(scatter));
  require_yields(kName, scatter_region.yielded, {&element, 1});
  const std::array<std::string, 2> regions{std::move(select_region.text),
                                           std::move(scatter_region.text)};
  const std::array operands{operand, source, init_value};
  return builder.op(kName, operands, operand.type(),
                    "window_dimensions = " + array_attribute(w.dimensions) + ", window_strides = " +
                        array_attribute(w.strides) + ", padding = " + matrix_attribute(w.padding),
                    regions);
}

Values sort(const Values& inputs, std::int64_t dimension, bool is_stable,
            const Comparator& comparator) {
  static constexpr std::string_view kName = "stablehlo.sort";
  require_values(kName, inputs);
  require_dimension(kName, "dimension", dimension, inputs[0].rank());
  std::vector<Type> arguments;
  std::vector<Type> results;
  for (const Value& input : inputs) {
    require(input.dims() == inputs[0].dims(), kName, "all inputs must have the same sizes, got ",
            Show(inputs[0]), " and ", Show(input));
    arguments.insert(arguments.end(), 2, Type{input.dtype(), {}});
    results.push_back(input.type());
  }
  Builder& builder = inputs[0].builder();
  const Builder::RegionText region =
      builder.region(arguments, [&](std::span<const Value> x) { return Values{comparator(x)}; });
  const Type boolean_element{DType::kBool, {}};
  require_yields(kName, region.yielded, {&boolean_element, 1});
  std::string properties = "dimension = " + integer_attribute(dimension) + ", is_stable = ";
  properties += boolean(is_stable);
  return builder.op(kName, inputs, results, properties, {&region.text, 1});
}

Value sort(Value input, std::int64_t dimension, bool is_stable, const BinaryRegion& comparator) {
  return sort(Values{input}, dimension, is_stable,
              [&](std::span<const Value> x) { return comparator(x[0], x[1]); })[0];
}

namespace {

// Checks that `features` are vectors, one element per feature, and gives the properties.
std::string batch_norm_properties(std::string_view name, const Value& operand,
                                  std::initializer_list<Value> features, double epsilon,
                                  std::int64_t feature_index) {
  require_kind(name, operand, kFloats);
  require_dimension(name, "feature_index", feature_index, operand.rank());
  const Type expected{operand.dtype(), {operand.dim(feature_index)}};
  for (const Value& feature : features) {
    require_value(name, feature);
    require(feature.type() == expected, name, "scale, offset, mean and variance must be ",
            Show(expected), ", got ", Show(feature));
  }
  std::string properties = "epsilon = ";
  append_float(properties, epsilon);
  return properties + " : f32, feature_index = " + integer_attribute(feature_index);
}

}  // namespace

BatchNorm batch_norm_training(Value operand, Value scale, Value offset, double epsilon,
                              std::int64_t feature_index) {
  static constexpr std::string_view kName = "stablehlo.batch_norm_training";
  const std::string properties =
      batch_norm_properties(kName, operand, {scale, offset}, epsilon, feature_index);
  const std::array operands{operand, scale, offset};
  const std::array<Type, 3> results{operand.type(), scale.type(), scale.type()};
  const Values out = operand.builder().op(kName, operands, results, properties);
  return {out[0], out[1], out[2]};
}

Value batch_norm_inference(Value operand, Value scale, Value offset, Value mean, Value variance,
                           double epsilon, std::int64_t feature_index) {
  static constexpr std::string_view kName = "stablehlo.batch_norm_inference";
  const std::string properties = batch_norm_properties(
      kName, operand, {scale, offset, mean, variance}, epsilon, feature_index);
  const std::array operands{operand, scale, offset, mean, variance};
  return operand.builder().op(kName, operands, operand.type(), properties);
}

BatchNormGradient batch_norm_grad(Value operand, Value scale, Value mean, Value variance,
                                  Value grad_output, double epsilon, std::int64_t feature_index) {
  static constexpr std::string_view kName = "stablehlo.batch_norm_grad";
  const std::string properties =
      batch_norm_properties(kName, operand, {scale, mean, variance}, epsilon, feature_index);
  require_same_type(kName, operand, grad_output);
  const std::array operands{operand, scale, mean, variance, grad_output};
  const std::array<Type, 3> results{operand.type(), scale.type(), scale.type()};
  const Values out = operand.builder().op(kName, operands, results, properties);
  return {out[0], out[1], out[2]};
}

}  // namespace torch_xla::hlo

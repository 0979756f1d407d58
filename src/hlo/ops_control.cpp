// Control flow, custom calls, composites and random bits: operations whose results follow from
// regions or from what the caller states.
#include <array>

#include "hlo/checks.h"
#include "hlo/text.h"

namespace torch_xla::hlo {
namespace {

std::vector<Type> types_of(const Values& values) {
  std::vector<Type> types;
  types.reserve(values.size());
  for (const Value& value : values) types.push_back(value.type());
  return types;
}

}  // namespace

Values while_(const Values& operand, const Comparator& cond, const Region& body) {
  static constexpr std::string_view kName = "stablehlo.while";
  require_values(kName, operand);
  const std::vector<Type> types = types_of(operand);
  const Type boolean_element{DType::kBool, {}};
  Builder& builder = operand[0].builder();
  Builder::RegionText cond_region =
      builder.region(types, [&](std::span<const Value> x) { return Values{cond(x)}; });
  require_yields(kName, cond_region.yielded, {&boolean_element, 1});
  Builder::RegionText body_region = builder.region(types, body);
  require_yields(kName, body_region.yielded, types);
  const std::array<std::string, 2> regions{std::move(cond_region.text),
                                           std::move(body_region.text)};
  return builder.op(kName, operand, types, {}, regions);
}

namespace {

Values emit_branches(std::string_view name, const Value& index,
                     std::span<const std::function<Values()>> branches) {
  Builder& builder = index.builder();
  std::vector<std::string> regions;
  std::vector<Type> types;
  for (const std::function<Values()>& branch : branches) {
    Builder::RegionText region =
        builder.region({}, [&](std::span<const Value> /*no arguments*/) { return branch(); });
    if (regions.empty()) types = region.yielded;
    require_yields(name, region.yielded, types);
    regions.push_back(std::move(region.text));
  }
  return builder.op(name, {&index, 1}, types, {}, regions);
}

}  // namespace

Values if_(Value pred, const std::function<Values()>& true_branch,
           const std::function<Values()>& false_branch) {
  static constexpr std::string_view kName = "stablehlo.if";
  require_scalar(kName, "pred", pred, DType::kBool);
  const std::array branches{true_branch, false_branch};
  return emit_branches(kName, pred, branches);
}

Values case_(Value index, const std::vector<std::function<Values()>>& branches) {
  static constexpr std::string_view kName = "stablehlo.case";
  require_scalar(kName, "index", index, DType::kInt32);
  require(!branches.empty(), kName, "needs a branch");
  return emit_branches(kName, index, branches);
}

Values optimization_barrier(const Values& operand) {
  static constexpr std::string_view kName = "stablehlo.optimization_barrier";
  if (operand.empty()) return {};
  require_values(kName, operand);
  return operand[0].builder().op(kName, operand, types_of(operand));
}

RngBits rng_bit_generator(Value initial_state, RngAlgorithm algorithm, const Type& type) {
  static constexpr std::string_view kName = "stablehlo.rng_bit_generator";
  static constexpr std::array<std::string_view, 3> kNames = {"DEFAULT", "THREE_FRY", "PHILOX"};
  require_value(kName, initial_state);
  const bool is_state = initial_state.dtype() == DType::kUInt64 && initial_state.rank() == 1;
  const std::int64_t size = is_state ? initial_state.dim(0) : 0;
  require(algorithm == RngAlgorithm::kDefault || size == 2 ||
              (size == 3 && algorithm == RngAlgorithm::kPhilox),
          kName, "the state must be u64[2], or u64[3] for PHILOX, got ", Show(initial_state));
  const base::DTypeKind kind = base::kind_of(type.dtype);
  require(kind == base::DTypeKind::kUnsigned || kind == base::DTypeKind::kSigned, kName,
          "the bits must be of integer type, got ", Show(type));
  std::string properties = "rng_algorithm = #stablehlo<rng_algorithm ";
  properties += kNames[static_cast<std::size_t>(algorithm)];
  properties += '>';
  const std::array<Type, 2> results{initial_state.type(), type};
  const Values out = initial_state.builder().op(kName, {&initial_state, 1}, results, properties);
  return {out[0], out[1]};
}

namespace {

std::string aliases_property(const CustomCall& call, std::size_t num_operands) {
  static constexpr std::string_view kName = "stablehlo.custom_call";
  std::string out = "[";
  for (const OutputOperandAlias& alias : call.output_operand_aliases) {
    require_dimension(kName, "an alias's output", alias.output_index,
                      static_cast<std::int64_t>(call.results.size()));
    require_dimension(kName, "an alias's operand", alias.operand_index,
                      static_cast<std::int64_t>(num_operands));
    if (out.size() > 1) out += ", ";
    // A single result is no tuple, so that it has no index into one.
    out += "#stablehlo.output_operand_alias<output_tuple_indices = ";
    out += call.results.size() == 1 ? "[]" : list({alias.output_index});
    out += ", operand_index = ";
    append_integer(out, alias.operand_index);
    out += ", operand_tuple_indices = []>";
  }
  return out + "]";
}

// "[dense<[1, 0]> : tensor<2xindex>]": one layout per value, row-major where `layouts` is empty.
std::string layouts_property(std::string_view what, const std::vector<Dims>& layouts,
                             const std::vector<Type>& types) {
  static constexpr std::string_view kName = "stablehlo.custom_call";
  if (!layouts.empty()) require_size(kName, what, layouts.size(), std::ssize(types));
  std::string out = "[";
  for (std::size_t i = 0; i < types.size(); ++i) {
    Dims layout;
    for (std::int64_t d = types[i].rank(); layouts.empty() && d > 0; --d) layout.push_back(d - 1);
    if (!layouts.empty()) layout = layouts[i];
    require_size(kName, what, layout.size(), types[i].rank());
    require_dimensions(kName, what, layout, types[i].rank());
    if (i > 0) out += ", ";
    out += "dense<";
    if (!layout.empty()) out += list(layout);
    out += "> : tensor<";
    append_integer(out, types[i].rank());
    out += "xindex>";
  }
  return out + "]";
}

}  // namespace

Values custom_call(Builder& builder, const Values& operands, const CustomCall& call) {
  static constexpr std::string_view kName = "stablehlo.custom_call";
  require_values(kName, operands, 0);
  require(!call.call_target_name.empty(), kName, "needs a call_target_name");
  require(call.api_version == 4 || call.backend_config.empty(), kName,
          "attributes need api_version 4, got ", call.api_version);
  std::string properties = "call_target_name = " + string_literal(call.call_target_name);
  properties += ", has_side_effect = ";
  properties += boolean(call.has_side_effect);
  properties += ", api_version = " + integer_attribute(call.api_version, "i32");
  properties += ", backend_config = ";
  properties += call.api_version == 4 ? dictionary_attribute(call.backend_config)
                                      : string_literal(call.backend_config_text);
  if (!call.output_operand_aliases.empty()) {
    properties += ", output_operand_aliases = " + aliases_property(call, operands.size());
  }
  if (!call.operand_layouts.empty() || !call.result_layouts.empty()) {
    properties += ", operand_layouts = " +
                  layouts_property("operand_layouts", call.operand_layouts, types_of(operands)) +
                  ", result_layouts = " +
                  layouts_property("result_layouts", call.result_layouts, call.results);
  }
  std::string attributes;
  if (!call.frontend_attributes.empty()) {
    attributes = "mhlo.frontend_attributes = " + dictionary_attribute(call.frontend_attributes);
  }
  if (!call.sharding.empty()) {
    attributes += base::str(attributes.empty() ? "" : ", ",
                            "mhlo.sharding = ", string_literal(call.sharding));
  }
  return builder.op(kName, operands, call.results, properties, {}, attributes);
}

Values custom_call(const Values& operands, const CustomCall& call) {
  require_values("stablehlo.custom_call", operands);
  return custom_call(operands[0].builder(), operands, call);
}

Values composite(const Values& operands, const std::string& name, const std::string& decomposition,
                 const Attributes& attributes, int version) {
  static constexpr std::string_view kName = "stablehlo.composite";
  require_values(kName, operands);
  require(name.find('.') != std::string::npos && name.find('.') > 0, kName,
          "the name must have a namespace, as in vendor.op, got ", name);
  Builder& builder = operands[0].builder();
  const std::vector<Type> results = builder.function_results(decomposition, operands);
  return builder.op(kName, operands, results,
                    "name = " + string_literal(name) +
                        ", composite_attributes = " + dictionary_attribute(attributes) +
                        ", decomposition = @" + string_literal(decomposition) +
                        ", version = " + integer_attribute(version, "i32"));
}

}  // namespace torch_xla::hlo

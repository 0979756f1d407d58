// A search backwards that ends when it has found enough.
#include "hlo/chains.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace torch_xla::hlo {
namespace {

constexpr std::string_view kElementwise[] = {
    "stablehlo.abs",      "stablehlo.add",     "stablehlo.and",         "stablehlo.compare",
    "stablehlo.convert",  "stablehlo.divide",  "stablehlo.exponential", "stablehlo.log",
    "stablehlo.logistic", "stablehlo.maximum", "stablehlo.minimum",     "stablehlo.multiply",
    "stablehlo.negate",   "stablehlo.or",      "stablehlo.power",       "stablehlo.rsqrt",
    "stablehlo.select",   "stablehlo.sqrt",    "stablehlo.subtract",    "stablehlo.tanh",
};
// Rare in long formulas, which are not measured by them.
constexpr std::string_view kOtherElementwise[] = {
    "stablehlo.cbrt",
    "stablehlo.ceil",
    "stablehlo.clamp",
    "stablehlo.cosine",
    "stablehlo.floor",
    "stablehlo.exponential_minus_one",
    "stablehlo.is_finite",
    "stablehlo.log_plus_one",
    "stablehlo.not",
    "stablehlo.remainder",
    "stablehlo.round_nearest_afz",
    "stablehlo.round_nearest_even",
    "stablehlo.sign",
    "stablehlo.sine",
    "stablehlo.xor",
};
// They move elements, and are fused too.
constexpr std::string_view kMoving[] = {
    "stablehlo.broadcast_in_dim", "stablehlo.concatenate", "stablehlo.pad",
    "stablehlo.reshape",          "stablehlo.slice",       "stablehlo.transpose",
};

template <std::size_t count>
bool is_any_of(std::string_view name, const std::string_view (&names)[count]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

bool is_fused(std::string_view name) {
  return is_any_of(name, kElementwise) || is_any_of(name, kOtherElementwise) ||
         is_any_of(name, kMoving);
}

bool ends_chain(const Value& value, std::size_t length) {
  const Builder& builder = value.builder();
  if (!is_any_of(builder.definition(value.id()).name, kElementwise)) return false;
  std::unordered_set<std::uint32_t> seen = {value.id()};
  std::vector<std::uint32_t> pending = {value.id()};
  for (std::size_t found = 0; !pending.empty();) {
    const Builder::Definition definition = builder.definition(pending.back());
    pending.pop_back();
    const bool is_elementwise = is_any_of(definition.name, kElementwise);
    if (!is_elementwise && !is_any_of(definition.name, kMoving)) continue;
    if (is_elementwise && definition.type->num_elements() > 1 && ++found >= length) return true;
    for (const std::uint32_t operand : definition.operands) {
      if (seen.insert(operand).second) pending.push_back(operand);
    }
  }
  return false;
}

}  // namespace torch_xla::hlo

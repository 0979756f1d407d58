#include "hlo/undone.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "hlo/ops.h"

namespace torch_xla::hlo {
namespace {

struct Rule {
  std::string_view outer;
  std::string_view inner;
};

// log(a ** b) is b * log(abs(a)), which is a number where a ** b is NaN.
constexpr std::array kOfFirst = {
    Rule{"stablehlo.log", "stablehlo.exponential"},   Rule{"stablehlo.log", "stablehlo.power"},
    Rule{"stablehlo.log", "stablehlo.rsqrt"},         Rule{"stablehlo.sqrt", "stablehlo.power"},
    Rule{"stablehlo.power", "stablehlo.exponential"}, Rule{"stablehlo.rsqrt", "stablehlo.power"},
    Rule{"stablehlo.rsqrt", "stablehlo.divide"},
};
// a / b ** c is a * b ** -c, where b ** -c may vanish.
constexpr std::array kOfSecond = {Rule{"stablehlo.divide", "stablehlo.power"}};
constexpr std::array kOfBoth = {
    Rule{"stablehlo.divide", "stablehlo.exponential"},
    Rule{"stablehlo.multiply", "stablehlo.exponential"},
};

bool is_moving(const Builder& builder, const Builder::Definition& definition) {
  static constexpr std::array<std::string_view, 4> kNames = {
      "stablehlo.broadcast_in_dim", "stablehlo.convert", "stablehlo.reshape",
      "stablehlo.transpose"};
  if (std::find(kNames.begin(), kNames.end(), definition.name) != kNames.end()) return true;
  if (definition.name != "stablehlo.reduce") return false;
  const Type* const reduced = builder.definition(definition.operands.front()).type;
  return reduced != nullptr && reduced->num_elements() == definition.type->num_elements();
}

// What computes the value, past what only changes its type or shape.
Builder::Definition source(const Builder& builder, std::uint32_t id) {
  Builder::Definition definition = builder.definition(id);
  while (is_moving(builder, definition)) {
    definition = builder.definition(definition.operands.front());
  }
  return definition;
}

bool has_rule(std::span<const Rule> rules, std::string_view outer, std::string_view inner) {
  return std::any_of(rules.begin(), rules.end(),
                     [&](const Rule& rule) { return rule.outer == outer && rule.inner == inner; });
}

bool is_square(const Builder::Definition& definition) {
  return definition.name == "stablehlo.multiply" &&
         definition.operands.front() == definition.operands.back();
}

// A NaN stays one, so no pass takes the selection away; it is fused with what stands around it.
Value hidden(const Value& value) {
  const Value nan = full_like(value, std::numeric_limits<double>::quiet_NaN());
  return select(ne(value, value), nan, value);
}

bool is_real(const Value& value) { return value && base::is_floating(value.dtype()); }

}  // namespace

Value hidden_from(std::string_view name, const Value& operand) {
  if (!is_real(operand)) return operand;
  const Builder::Definition definition = source(operand.builder(), operand.id());
  const bool is_undone = has_rule(kOfFirst, name, definition.name) ||
                         (name == "stablehlo.sqrt" && is_square(definition));
  return is_undone ? hidden(operand) : operand;
}

Value hidden_from(std::string_view name, const Value& lhs, const Value& rhs) {
  if (!is_real(rhs) || !lhs) return rhs;
  const std::string_view inner = source(rhs.builder(), rhs.id()).name;
  const bool is_undone =
      has_rule(kOfSecond, name, inner) ||
      (has_rule(kOfBoth, name, inner) && source(lhs.builder(), lhs.id()).name == inner);
  return is_undone ? hidden(rhs) : rhs;
}

}  // namespace torch_xla::hlo

#include "hlo/known_nan.h"

#include <algorithm>

#include "hlo/ops.h"

namespace torch_xla::hlo {
namespace {

thread_local KnownNanScope* current = nullptr;

}  // namespace

KnownNanScope::KnownNanScope(bool is_for_cpu) : is_for_cpu_(is_for_cpu), outer_(current) {
  current = this;
}

KnownNanScope::~KnownNanScope() { current = outer_; }

bool KnownNanScope::is_constant(const Value& value) {
  const Builder& builder = value.builder();
  if (builder.mode() == Mode::kTypesOnly) return false;
  // Operands have lower numbers than what is made of them.
  for (auto id = static_cast<std::uint32_t>(are_constant_.size()); id <= value.id(); ++id) {
    const Builder::Definition definition = builder.definition(id);
    const bool is_of_nothing = definition.type != nullptr && definition.type->num_elements() == 0;
    are_constant_.push_back(is_of_nothing ||
                            (!definition.name.empty() &&
                             std::ranges::all_of(definition.operands, [&](std::uint32_t operand) {
                               return are_constant_[operand];
                             })));
  }
  return are_constant_[value.id()];
}

Value past_nan(const Value& result, const Value& operand) {
  // Those of float64 are the C library's.
  if (current == nullptr || !current->is_for_cpu() ||
      base::size_bytes(base::real_dtype(operand.dtype())) == 8) {
    return result;
  }
  if (!base::is_complex(operand.dtype())) return select(eq(operand, operand), result, operand);
  // An imaginary part of 0 stays one, as C's functions have it.
  const Value x = real(operand);
  const Value y = imag(operand);
  return select(eq(x, x), result, complex(x, select(eq(y, full_like(y, 0)), y, x)));
}

Value unfolded(const Value& operand, std::initializer_list<Value> others) {
  const auto is_constant = [](const Value& v) { return v && current->is_constant(v); };
  const bool is_folded = current != nullptr && operand && base::is_floating(operand.dtype()) &&
                         is_constant(operand) && std::ranges::all_of(others, is_constant);
  return is_folded ? optimization_barrier({operand})[0] : operand;
}

}  // namespace torch_xla::hlo

#include "hlo/known_nan.h"

#include <algorithm>

#include "hlo/in_place.h"
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
  while (are_constant_.size() <= value.id()) are_constant_.push_back(may_become_one(builder));
  return are_constant_[value.id()];
}

// Of the first value that is not known yet. Nobody sees in a bool what will be found of it:
// whatever chooses between a constant and the same one gives that. Nor does an index into a
// constant matter.
bool KnownNanScope::may_become_one(const Builder& builder) const {
  const auto definition = builder.definition(static_cast<std::uint32_t>(are_constant_.size()));
  const Type* const type = definition.type;
  if (type != nullptr && (type->num_elements() == 0 || type->dtype == DType::kBool)) return true;
  if (definition.name.empty()) return false;
  const auto is_number = [&](std::uint32_t operand) {
    const Type* const of = builder.definition(operand).type;
    return of == nullptr || !base::is_integral(of->dtype);
  };
  const std::span<const std::uint32_t> operands = definition.operands;
  const bool is_indexed = type != nullptr && !base::is_integral(type->dtype) &&
                          std::ranges::any_of(operands, is_number);
  if (definition.name == "stablehlo.subtract" && !is_indexed && operands[0] == operands[1]) {
    return true;
  }
  return std::ranges::all_of(operands, [&](std::uint32_t operand) {
    return are_constant_[operand] || (is_indexed && !is_number(operand));
  });
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

namespace {

bool are_known(const Value& operand, std::initializer_list<Value> others) {
  const auto is_constant = [](const Value& v) { return v && current->is_constant(v); };
  return current != nullptr && is_constant(operand) && std::ranges::all_of(others, is_constant);
}

}  // namespace

Value unfolded(const Value& operand, std::initializer_list<Value> others) {
  const bool is_folded = are_known(operand, others) && base::is_floating(operand.dtype());
  return is_folded ? optimization_barrier({operand})[0] : operand;
}

Value angled(const Value& operand, std::initializer_list<Value> others) {
  return are_known(operand, others) ? hidden({operand}, 1, /*shares_memory=*/false)[0] : operand;
}

}  // namespace torch_xla::hlo

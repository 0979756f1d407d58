// Constraints that several operations share; each operation's own stand beside its emission.
#include "hlo/checks.h"

#include <algorithm>
#include <string>

namespace torch_xla::hlo {
namespace {

std::string kinds_text(unsigned kinds) {
  std::string out;
  const auto add = [&](unsigned kind, std::string_view name) {
    if ((kinds & kind) != kind) return;
    kinds &= ~kind;
    if (!out.empty()) out += kinds == 0 ? " or " : ", ";
    out += name;
  };
  add(kBooleans, "bool");
  add(kIntegers, "integer");
  add(kSignedIntegers, "signed integer");
  add(kUnsignedIntegers, "unsigned integer");
  add(kFloats, "floating-point");
  add(kComplexes, "complex");
  return out;
}

}  // namespace

void require_values(std::string_view op, const Values& values, std::size_t at_least) {
  require(values.size() >= at_least, op, "needs at least ", at_least, " operands, got ",
          values.size());
  for (const Value& value : values) require_value(op, value);
}

void require_kind(std::string_view op, const Value& value, unsigned kinds) {
  require_value(op, value);
  const unsigned kind = 1U << static_cast<unsigned>(base::kind_of(value.dtype()));
  if ((kinds & kind) != 0) return;
  base::fail(base::ErrorKind::kUnimplemented, op, ": the operand must be of ", kinds_text(kinds),
             " type, got ", Show(value));
}

void require_same_type(std::string_view op, const Value& lhs, const Value& rhs) {
  require_value(op, lhs);
  require_value(op, rhs);
  if (&lhs.interned_type() == &rhs.interned_type()) return;
  require(lhs.type() == rhs.type(), op, "the operands must have one type, got ", Show(lhs), " and ",
          Show(rhs));
}

void require_scalar(std::string_view op, std::string_view what, const Value& value, DType dtype) {
  require_value(op, value);
  require(value.rank() == 0 && value.dtype() == dtype, op, what, " must be ", Show(Type{dtype, {}}),
          ", got ", Show(value));
}

void require_dimension(std::string_view op, std::string_view what, std::int64_t value,
                       std::int64_t rank) {
  require(value >= 0 && value < rank, op, what, " must be in [0, ", rank, "), got ", value);
}

void require_dimensions(std::string_view op, std::string_view what, const Dims& values,
                        std::int64_t rank) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    require(values[i] >= 0 && values[i] < rank, op, what, " must be in [0, ", rank, "), got ",
            Show(values));
    require(std::find(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(i), values[i]) ==
                values.begin() + static_cast<std::ptrdiff_t>(i),
            op, what, " must be unique, got ", Show(values));
  }
}

void require_sorted(std::string_view op, std::string_view what, const Dims& values) {
  require(std::is_sorted(values.begin(), values.end()), op, what, " must be sorted, got ",
          Show(values));
}

void require_size(std::string_view op, std::string_view what, std::size_t size,
                  std::int64_t expected) {
  require(static_cast<std::int64_t>(size) == expected, op, what, " must have ", expected,
          " elements, got ", size);
}

void require_yields(std::string_view op, std::span<const Type> yielded,
                    std::span<const Type> expected) {
  require(yielded.size() == expected.size(), op, "the region must yield ", expected.size(),
          " values, got ", yielded.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    require(yielded[i] == expected[i], op, "the region must yield ", Show(expected[i]),
            " as value ", i, ", got ", Show(yielded[i]));
  }
}

}  // namespace torch_xla::hlo

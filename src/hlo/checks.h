// The specification's constraints, as the operations in hlo/ops.h check them. Internal to src/hlo.
// The messages' parts are printed only when a check fails: inference runs these on every operation.
#pragma once

#include <ostream>
#include <span>
#include <string_view>

#include "hlo/ops.h"

namespace torch_xla::hlo {

// Prints sizes or a type in an error message.
struct Show {
  explicit Show(const Dims& d) : dims(&d) {}
  explicit Show(const Type& t) : type(&t) {}
  explicit Show(const Value& v) : type(&v.type()) {}
  const Dims* dims = nullptr;
  const Type* type = nullptr;
  friend std::ostream& operator<<(std::ostream& out, const Show& show) {
    return out << (show.type ? base::to_string(*show.type) : base::to_string(*show.dims));
  }
};

template <typename... Message>
void require(bool condition, std::string_view op, const Message&... message) {
  if (!condition) [[unlikely]] {
    base::fail(base::ErrorKind::kInvalidArgument, op, ": ", message...);
  }
}

inline void require_value(std::string_view op, const Value& value) {
  require(static_cast<bool>(value), op, "an operand is no value");
}
void require_values(std::string_view op, const Values& values, std::size_t at_least = 1);

// Sets of dtype kinds, for what an operation takes.
enum Kinds : unsigned {
  kBooleans = 1,
  kUnsignedIntegers = 2,
  kSignedIntegers = 4,
  kIntegers = kUnsignedIntegers | kSignedIntegers,
  kFloats = 8,
  kComplexes = 16,
  kFloatsOrComplexes = kFloats | kComplexes,
  kNumbers = kIntegers | kFloats | kComplexes,
  kAnything = kNumbers | kBooleans,
  kOrdered = kAnything & ~kComplexes,
};
// The one that is of kind kUnimplemented: PyTorch says so of a dtype that a kernel is not for.
void require_kind(std::string_view op, const Value& value, unsigned kinds);
void require_same_type(std::string_view op, const Value& lhs, const Value& rhs);
// A 0-d value of `dtype`.
void require_scalar(std::string_view op, std::string_view what, const Value& value, DType dtype);
// `value` is in [0, rank).
void require_dimension(std::string_view op, std::string_view what, std::int64_t value,
                       std::int64_t rank);
// Each is in [0, rank), none twice.
void require_dimensions(std::string_view op, std::string_view what, const Dims& values,
                        std::int64_t rank);
void require_sorted(std::string_view op, std::string_view what, const Dims& values);
void require_size(std::string_view op, std::string_view what, std::size_t size,
                  std::int64_t expected);
// What a region yields is as expected.
void require_yields(std::string_view op, std::span<const Type> yielded,
                    std::span<const Type> expected);

inline bool contains(const Dims& values, std::int64_t value) {
  for (const std::int64_t v : values) {
    if (v == value) return true;
  }
  return false;
}

// An operand given back by an operation that changes nothing: it is a result all the same.
inline Value unchanged(Value operand) {
  operand.mark = 0;
  return operand;
}

}  // namespace torch_xla::hlo

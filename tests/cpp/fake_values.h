// The arrays that the fake plugin computes with: their types, their bytes, and arithmetic on their
// elements by the names of StableHLO's operations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "pjrt_c_api.h"

namespace fake {

struct ArrayType {
  PJRT_Buffer_Type type = PJRT_Buffer_Type_INVALID;
  std::vector<std::int64_t> dims;

  std::int64_t num_elements() const {
    std::int64_t n = 1;
    for (const std::int64_t d : dims) n *= d;
    return n;
  }
  friend bool operator==(const ArrayType&, const ArrayType&) = default;
};

struct TypeInfo {
  std::string_view name;
  PJRT_Buffer_Type type;
  int size_bytes;
};

inline constexpr TypeInfo kTypes[] = {
    {"i1", PJRT_Buffer_Type_PRED, 1},
    {"i8", PJRT_Buffer_Type_S8, 1},
    {"i16", PJRT_Buffer_Type_S16, 2},
    {"i32", PJRT_Buffer_Type_S32, 4},
    {"i64", PJRT_Buffer_Type_S64, 8},
    {"ui8", PJRT_Buffer_Type_U8, 1},
    {"ui16", PJRT_Buffer_Type_U16, 2},
    {"ui32", PJRT_Buffer_Type_U32, 4},
    {"ui64", PJRT_Buffer_Type_U64, 8},
    {"f16", PJRT_Buffer_Type_F16, 2},
    {"bf16", PJRT_Buffer_Type_BF16, 2},
    {"f32", PJRT_Buffer_Type_F32, 4},
    {"f64", PJRT_Buffer_Type_F64, 8},
    {"complex<f32>", PJRT_Buffer_Type_C64, 8},
    {"complex<f64>", PJRT_Buffer_Type_C128, 16},
    {"f8E5M2", PJRT_Buffer_Type_F8E5M2, 1},
    {"f8E4M3FN", PJRT_Buffer_Type_F8E4M3FN, 1},
};

inline const TypeInfo& info_of(PJRT_Buffer_Type type) {
  for (const TypeInfo& info : kTypes) {
    if (info.type == type) return info;
  }
  throw std::runtime_error("fake plugin: unsupported element type");
}

inline std::size_t size_bytes(const ArrayType& type) {
  return static_cast<std::size_t>(type.num_elements()) * info_of(type.type).size_bytes;
}

using Bytes = std::vector<char>;

struct Value {
  ArrayType type;
  Bytes bytes;
};
using Values = std::vector<Value>;

inline Value zeros(ArrayType type) {
  const std::size_t size = size_bytes(type);
  return {std::move(type), Bytes(size)};
}

// Calls `f` with a number of that type; not for types that the plugin does not compute with.
template <typename F>
void with_number_of(PJRT_Buffer_Type type, const F& f) {
  switch (type) {
    case PJRT_Buffer_Type_F32: return f(float{});
    case PJRT_Buffer_Type_F64: return f(double{});
    case PJRT_Buffer_Type_S32: return f(std::int32_t{});
    case PJRT_Buffer_Type_S64: return f(std::int64_t{});
    case PJRT_Buffer_Type_U32: return f(std::uint32_t{});
    case PJRT_Buffer_Type_PRED:
    case PJRT_Buffer_Type_U8: return f(std::uint8_t{});
    default: return;
  }
}

inline double load(const Value& value, std::int64_t i) {
  const char* at = value.bytes.data() + i * info_of(value.type.type).size_bytes;
  double result = 0;
  with_number_of(value.type.type, [&](auto number) {
    std::memcpy(&number, at, sizeof(number));
    result = static_cast<double>(number);
  });
  return result;
}

inline void store(Value& value, std::int64_t i, double number) {
  char* at = value.bytes.data() + i * info_of(value.type.type).size_bytes;
  with_number_of(value.type.type, [&](auto converted) {
    converted = static_cast<decltype(converted)>(number);
    std::memcpy(at, &converted, sizeof(converted));
  });
}

// nullopt: not an elementwise operation that is known here.
inline std::optional<double> compute(std::string_view name, double a, double b) {
  if (name == "stablehlo.add") return a + b;
  if (name == "stablehlo.subtract") return a - b;
  if (name == "stablehlo.multiply") return a * b;
  if (name == "stablehlo.divide") return a / b;
  if (name == "stablehlo.maximum") return std::max(a, b);
  if (name == "stablehlo.minimum") return std::min(a, b);
  if (name == "stablehlo.negate") return -a;
  if (name == "stablehlo.convert" || name == "stablehlo.reshape") return a;
  if (name == "stablehlo.broadcast_in_dim") return a;
  return std::nullopt;
}

}  // namespace fake

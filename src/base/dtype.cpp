// The dtype table and PyTorch's promotion lattice over it.
#include "base/dtype.h"

#include <algorithm>
#include <array>
#include <utility>

namespace torch_xla::base {
namespace {

constexpr std::array<DTypeInfo, kNumDTypes> kTable = {{
    {"bool", "i1", "pred", 1, DTypeKind::kBool},
    {"uint8", "ui8", "u8", 1, DTypeKind::kUnsigned},
    {"uint16", "ui16", "u16", 2, DTypeKind::kUnsigned},
    {"uint32", "ui32", "u32", 4, DTypeKind::kUnsigned},
    {"uint64", "ui64", "u64", 8, DTypeKind::kUnsigned},
    {"int8", "i8", "s8", 1, DTypeKind::kSigned},
    {"int16", "i16", "s16", 2, DTypeKind::kSigned},
    {"int32", "i32", "s32", 4, DTypeKind::kSigned},
    {"int64", "i64", "s64", 8, DTypeKind::kSigned},
    {"float8_e4m3fn", "f8E4M3FN", "f8e4m3fn", 1, DTypeKind::kFloating},
    {"float8_e5m2", "f8E5M2", "f8e5m2", 1, DTypeKind::kFloating},
    {"float16", "f16", "f16", 2, DTypeKind::kFloating},
    {"bfloat16", "bf16", "bf16", 2, DTypeKind::kFloating},
    {"float32", "f32", "f32", 4, DTypeKind::kFloating},
    {"float64", "f64", "f64", 8, DTypeKind::kFloating},
    {"complex64", "complex<f32>", "c64", 8, DTypeKind::kComplex},
    {"complex128", "complex<f64>", "c128", 16, DTypeKind::kComplex},
}};

// Unsigned and signed integers meet in the smallest signed type that holds both; uint64 has none
// and PyTorch answers float32 for it.
DType promote_integers(DType a, DType b) {
  const bool a_unsigned = kind_of(a) == DTypeKind::kUnsigned;
  const bool b_unsigned = kind_of(b) == DTypeKind::kUnsigned;
  if (a_unsigned == b_unsigned) return size_bytes(a) >= size_bytes(b) ? a : b;
  const DType u = a_unsigned ? a : b;
  const DType s = a_unsigned ? b : a;
  if (size_bytes(s) > size_bytes(u)) return s;
  switch (u) {
    case DType::kUInt8: return DType::kInt16;
    case DType::kUInt16: return DType::kInt32;
    case DType::kUInt32: return DType::kInt64;
    default: return DType::kFloat32;
  }
}

}  // namespace

const DTypeInfo& dtype_info(DType dtype) { return kTable[static_cast<std::size_t>(dtype)]; }

DType real_dtype(DType dtype) {
  if (dtype == DType::kComplex64) return DType::kFloat32;
  if (dtype == DType::kComplex128) return DType::kFloat64;
  return dtype;
}

DType complex_dtype(DType dtype) {
  return dtype == DType::kFloat64 || dtype == DType::kComplex128 ? DType::kComplex128
                                                                 : DType::kComplex64;
}

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  if (kind_of(a) > kind_of(b)) std::swap(a, b);
  const DTypeKind ka = kind_of(a);
  const DTypeKind kb = kind_of(b);
  if (kb == DTypeKind::kComplex) {
    const bool wide = a == DType::kFloat64 || a == DType::kComplex128 || b == DType::kComplex128;
    return wide ? DType::kComplex128 : DType::kComplex64;
  }
  if (ka == DTypeKind::kBool) return b;
  if (kb != DTypeKind::kFloating) return promote_integers(a, b);
  if (ka != DTypeKind::kFloating) return b;
  // Two different floating types of one width (float16 and bfloat16) meet in float32.
  if (size_bytes(a) == size_bytes(b)) return DType::kFloat32;
  return size_bytes(a) > size_bytes(b) ? a : b;
}

}  // namespace torch_xla::base

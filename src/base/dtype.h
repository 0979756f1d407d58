// Element types of tensors and the facts every layer needs about them: PyTorch's name, StableHLO's
// name, width, and kind. The values are ours; `src/aten` maps them to c10::ScalarType and
// `src/pjrt` to PJRT_Buffer_Type.
#pragma once

#include <cstdint>
#include <string_view>

namespace torch_xla::base {

enum class DType : std::uint8_t {
  kBool,
  kUInt8,
  kUInt16,
  kUInt32,
  kUInt64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat8E4M3FN,
  kFloat8E5M2,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
};

inline constexpr int kNumDTypes = static_cast<int>(DType::kComplex128) + 1;

enum class DTypeKind : std::uint8_t { kBool, kUnsigned, kSigned, kFloating, kComplex };

struct DTypeInfo {
  std::string_view name;        // PyTorch's name: "float32"
  std::string_view hlo_name;    // StableHLO's name: "f32"
  std::string_view short_name;  // the name XLA prints in shapes: "f32", "pred", "s64"
  int size_bytes;
  DTypeKind kind;
};

const DTypeInfo& dtype_info(DType dtype);

inline DTypeKind kind_of(DType dtype) { return dtype_info(dtype).kind; }
inline int size_bytes(DType dtype) { return dtype_info(dtype).size_bytes; }
inline bool is_complex(DType dtype) { return kind_of(dtype) == DTypeKind::kComplex; }
inline bool is_floating(DType dtype) { return kind_of(dtype) == DTypeKind::kFloating; }
inline bool is_float8(DType dtype) { return is_floating(dtype) && size_bytes(dtype) == 1; }
// True for bool too, as in PyTorch's `isIntegralType(dtype, /*includeBool=*/true)`.
inline bool is_integral(DType dtype) { return kind_of(dtype) <= DTypeKind::kSigned; }
inline bool is_signed_integral(DType dtype) { return kind_of(dtype) == DTypeKind::kSigned; }

// The type of the real and imaginary parts of a complex type; other types are returned unchanged.
DType real_dtype(DType dtype);
// The complex type whose parts have the given floating type (float16 and bfloat16 give complex64).
DType complex_dtype(DType dtype);

// PyTorch's `promote_types`: the smallest type to which both can be converted.
DType promote_types(DType a, DType b);

}  // namespace torch_xla::base

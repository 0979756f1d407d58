// Constants: numbers are encoded to the dtype's bits first, as PyTorch converts them, so that what
// is printed (a decimal that reads back exactly, or bits) never depends on the reader's rounding.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "hlo/checks.h"
#include "hlo/text.h"

namespace torch_xla::hlo {
namespace {

// Above this many elements, a constant is spelled as the bytes of its elements.
constexpr std::size_t kMaxListedElements = 16;

// Layout of the floating types that C++ lacks: codes order like magnitudes, and `infinity` is what
// overflow gives (NaN in the type without infinities).
struct NarrowFloat {
  int mantissa_bits;
  int bias;
  std::uint64_t largest_finite;
  std::uint64_t infinity;
  std::uint64_t nan;
  std::uint64_t sign;
};

NarrowFloat narrow_float(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return {10, 15, 0x7BFF, 0x7C00, 0x7E00, 0x8000};
    case DType::kBFloat16: return {7, 127, 0x7F7F, 0x7F80, 0x7FC0, 0x8000};
    case DType::kFloat8E5M2: return {2, 15, 0x7B, 0x7C, 0x7F, 0x80};
    default: return {3, 7, 0x7E, 0x7F, 0x7F, 0x80};
  }
}

// Rounds to nearest even, by way of float32 as PyTorch does.
std::uint64_t encode_narrow(DType dtype, double number) {
  const NarrowFloat format = narrow_float(dtype);
  const auto value = static_cast<double>(static_cast<float>(number));
  if (std::isnan(value)) return format.nan;
  const std::uint64_t sign = std::signbit(value) ? format.sign : 0;
  const double magnitude = std::abs(value);
  if (std::isinf(magnitude)) return sign | format.infinity;
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  exponent = std::max(exponent - 1, 1 - format.bias);
  const double ulps = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  const std::int64_t above_least = exponent - (1 - format.bias);
  const std::uint64_t code = (static_cast<std::uint64_t>(above_least) << format.mantissa_bits) +
                             static_cast<std::uint64_t>(ulps);
  return sign | (code > format.largest_finite ? format.infinity : code);
}

double decode_narrow(DType dtype, std::uint64_t bits) {
  const NarrowFloat format = narrow_float(dtype);
  const std::uint64_t code = bits & (format.sign - 1);
  if (code > format.largest_finite) return std::numeric_limits<double>::quiet_NaN();
  const auto exponent = static_cast<int>(code >> format.mantissa_bits);
  const std::uint64_t implicit = std::uint64_t{1} << format.mantissa_bits;
  const std::uint64_t mantissa = (code & (implicit - 1)) | (exponent == 0 ? 0 : implicit);
  const double magnitude = std::ldexp(static_cast<double>(mantissa),
                                      std::max(exponent, 1) - format.bias - format.mantissa_bits);
  return (bits & format.sign) != 0 ? -magnitude : magnitude;
}

std::uint64_t truncate(DType dtype, std::uint64_t bits) {
  const int width = base::size_bytes(dtype) * 8;
  return width == 64 ? bits : bits & ((std::uint64_t{1} << width) - 1);
}

std::uint64_t saturate(DType dtype, double number) {
  if (std::isnan(number)) return 0;
  const int width = base::size_bytes(dtype) * 8;
  if (base::is_signed_integral(dtype)) {
    const double limit = std::ldexp(1.0, width - 1);
    if (number >= limit) return (std::uint64_t{1} << (width - 1)) - 1;
    if (number < -limit) return truncate(dtype, std::uint64_t{1} << (width - 1));
    return truncate(dtype, static_cast<std::uint64_t>(static_cast<std::int64_t>(number)));
  }
  if (number >= std::ldexp(1.0, width)) return truncate(dtype, ~std::uint64_t{0});
  // A negative number wraps, as an integer would: -1 is the largest value.
  if (number < 0) {
    const double lowest = -std::ldexp(1.0, 63);
    return truncate(
        dtype, static_cast<std::uint64_t>(static_cast<std::int64_t>(std::max(number, lowest))));
  }
  return static_cast<std::uint64_t>(number);
}

// The bits of a number in a type that is not complex.
std::uint64_t encode(DType dtype, double number) {
  if (dtype == DType::kBool) return number != 0 ? 1 : 0;
  if (base::is_integral(dtype)) return saturate(dtype, number);
  if (dtype == DType::kFloat64) return std::bit_cast<std::uint64_t>(number);
  if (dtype == DType::kFloat32) return std::bit_cast<std::uint32_t>(static_cast<float>(number));
  return encode_narrow(dtype, number);
}

std::uint64_t encode(DType dtype, std::int64_t number) {
  if (dtype == DType::kBool) return number != 0 ? 1 : 0;
  if (base::is_integral(dtype)) return truncate(dtype, static_cast<std::uint64_t>(number));
  if (dtype == DType::kFloat32) return std::bit_cast<std::uint32_t>(static_cast<float>(number));
  return encode(dtype, static_cast<double>(number));
}

// One element of any dtype; `imaginary` is used by the complex ones only.
struct Bits {
  std::uint64_t real = 0;
  std::uint64_t imaginary = 0;
  friend bool operator==(const Bits&, const Bits&) = default;
};

template <typename Number>
Bits element_bits(DType dtype, Number number) {
  const DType part = base::real_dtype(dtype);
  if constexpr (std::is_same_v<Number, std::complex<double>>) {
    if (dtype == DType::kBool) return {number != 0.0 ? 1U : 0U, 0};
    Bits bits{encode(part, number.real()), 0};
    if (base::is_complex(dtype)) bits.imaginary = encode(part, number.imag());
    return bits;
  } else {
    return {encode(part, number), 0};
  }
}

void append_hexadecimal(std::string& out, std::uint64_t bits, int num_bytes) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  for (int i = 2 * num_bytes - 1; i >= 0; --i) out += kDigits[(bits >> (4 * i)) & 15];
}

void append_number(std::string& out, DType dtype, std::uint64_t bits) {
  if (dtype == DType::kBool) {
    out += boolean(bits != 0);
    return;
  }
  if (base::is_signed_integral(dtype)) {
    const int shift = 64 - 8 * base::size_bytes(dtype);
    append_integer(out, static_cast<std::int64_t>(bits << shift) >> shift);
    return;
  }
  if (base::is_integral(dtype)) {
    out += std::to_string(bits);
    return;
  }
  const double value =
      dtype == DType::kFloat64 ? std::bit_cast<double>(bits)
      : dtype == DType::kFloat32
          ? static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)))
          : decode_narrow(dtype, bits);
  if (std::isfinite(value)) {
    append_float(out, value);
  } else {
    out += "0x";
    append_hexadecimal(out, bits, base::size_bytes(dtype));
  }
}

void append_element(std::string& out, DType dtype, const Bits& bits) {
  const DType part = base::real_dtype(dtype);
  if (!base::is_complex(dtype)) {
    append_number(out, part, bits.real);
    return;
  }
  out += '(';
  append_number(out, part, bits.real);
  out += ", ";
  append_number(out, part, bits.imaginary);
  out += ')';
}

// Brackets nest as dimensions do.
void append_nested(std::string& out, const Type& type, std::size_t dimension, const Bits*& next) {
  if (dimension == type.dims.size()) {
    append_element(out, type.dtype, *next++);
    return;
  }
  out += '[';
  for (std::int64_t i = 0; i < type.dims[dimension]; ++i) {
    if (i > 0) out += ", ";
    append_nested(out, type, dimension + 1, next);
  }
  out += ']';
}

void append_little_endian(std::string& out, std::uint64_t bits, int num_bytes) {
  for (int i = 0; i < num_bytes; ++i) append_hexadecimal(out, (bits >> (8 * i)) & 255, 1);
}

void append_bytes(std::string& out, DType dtype, std::span<const Bits> elements) {
  const int num_bytes = base::size_bytes(base::real_dtype(dtype));
  out.reserve(out.size() + 4 * elements.size() * static_cast<std::size_t>(num_bytes) + 4);
  out += "\"0x";
  for (const Bits& bits : elements) {
    append_little_endian(out, bits.real, num_bytes);
    if (base::is_complex(dtype)) append_little_endian(out, bits.imaginary, num_bytes);
  }
  out += '"';
}

// `elements` holds every element, or one for all.
void append_elements(std::string& out, const Type& type, std::span<const Bits> elements) {
  if (elements.size() == 1) {
    append_element(out, type.dtype, elements[0]);
  } else if (elements.size() <= kMaxListedElements || type.dtype == DType::kBool) {
    const Bits* next = elements.data();
    append_nested(out, type, 0, next);
  } else {
    append_bytes(out, type.dtype, elements);
  }
}

Value emit(Builder& builder, const Type& type, std::span<const Bits> elements) {
  std::string properties = "value = dense<";
  if (type.num_elements() > 0) append_elements(properties, type, elements);
  properties += "> : ";
  properties += builder.intern(type)->text;
  Value value = builder.op_once("stablehlo.constant", type, properties);
  value.is_nonzero = std::find(elements.begin(), elements.end(), Bits{}) == elements.end();
  return value;
}

template <typename Number>
Value emit_elements(Builder& builder, const Type& type, std::span<const Number> numbers) {
  require(static_cast<std::int64_t>(numbers.size()) == type.num_elements(), "stablehlo.constant",
          "must have ", type.num_elements(), " elements for ", Show(type), ", got ",
          numbers.size());
  if (builder.mode() == Mode::kTypesOnly) return builder.op_once("stablehlo.constant", type, {});
  std::vector<Bits> bits;
  bits.reserve(numbers.size());
  for (const Number& number : numbers) bits.push_back(element_bits(type.dtype, number));
  const bool is_splat = !bits.empty() && std::all_of(bits.begin(), bits.end(), [&](const Bits& b) {
    return b == bits.front();
  });
  return emit(builder, type, is_splat ? std::span<const Bits>(bits.data(), 1) : bits);
}

template <typename Number>
Value emit_full(Builder& builder, const Type& type, Number number) {
  if (builder.mode() == Mode::kTypesOnly) return builder.op_once("stablehlo.constant", type, {});
  const Bits bits = element_bits(type.dtype, number);
  return emit(builder, type, {&bits, 1});
}

}  // namespace

Value constant(Builder& builder, const Type& type, std::span<const double> elements) {
  return emit_elements(builder, type, elements);
}

Value constant(Builder& builder, const Type& type, std::span<const std::int64_t> elements) {
  return emit_elements(builder, type, elements);
}

Value constant(Builder& builder, const Type& type, std::span<const std::complex<double>> elements) {
  return emit_elements(builder, type, elements);
}

Value full(Builder& builder, const Type& type, double value) {
  return emit_full(builder, type, value);
}

Value full(Builder& builder, const Type& type, std::int64_t value) {
  return emit_full(builder, type, value);
}

Value full(Builder& builder, const Type& type, int value) {
  return emit_full(builder, type, static_cast<std::int64_t>(value));
}

Value full(Builder& builder, const Type& type, bool value) {
  return emit_full(builder, type, static_cast<std::int64_t>(value));
}

Value full(Builder& builder, const Type& type, std::complex<double> value) {
  return emit_full(builder, type, value);
}

Value lowest(Builder& builder, const Type& type) {
  require(!base::is_complex(type.dtype), "stablehlo.constant",
          "complex numbers have no order, got ", Show(type));
  if (type.dtype == DType::kFloat8E4M3FN) return full(builder, type, -448.0);
  if (base::is_floating(type.dtype)) {
    return full(builder, type, -std::numeric_limits<double>::infinity());
  }
  if (!base::is_signed_integral(type.dtype)) return full(builder, type, 0);
  const int width = 8 * base::size_bytes(type.dtype);
  return full(builder, type, std::numeric_limits<std::int64_t>::min() >> (64 - width));
}

Value highest(Builder& builder, const Type& type) {
  require(!base::is_complex(type.dtype), "stablehlo.constant",
          "complex numbers have no order, got ", Show(type));
  if (type.dtype == DType::kFloat8E4M3FN) return full(builder, type, 448.0);
  if (base::is_floating(type.dtype)) {
    return full(builder, type, std::numeric_limits<double>::infinity());
  }
  if (!base::is_signed_integral(type.dtype)) return full(builder, type, std::int64_t{-1});
  const int width = 8 * base::size_bytes(type.dtype);
  return full(builder, type, std::numeric_limits<std::int64_t>::max() >> (64 - width));
}

Value iota(Builder& builder, const Type& type, std::int64_t iota_dimension) {
  require_dimension("stablehlo.iota", "iota_dimension", iota_dimension, type.rank());
  require(type.dtype != DType::kBool, "stablehlo.iota", "must be of number type, got ", Show(type));
  if (builder.mode() == Mode::kTypesOnly) return builder.op_once("stablehlo.iota", type, {});
  return builder.op_once("stablehlo.iota", type,
                         "iota_dimension = " + integer_attribute(iota_dimension));
}

}  // namespace torch_xla::hlo

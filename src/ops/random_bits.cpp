// Random bits as a hash of key and position, and the continuous distributions made of them.
#include "ops/random_bits.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/expression.h"

namespace torch_xla::ops {
namespace {

Value constant_like(Value like, std::uint64_t bits) {
  return hlo::full_like(like, static_cast<std::int64_t>(bits));
}

Value times(Value x, std::uint64_t factor) { return hlo::multiply(x, constant_like(x, factor)); }

Value xor_shifted(Value x, std::uint64_t distance) {
  return hlo::xor_(x, hlo::shift_right_logical(x, constant_like(x, distance)));
}

// Bijections in which every input bit changes every output bit with a probability near one half.
Value mixed32(Value x, std::uint64_t first, std::uint64_t second) {
  x = times(xor_shifted(x, 16), first);
  x = times(xor_shifted(x, 15), second);
  return xor_shifted(x, 16);
}
Value mixed64(Value x) {
  x = times(xor_shifted(x, 30), 0xbf58476d1ce4e5b9ULL);
  x = times(xor_shifted(x, 27), 0x94d049bb133111ebULL);
  return xor_shifted(x, 31);
}

constexpr std::int64_t kMost32 = std::numeric_limits<std::uint32_t>::max();

thread_local const Value* numbered = nullptr;

Value positions(hlo::Builder& builder, DType dtype, const Dims& dims) {
  const std::int64_t size = base::num_elements(dims);
  if (numbered == nullptr) return hlo::iota(builder, {dtype, {size}}, 0);
  if (numbered->dims() != dims || size > kMost32) {
    base::fail(base::ErrorKind::kUnimplemented, "random numbers of these sizes are not numbered");
  }
  return convert(hlo::reshape(*numbered, {size}), dtype);
}

}  // namespace

NumberedElements::NumberedElements(Value ranks) : ranks_(ranks) {
  base::internal_check(numbered == nullptr, "elements are numbered twice");
  numbered = &ranks_;
}

NumberedElements::~NumberedElements() { numbered = nullptr; }

Value random_bits32(Value key, const Dims& dims) {
  if (base::num_elements(dims) > kMost32) {
    return convert(random_bits64(key, dims), DType::kUInt32);
  }
  // The halves of the key enter one after the other: with a single mix, keys that are near each
  // other would give the same numbers at shifted positions.
  const Value low = convert(key, DType::kUInt32);
  const Value high = convert(hlo::shift_right_logical(key, constant_like(key, 32)), DType::kUInt32);
  const Value i = positions(key.builder(), DType::kUInt32, dims);
  Value x = mixed32(i + low, 0x7feb352d, 0x846ca68b);
  x = mixed32(x + high, 0x85ebca6b, 0xc2b2ae35);
  return hlo::reshape(x, dims);
}

Value random_bits64(Value key, const Dims& dims) {
  const Value i = positions(key.builder(), DType::kUInt64, dims);
  return hlo::reshape(mixed64(times(i, 0x9e3779b97f4a7c15ULL) + key), dims);
}

Value derived_key(Value key, std::uint64_t stream) {
  return derived_key(key, constant_like(key, stream));
}

Value derived_key(Value key, Value stream) {
  return mixed64(key + times(stream, 0xd1b54a32d192ed03ULL) + constant_like(key, 1));
}

DType random_dtype(DType dtype) {
  const bool is_double = dtype == DType::kFloat64 || dtype == DType::kComplex128;
  return is_double ? DType::kFloat64 : DType::kFloat32;
}

namespace {

// Random integers of that many bits, as floats; signed integers convert faster than unsigned ones.
Value random_integer(Value key, DType dtype, const Dims& dims, int digits) {
  const bool is_double = dtype == DType::kFloat64;
  const Value bits = is_double ? random_bits64(key, dims) : random_bits32(key, dims);
  const int width = is_double ? 64 : 32;
  const Value high = hlo::shift_right_logical(
      bits, constant_like(bits, static_cast<std::uint64_t>(width - digits)));
  return convert(convert(high, is_double ? DType::kInt64 : DType::kInt32), dtype);
}

}  // namespace

Value random_uniform(Value key, DType dtype, const Dims& dims, int digits) {
  return random_integer(key, dtype, dims, digits) * std::ldexp(1.0, -digits);
}

Value random_uniform(Value key, DType dtype, const Dims& dims) {
  return random_uniform(key, dtype, dims, dtype == DType::kFloat64 ? 53 : 24);
}

Value random_open_uniform(Value key, DType dtype, const Dims& dims) {
  // One digit less leaves room for the half.
  const int digits = dtype == DType::kFloat64 ? 52 : 23;
  return (random_integer(key, dtype, dims, digits) + 0.5) * std::ldexp(1.0, -digits);
}

Value random_normal(Value key, DType dtype, const Dims& dims) {
  const Value symmetric = random_open_uniform(key, dtype, dims) * 2.0 - 1.0;
  return hlo::erf_inv(symmetric) * std::sqrt(2.0);
}

Value random_exponential(Value key, DType dtype, const Dims& dims) {
  return -hlo::log(random_open_uniform(key, dtype, dims));
}

}  // namespace torch_xla::ops

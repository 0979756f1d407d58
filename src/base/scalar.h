// A constant number as PyTorch's `Scalar` carries it: bool, int64, float64 or complex128.
#pragma once

#include <complex>
#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>

#include "base/dtype.h"
#include "base/error.h"

namespace torch_xla::base {

class Scalar {
 public:
  Scalar() : value_(std::int64_t{0}) {}
  Scalar(bool value) : value_(value) {}                  // NOLINT(google-explicit-constructor)
  Scalar(int value) : value_(std::int64_t{value}) {}     // NOLINT(google-explicit-constructor)
  Scalar(std::int64_t value) : value_(value) {}          // NOLINT(google-explicit-constructor)
  Scalar(double value) : value_(value) {}                // NOLINT(google-explicit-constructor)
  Scalar(std::complex<double> value) : value_(value) {}  // NOLINT(google-explicit-constructor)

  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  // False for bool.
  bool is_int() const { return std::holds_alternative<std::int64_t>(value_); }
  bool is_floating() const { return std::holds_alternative<double>(value_); }
  bool is_complex() const { return std::holds_alternative<std::complex<double>>(value_); }

  // kBool, kInt64, kFloat64 or kComplex128.
  DType dtype() const {
    constexpr DType kTypes[] = {DType::kBool, DType::kInt64, DType::kFloat64, DType::kComplex128};
    return kTypes[value_.index()];
  }

  // The number converted as static_cast does; a complex number must have no imaginary part.
  template <typename T>
  T to() const {
    return std::visit(
        [](auto v) -> T {
          if constexpr (std::is_same_v<T, std::complex<double>>) {
            return T(v);
          } else if constexpr (std::is_same_v<decltype(v), std::complex<double>>) {
            check(v.imag() == 0, "value cannot be converted to a real number without overflow");
            return static_cast<T>(v.real());
          } else {
            return static_cast<T>(v);
          }
        },
        value_);
  }

  friend bool operator==(const Scalar&, const Scalar&) = default;

 private:
  std::variant<bool, std::int64_t, double, std::complex<double>> value_;
};

}  // namespace torch_xla::base

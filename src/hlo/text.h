// MLIR attribute syntax, for the properties that the operations in hlo/ops.h print. Internal to
// src/hlo.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hlo/ops.h"

namespace torch_xla::hlo {

void append_integer(std::string& out, std::int64_t value);
// The shortest decimal with a point that reads back as `value`, which must be finite.
void append_float(std::string& out, double value);

// "tensor<2x3xf32>"
std::string type_text(const Type& type);
// "\"name\"", with escapes.
std::string string_literal(std::string_view text);
// "7 : i64"
std::string integer_attribute(std::int64_t value, std::string_view type = "i64");
// "array<i64: 1, 2>"
std::string array_attribute(const Dims& values);
// "array<i1: false, true>"
std::string array_attribute(const std::vector<bool>& values);
// "[1, 2]"
std::string list(const Dims& values);
// "dense<[[1, 1], [0, 0]]> : tensor<2x2xi64>"; every row has `columns` elements.
std::string matrix_attribute(const std::vector<Dims>& rows, std::size_t columns);
std::string matrix_attribute(const Padding& rows);
// "{a = 1 : i64, b = \"x\"}"
std::string dictionary_attribute(const Attributes& attributes);
// ", precision_config = [...]", or nothing for the default.
std::string precision_property(Precision precision);

inline std::string_view boolean(bool value) { return value ? "true" : "false"; }

}  // namespace torch_xla::hlo

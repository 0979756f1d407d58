// Spelling of types and attributes. Operations with their own attribute classes print those where
// they are emitted; what several share is here.
#include "hlo/text.h"

#include <array>
#include <cmath>
#include <system_error>

namespace torch_xla::hlo {
namespace {

template <typename Range, typename Append>
void append_joined(std::string& out, const Range& range, const Append& append) {
  bool first = true;
  for (const auto& element : range) {
    if (!first) out += ", ";
    first = false;
    append(element);
  }
}

// MLIR's decimal literals have no spelling for these; bits in hexadecimal have.
std::string float_attribute(double value, std::string_view type) {
  std::string out;
  if (std::isfinite(value)) {
    append_float(out, value);
  } else if (type == "f32") {
    out = std::isnan(value) ? "0x7FC00000" : value > 0 ? "0x7F800000" : "0xFF800000";
  } else {
    out = std::isnan(value) ? "0x7FF8000000000000"
          : value > 0       ? "0x7FF0000000000000"
                            : "0xFFF0000000000000";
  }
  return out.append(" : ").append(type);
}

struct AttributeText {
  std::string operator()(bool value) const { return std::string(boolean(value)); }
  std::string operator()(std::int32_t value) const { return integer_attribute(value, "i32"); }
  std::string operator()(std::int64_t value) const { return integer_attribute(value); }
  std::string operator()(float value) const { return float_attribute(value, "f32"); }
  std::string operator()(double value) const { return float_attribute(value, "f64"); }
  std::string operator()(const std::string& value) const { return string_literal(value); }
  std::string operator()(const std::vector<std::int64_t>& values) const {
    return array_attribute(values);
  }
  std::string operator()(const std::vector<double>& values) const {
    if (values.empty()) return "array<f64>";
    std::string out = "array<f64: ";
    append_joined(out, values, [&](double value) {
      base::check(std::isfinite(value), "attribute: array elements must be finite, got ", value);
      append_float(out, value);
    });
    return out + ">";
  }
};

}  // namespace

void append_integer(std::string& out, std::int64_t value) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out.append(digits.data(), end);
}

void append_float(std::string& out, double value) {
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  const std::string_view text(digits.data(), static_cast<std::size_t>(end - digits.data()));
  const std::size_t exponent = text.find('e');
  const std::string_view mantissa = text.substr(0, exponent);
  out += mantissa;
  if (mantissa.find('.') == std::string_view::npos) out += ".0";
  if (exponent != std::string_view::npos) out += text.substr(exponent);
}

std::string type_text(const Type& type) {
  std::string out = "tensor<";
  for (const std::int64_t d : type.dims) {
    append_integer(out, d);
    out += 'x';
  }
  out += base::dtype_info(type.dtype).hlo_name;
  out += '>';
  return out;
}

std::string string_literal(std::string_view text) {
  static constexpr std::string_view kHexDigits = "0123456789ABCDEF";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte >= 0x7f || c == '"' || c == '\\') {
      out += '\\';
      out += kHexDigits[byte >> 4];
      out += kHexDigits[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string integer_attribute(std::int64_t value, std::string_view type) {
  std::string out;
  append_integer(out, value);
  out += " : ";
  out += type;
  return out;
}

std::string array_attribute(const Dims& values) {
  if (values.empty()) return "array<i64>";
  std::string out = "array<i64: ";
  append_joined(out, values, [&](std::int64_t value) { append_integer(out, value); });
  return out + ">";
}

std::string array_attribute(const std::vector<bool>& values) {
  if (values.empty()) return "array<i1>";
  std::string out = "array<i1: ";
  append_joined(out, values, [&](bool value) { out += boolean(value); });
  return out + ">";
}

std::string list(const Dims& values) {
  std::string out = "[";
  append_joined(out, values, [&](std::int64_t value) { append_integer(out, value); });
  return out + "]";
}

std::string matrix_attribute(const std::vector<Dims>& rows, std::size_t columns) {
  std::string out = "dense<";
  if (!rows.empty() && columns > 0) {
    out += '[';
    append_joined(out, rows, [&](const Dims& row) { out += list(row); });
    out += ']';
  }
  out += "> : tensor<";
  append_integer(out, static_cast<std::int64_t>(rows.size()));
  out += 'x';
  append_integer(out, static_cast<std::int64_t>(columns));
  return out + "xi64>";
}

std::string matrix_attribute(const Padding& rows) {
  std::vector<Dims> matrix;
  matrix.reserve(rows.size());
  for (const auto& [low, high] : rows) matrix.push_back({low, high});
  return matrix_attribute(matrix, 2);
}

std::string dictionary_attribute(const Attributes& attributes) {
  std::string out = "{";
  append_joined(out, attributes, [&](const std::pair<std::string, Attribute>& attribute) {
    out += string_literal(attribute.first);
    out += " = ";
    out += std::visit(AttributeText{}, attribute.second);
  });
  return out + "}";
}

std::string precision_property(Precision precision) {
  if (precision == Precision::kDefault) return "";
  const std::string one = precision == Precision::kHigh ? "#stablehlo<precision HIGH>"
                                                        : "#stablehlo<precision HIGHEST>";
  return ", precision_config = [" + one + ", " + one + "]";
}

}  // namespace torch_xla::hlo

// The programs that the fake plugin runs: just enough StableHLO text, read line by line, to have
// parameters, donated parameters, elementwise arithmetic and results. Operations that it does not
// know give zeros of their result types, so any program that `src/hlo` emits can be launched.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
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

// "2x3xf32" as it stands between the angle brackets of tensor<...>.
inline ArrayType parse_tensor(std::string_view text) {
  ArrayType result;
  while (!text.empty() && text.front() >= '0' && text.front() <= '9') {
    const std::size_t x = text.find('x');
    result.dims.push_back(std::stoll(std::string(text.substr(0, x))));
    text.remove_prefix(x + 1);
  }
  text = text.substr(0, text.find(','));
  for (const TypeInfo& info : kTypes) {
    if (info.name == text) result.type = info.type;
  }
  if (result.type == PJRT_Buffer_Type_INVALID) {
    throw std::runtime_error("fake plugin: unknown type " + std::string(text));
  }
  return result;
}

// Every tensor<...> in `text`, in order.
inline std::vector<ArrayType> parse_tensors(std::string_view text) {
  std::vector<ArrayType> result;
  constexpr std::string_view kOpen = "tensor<";
  for (std::size_t at = text.find(kOpen); at != text.npos; at = text.find(kOpen, at + 1)) {
    std::size_t end = at + kOpen.size();
    for (int depth = 1; depth > 0 && end < text.size(); ++end) {
      depth += text[end] == '<' ? 1 : text[end] == '>' ? -1 : 0;
    }
    const std::size_t begin = at + kOpen.size();
    result.push_back(parse_tensor(text.substr(begin, end - 1 - begin)));
  }
  return result;
}

// Every %name in `text`, in order.
inline std::vector<std::string> parse_names(std::string_view text) {
  std::vector<std::string> result;
  for (std::size_t at = text.find('%'); at != text.npos; at = text.find('%', at + 1)) {
    std::size_t end = at + 1;
    while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 ||
                                 text[end] == '_' || text[end] == '#')) {
      ++end;
    }
    result.emplace_back(text.substr(at, end - at));
  }
  return result;
}

// The position of the bracket that closes the one at `open`.
inline std::size_t closing_parenthesis(std::string_view text, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    if (text[i] == '(') ++depth;
    if (text[i] == ')' && --depth == 0) return i;
  }
  throw std::runtime_error("fake plugin: unbalanced parentheses");
}

struct Operation {
  std::string name;
  std::vector<std::string> operands;
  std::vector<std::string> results;
  std::vector<ArrayType> result_types;
  std::string constant;  // what stands in dense<...>
};

using Bytes = std::vector<char>;

class Program {
 public:
  explicit Program(std::string text) : text_(std::move(text)) { parse(); }

  const std::string& text() const { return text_; }
  const std::vector<ArrayType>& parameters() const { return parameters_; }
  const std::vector<ArrayType>& results() const { return results_; }
  std::size_t num_operations() const { return operations_.size(); }
  // True if the program says that this parameter's memory becomes an output.
  bool donates(std::size_t parameter) const { return donated_[parameter]; }

  std::vector<Bytes> run(const std::vector<const char*>& arguments) const {
    std::map<std::string, Value> values;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const char* data = arguments[i];
      values[parameter_names_[i]] = {parameters_[i],
                                     Bytes(data, data + size_bytes(parameters_[i]))};
    }
    for (const Operation& operation : operations_) evaluate(operation, values);
    std::vector<Bytes> outputs;
    for (std::size_t i = 0; i < results_.size(); ++i) {
      const auto found = values.find(i < returned_.size() ? returned_[i] : "");
      outputs.push_back(found != values.end() ? found->second.bytes
                                              : Bytes(size_bytes(results_[i])));
    }
    return outputs;
  }

 private:
  struct Value {
    ArrayType type;
    Bytes bytes;
  };

  void parse() {
    const std::string_view text = text_;
    // The one public function is @main, or @"main".
    const std::size_t main = text.find("func.func public @");
    if (main == text.npos) throw std::runtime_error("fake plugin: no public function @main");
    const std::size_t open = text.find('(', main);
    const std::size_t close = closing_parenthesis(text, open);
    parse_parameters(text.substr(open + 1, close - open - 1));
    const std::size_t body = text.find("{\n", close);
    const std::size_t first_brace = text.find('{', close);
    const std::size_t begin = body == text.npos ? first_brace : body;
    if (begin == text.npos) throw std::runtime_error("fake plugin: @main has no body");
    results_ = parse_tensors(text.substr(close + 1, begin - close - 1));
    parse_body(text.substr(begin + 1));
  }

  void parse_parameters(std::string_view text) {
    parameters_ = parse_tensors(text);
    parameter_names_ = parse_names(text);
    if (parameters_.size() != parameter_names_.size()) {
      throw std::runtime_error("fake plugin: cannot read the parameters of @main");
    }
    for (std::size_t i = 0; i < parameter_names_.size(); ++i) {
      const std::size_t at = text.find(parameter_names_[i] + ":");
      const std::size_t end =
          i + 1 < parameter_names_.size() ? text.find(parameter_names_[i + 1] + ":") : text.size();
      const std::string_view own = text.substr(at, end - at);
      donated_.push_back(own.find("tf.aliasing_output") != own.npos ||
                         own.find("jax.buffer_donor") != own.npos);
    }
  }

  void parse_body(std::string_view body) {
    int region_depth = 0;
    while (!body.empty()) {
      const std::size_t end = std::min(body.find('\n'), body.size());
      std::string_view line = body.substr(0, end);
      body.remove_prefix(std::min(end + 1, body.size()));
      const std::size_t start = line.find_first_not_of(" \t");
      if (start == line.npos) continue;
      line.remove_prefix(start);
      if (line.starts_with("})")) {
        if (--region_depth == 0) operations_.back().result_types = types_after_arrow(line);
      } else if (region_depth > 0) {
        if (line.ends_with("({")) ++region_depth;
      } else if (line.starts_with("return") || line.starts_with("func.return") ||
                 line.starts_with("\"func.return\"")) {
        returned_ = parse_names(line);
        return;
      } else if (line.front() == '%') {
        operations_.push_back(parse_operation(line));
        if (line.ends_with("({")) ++region_depth;
      }
    }
  }

  static std::vector<ArrayType> types_after_arrow(std::string_view line) {
    const std::size_t arrow = line.rfind("->");
    if (arrow != line.npos) return parse_tensors(line.substr(arrow));
    const std::vector<ArrayType> types = parse_tensors(line);  // `%0 = stablehlo.add %a, %b : type`
    return types.empty() ? types : std::vector<ArrayType>{types.back()};
  }

  static Operation parse_operation(std::string_view line) {
    Operation result;
    const std::size_t equals = line.find('=');
    result.results = parse_names(line.substr(0, equals));
    std::string_view rest = line.substr(equals + 1);
    rest.remove_prefix(std::min(rest.find_first_not_of(" \""), rest.size()));
    const std::size_t name_end = std::min(rest.find_first_of("\" ("), rest.size());
    result.name = std::string(rest.substr(0, name_end));
    const std::string_view after = rest.substr(name_end);
    result.operands =
        parse_names(after.substr(0, std::min(after.find_first_of("<{:"), after.size())));
    constexpr std::string_view kDense = "dense<";
    const std::size_t dense = after.find(kDense);
    if (dense != after.npos) {
      const std::size_t begin = dense + kDense.size();
      result.constant = std::string(after.substr(begin, after.find('>', begin) - begin));
    }
    result.result_types = types_after_arrow(line);
    return result;
  }

  static double load(const Value& value, std::int64_t i) {
    const char* at = value.bytes.data() + i * info_of(value.type.type).size_bytes;
    const auto as = [&]<typename T>(T number) {
      std::memcpy(&number, at, sizeof(number));
      return static_cast<double>(number);
    };
    switch (value.type.type) {
      case PJRT_Buffer_Type_F32: return as(float{});
      case PJRT_Buffer_Type_F64: return as(double{});
      case PJRT_Buffer_Type_S32: return as(std::int32_t{});
      case PJRT_Buffer_Type_S64: return as(std::int64_t{});
      case PJRT_Buffer_Type_PRED:
      case PJRT_Buffer_Type_U8: return as(std::uint8_t{});
      default: return 0;
    }
  }

  static void store(Value& value, std::int64_t i, double number) {
    char* at = value.bytes.data() + i * info_of(value.type.type).size_bytes;
    const auto as = [&]<typename T>(T converted) {
      converted = static_cast<T>(number);
      std::memcpy(at, &converted, sizeof(converted));
    };
    switch (value.type.type) {
      case PJRT_Buffer_Type_F32: return as(float{});
      case PJRT_Buffer_Type_F64: return as(double{});
      case PJRT_Buffer_Type_S32: return as(std::int32_t{});
      case PJRT_Buffer_Type_S64: return as(std::int64_t{});
      case PJRT_Buffer_Type_PRED:
      case PJRT_Buffer_Type_U8: return as(std::uint8_t{});
      default: return;
    }
  }

  // nullopt: not an elementwise operation that is known here.
  static std::optional<double> compute(std::string_view name, double a, double b) {
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

  static std::optional<double> splat(const std::string& constant) {
    if (constant == "true") return 1;
    char* end = nullptr;
    const double number = std::strtod(constant.c_str(), &end);
    const bool is_one_number = end != constant.c_str() && *end == '\0';
    // Hexadecimal constants are bit patterns, which only the zero-filled fallback may stand for.
    if (!is_one_number || constant.starts_with("0x")) return std::nullopt;
    return number;
  }

  static void evaluate(const Operation& operation, std::map<std::string, Value>& values) {
    for (std::size_t r = 0; r < operation.results.size() && r < operation.result_types.size();
         ++r) {
      const ArrayType& type = operation.result_types[r];
      values[operation.results[r]] = {type, Bytes(size_bytes(type))};
    }
    if (operation.results.size() != 1 || operation.result_types.size() != 1) return;
    Value& out = values[operation.results[0]];
    const std::int64_t count = out.type.num_elements();
    if (operation.name == "stablehlo.constant") {
      const double number = splat(operation.constant).value_or(0);
      for (std::int64_t i = 0; i < count; ++i) store(out, i, number);
      return;
    }
    std::vector<const Value*> operands;
    for (const std::string& name : operation.operands) {
      const auto found = values.find(name);
      if (found == values.end()) return;
      const std::int64_t elements = found->second.type.num_elements();
      if (elements != count && elements != 1) return;
      operands.push_back(&found->second);
    }
    if (operands.empty() || !compute(operation.name, 0, 0)) return;
    const auto element = [&](std::size_t which, std::int64_t i) {
      if (which >= operands.size()) return 0.0;
      return load(*operands[which], operands[which]->type.num_elements() == 1 ? 0 : i);
    };
    for (std::int64_t i = 0; i < count; ++i) {
      store(out, i, *compute(operation.name, element(0, i), element(1, i)));
    }
  }

  std::string text_;
  std::vector<ArrayType> parameters_;
  std::vector<std::string> parameter_names_;
  std::vector<bool> donated_;
  std::vector<ArrayType> results_;
  std::vector<Operation> operations_;
  std::vector<std::string> returned_;
};

}  // namespace fake

// The programs that the fake plugin runs: just enough StableHLO text, read line by line, to have
// parameters, donated parameters, elementwise arithmetic, collectives, shardings of parameters and
// results. Operations that it does not know give zeros of their result types, so any program that
// `src/hlo` emits can be launched.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fake_sharding.h"
#include "fake_values.h"
#include "pjrt_c_api.h"

namespace fake {

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
  std::string constant;    // what stands in dense<...>
  std::string attributes;  // the lines that open and close it
  std::string reduction;   // the first operation of its region
};

// What a program does not know by itself: the launch it runs in.
struct Surroundings {
  int replica = 0;
  // Runs the operation, a collective, on these operands.
  std::function<Values(const Operation&, const Values&)> collective;
};

class Program {
 public:
  explicit Program(std::string text) : text_(std::move(text)) { parse(); }

  const std::string& text() const { return text_; }
  const std::vector<ArrayType>& parameters() const { return parameters_; }
  const std::vector<ArrayType>& results() const { return results_; }
  std::size_t num_operations() const { return operations_.size(); }
  // True if the program says that this parameter's memory becomes an output.
  bool donates(std::size_t parameter) const { return donated_[parameter]; }

  // Of each parameter and result.
  const std::vector<Sharding>& parameter_shardings() const { return parameter_shardings_; }
  const std::vector<Sharding>& result_shardings() const { return result_shardings_; }

  Values run(const Values& arguments, const Surroundings& surroundings) const {
    std::map<std::string, Value> values;
    for (std::size_t i = 0; i < arguments.size(); ++i) values[parameter_names_[i]] = arguments[i];
    for (const Operation& operation : operations_) evaluate(operation, values, surroundings);
    Values outputs;
    for (std::size_t i = 0; i < results_.size(); ++i) {
      const auto found = values.find(i < returned_.size() ? returned_[i] : "");
      outputs.push_back(found != values.end() ? found->second : zeros(results_[i]));
    }
    return outputs;
  }

 private:
  void parse() {
    const std::string_view text = text_;
    // The one public function is @main, or @"main".
    const std::size_t main = text.find("func.func public @");
    if (main == text.npos) throw std::runtime_error("fake plugin: no public function @main");
    const std::size_t open = text.find('(', main);
    const std::size_t close = closing_parenthesis(text, open);
    meshes_ = parse_meshes(text);
    parse_parameters(text.substr(open + 1, close - open - 1));
    const std::size_t body = text.find("{\n", close);
    const std::size_t first_brace = text.find('{', close);
    const std::size_t begin = body == text.npos ? first_brace : body;
    if (begin == text.npos) throw std::runtime_error("fake plugin: @main has no body");
    const std::string_view results = text.substr(close + 1, begin - close - 1);
    results_ = parse_tensors(results);
    for (const std::string_view own : split_at_tensors(results)) {
      result_shardings_.push_back(parse_sharding(own, meshes_));
    }
    parse_body(text.substr(begin + 1));
  }

  void parse_parameters(std::string_view text) {
    parameters_ = parse_tensors(text);
    parameter_names_ = parse_names(text);
    if (parameters_.size() != parameter_names_.size()) {
      throw std::runtime_error("fake plugin: cannot read the parameters of @main");
    }
    for (const std::string_view own : split_at_tensors(text)) {
      donated_.push_back(own.find("tf.aliasing_output") != own.npos ||
                         own.find("jax.buffer_donor") != own.npos);
      parameter_shardings_.push_back(parse_sharding(own, meshes_));
    }
  }

  // What begins with each tensor<...>: the type and its attributes.
  static std::vector<std::string_view> split_at_tensors(std::string_view text) {
    constexpr std::string_view kTensor = "tensor<";
    std::vector<std::string_view> parts;
    for (std::size_t at = text.find(kTensor); at != text.npos;) {
      const std::size_t next = text.find(kTensor, at + 1);
      parts.push_back(text.substr(at, next == text.npos ? next : next - at));
      at = next;
    }
    return parts;
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
        if (--region_depth > 0) continue;
        operations_.back().result_types = types_after_arrow(line);
        operations_.back().attributes += line;
      } else if (region_depth > 0) {
        std::string& reduction = operations_.back().reduction;
        if (reduction.empty() && line.front() == '%') reduction = parse_operation(line).name;
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
    result.attributes = after;
    result.result_types = types_after_arrow(line);
    return result;
  }

  static bool is_collective(std::string_view name) {
    return name == "stablehlo.all_reduce" || name == "stablehlo.all_gather" ||
           name == "stablehlo.reduce_scatter" || name == "stablehlo.all_to_all" ||
           name == "stablehlo.collective_permute" || name == "stablehlo.collective_broadcast";
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

  static void evaluate(const Operation& operation, std::map<std::string, Value>& values,
                       const Surroundings& surroundings) {
    for (std::size_t r = 0; r < operation.result_types.size(); ++r) {
      values[result_name(operation, r)] = zeros(operation.result_types[r]);
    }
    if (is_collective(operation.name)) {
      run_collective(operation, values, surroundings);
      return;
    }
    if (operation.results.size() != 1 || operation.result_types.size() != 1) return;
    Value& out = values[operation.results[0]];
    const std::int64_t count = out.type.num_elements();
    if (operation.name == "stablehlo.constant") {
      const double number = splat(operation.constant).value_or(0);
      for (std::int64_t i = 0; i < count; ++i) store(out, i, number);
      return;
    }
    if (operation.name == "stablehlo.replica_id") return store(out, 0, surroundings.replica);
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

  // `%2 = ` has one result, `%2:2 = ` has %2#0 and %2#1.
  static std::string result_name(const Operation& operation, std::size_t index) {
    const bool shares_a_name = operation.results.size() < operation.result_types.size();
    return shares_a_name ? operation.results.at(0) + "#" + std::to_string(index)
                         : operation.results[index];
  }

  static void run_collective(const Operation& operation, std::map<std::string, Value>& values,
                             const Surroundings& surroundings) {
    Values operands;
    for (const std::string& name : operation.operands) operands.push_back(values.at(name));
    Values results = surroundings.collective(operation, operands);
    for (std::size_t r = 0; r < operation.result_types.size() && r < results.size(); ++r) {
      const ArrayType& type = operation.result_types[r];
      results[r].bytes.resize(size_bytes(type));  // what differed may be of another size
      values[result_name(operation, r)] = {type, std::move(results[r].bytes)};
    }
  }

  std::string text_;
  std::map<std::string, Mesh> meshes_;
  std::vector<ArrayType> parameters_;
  std::vector<std::string> parameter_names_;
  std::vector<bool> donated_;
  std::vector<Sharding> parameter_shardings_;
  std::vector<ArrayType> results_;
  std::vector<Sharding> result_shardings_;
  std::vector<Operation> operations_;
  std::vector<std::string> returned_;
};

}  // namespace fake

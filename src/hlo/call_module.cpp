// Takes a module's text apart as far as a call needs it: where its functions are, and their names.
#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include "hlo/checks.h"
#include "hlo/ops.h"

namespace torch_xla::hlo {
namespace {

constexpr std::string_view kName = "call_module";

// Behind the string, bracket or character that begins at `i`; strings hold brackets that count for
// nothing.
std::size_t skip_string(std::string_view text, std::size_t i) {
  for (++i; i < text.size() && text[i] != '"'; ++i) {
    if (text[i] == '\\') ++i;
  }
  return std::min(i + 1, text.size());
}

std::size_t skip_braces(std::string_view text, std::size_t i) {
  int depth = 0;
  while (i < text.size()) {
    if (text[i] == '"') {
      i = skip_string(text, i);
      continue;
    }
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return i + 1;
    ++i;
  }
  return text.size();
}

// What stands between the braces of `module @name attributes {...} {...}`.
std::string_view body_of(std::string_view module) {
  const std::size_t start = module.find("module");
  require(start != module.npos, kName, "the text must be a StableHLO module");
  std::size_t open = module.find('{', start);
  require(open != module.npos, kName, "the module has no body");
  if (module.substr(start, open - start).find("attributes") != module.npos) {
    open = module.find('{', skip_braces(module, open));
    require(open != module.npos, kName, "the module has no body");
  }
  const std::size_t end = skip_braces(module, open);
  return module.substr(open + 1, end - open - 2);
}

bool is_symbol_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$' || c == '.' ||
         c == '-';
}

// Every symbol gets the prefix, so that two modules do not meet, and no function stays public.
std::string with_prefix(std::string_view body, const std::string& prefix) {
  std::string out;
  out.reserve(body.size() + body.size() / 16);
  for (std::size_t i = 0; i < body.size();) {
    std::size_t end = i + 1;
    if (body[i] == '"') {
      end = skip_string(body, i);
      out += body.substr(i, end - i);
    } else if (body[i] == '@') {
      const bool is_quoted = end < body.size() && body[end] == '"';
      if (is_quoted) {
        end = skip_string(body, end);
      } else {
        while (end < body.size() && is_symbol_character(body[end])) ++end;
      }
      const std::string_view name =
          is_quoted ? body.substr(i + 2, end - i - 3) : body.substr(i + 1, end - i - 1);
      out += "@\"" + prefix;
      out += name;
      out += '"';
    } else if (body.substr(i).starts_with("func.func public ")) {
      out += "func.func private ";
      end = i + std::string_view("func.func public ").size();
    } else {
      out += body[i];
    }
    i = end;
  }
  return out;
}

}  // namespace

Values call_module(Builder& builder, const Values& operands, const std::string& module,
                   const std::vector<Type>& results) {
  std::string prefix = "m";
  prefix += std::to_string(std::hash<std::string>{}(module));
  prefix += '.';
  const std::string name = prefix + "main";
  if (!builder.has_function(name)) {
    const std::string text = with_prefix(body_of(module), prefix);
    require(text.find("func.func private @\"" + name + "\"") != text.npos, kName,
            "the module must have a function @main");
    std::vector<Type> parameters;
    for (const Value& operand : operands) parameters.push_back(operand.type());
    builder.define_functions(name, parameters, results, text);
  }
  return builder.call(name, operands);
}

}  // namespace torch_xla::hlo

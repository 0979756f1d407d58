#include "runtime/create_options.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "base/error.h"

namespace torch_xla::runtime {
namespace {

template <typename T>
std::optional<T> number_in(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stopped != end) return std::nullopt;
  return value;
}

// The integers between the brackets; nothing if there is something else.
std::optional<std::vector<std::int64_t>> integers_in(std::string_view text) {
  std::vector<std::int64_t> values;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const auto value = number_in<std::int64_t>(part);
    if (!value) return std::nullopt;
    values.push_back(*value);
  }
  return values;
}

pjrt::NamedValue value_of(std::string_view text) {
  if (text == "true" || text == "false") return text == "true";
  if (const auto value = number_in<std::int64_t>(text)) return *value;
  if (const auto value = number_in<float>(text)) return *value;
  if (text.starts_with('[') && text.ends_with(']')) {
    if (auto values = integers_in(text.substr(1, text.size() - 2))) return *std::move(values);
  }
  return std::string(text);
}

}  // namespace

pjrt::NamedValues parse_create_options(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n";
  pjrt::NamedValues options;
  while (true) {
    const std::size_t start = text.find_first_not_of(kSpaces);
    if (start == text.npos) return options;
    text.remove_prefix(start);
    const std::string_view option = text.substr(0, text.find_first_of(kSpaces));
    text.remove_prefix(option.size());
    const std::size_t equals = option.find('=');
    if (equals == option.npos || equals == 0) {
      base::fail(base::ErrorKind::kValue,
                 "PJRT_CREATE_OPTIONS: an option must look like "
                 "name=value, got '",
                 option, "'");
    }
    options.insert_or_assign(std::string(option.substr(0, equals)),
                             value_of(option.substr(equals + 1)));
  }
}

}  // namespace torch_xla::runtime

// The options of each platform, and the user's.
#include "runtime/platform_options.h"

#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/settings.h"

namespace torch_xla::runtime {
namespace {

using Options = std::map<std::string, pjrt::OptionOverride>;

struct Custom {
  std::mutex mutex;
  Options options;  // under mutex
};

Custom& custom() {
  static auto* const instance = new Custom();
  return *instance;
}

// What XLA does best with. Each with the reason, since defaults change.
const Options& platform_defaults(std::string_view platform) {
  static const auto* const cpu = new Options{};
  static const auto* const none = new Options{};
  return platform == "cpu" ? *cpu : *none;
}

// XLA parses numbers and names out of strings, but booleans only as Python spells them.
pjrt::OptionOverride with_booleans(pjrt::OptionOverride value) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return value;
  if (*text == "true" || *text == "True") return true;
  if (*text == "false" || *text == "False") return false;
  return value;
}

void add_options(base::Hasher& hasher, const Options& options) {
  hasher.add(options.size());
  for (const auto& [name, value] : options) {
    hasher.add(std::string_view(name));
    hasher.add(value.index());
    std::visit([&](const auto& v) { hasher.add(std::string_view(base::str(v))); }, value);
  }
}

}  // namespace

void set_custom_compile_options(Options options) {
  const std::lock_guard lock(custom().mutex);
  custom().options = std::move(options);
}

Options custom_compile_options() {
  const std::lock_guard lock(custom().mutex);
  return custom().options;
}

Options parse_xla_flags(std::string_view text) {
  Options flags;
  while (true) {
    const std::size_t start = text.find_first_not_of(" \t\n");
    if (start == text.npos) return flags;
    text.remove_prefix(start);
    std::string_view flag = text.substr(0, text.find_first_of(" \t\n"));
    text.remove_prefix(flag.size());
    base::check(flag.starts_with("--"), "XLA_FLAGS: a flag must look like --xla_name=value, got '",
                flag, "'");
    flag.remove_prefix(2);
    const std::size_t equals = flag.find('=');
    if (equals == flag.npos) {
      flags.insert_or_assign(std::string(flag), true);
    } else {
      flags.insert_or_assign(std::string(flag.substr(0, equals)),
                             std::string(flag.substr(equals + 1)));
    }
  }
}

pjrt::CompileOptions compile_options(std::string_view platform) {
  pjrt::CompileOptions options;
  options.portable = true;
  options.env_option_overrides = platform_defaults(platform);
  for (auto& [name, value] : parse_xla_flags(base::settings().xla_flags())) {
    options.env_option_overrides.insert_or_assign(name, with_booleans(value));
  }
  for (auto& [name, value] : custom_compile_options()) {
    options.env_option_overrides.insert_or_assign(name, with_booleans(value));
  }
  return options;
}

base::Hash128 compile_options_key(std::string_view platform) {
  base::Hasher hasher;
  hasher.add(platform);
  base::settings().add_compile_key(hasher);
  const std::lock_guard lock(custom().mutex);
  add_options(hasher, custom().options);
  return hasher.finish();
}

}  // namespace torch_xla::runtime

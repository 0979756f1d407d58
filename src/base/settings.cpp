// Reading settings from the environment, and what is derived from the table as a whole.
#include "base/settings.h"

#include <cerrno>
#include <cstdlib>
#include <initializer_list>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace torch_xla::base {
namespace {

std::atomic<std::uint64_t> total_changes{0};

bool is_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    if (text == word) return true;
  }
  return false;
}

bool parse(std::string_view text, bool& value, const SettingInfo&) {
  if (is_one_of(text, {"1", "true", "True", "TRUE", "yes", "on"})) {
    value = true;
    return true;
  }
  value = false;
  return is_one_of(text, {"0", "false", "False", "FALSE", "no", "off", ""});
}

bool parse(std::string_view text, std::int64_t& value, const SettingInfo& info) {
  const std::string owned(text);
  char* end = nullptr;
  errno = 0;
  value = std::strtoll(owned.c_str(), &end, 10);
  return !owned.empty() && errno == 0 && *end == '\0' && value >= least_of(info.name) &&
         value <= most_of(info.name);
}

bool parse(std::string_view text, std::string& value, const SettingInfo&) {
  value = text;
  return true;
}

std::string print(bool value) { return value ? "1" : "0"; }
std::string print(std::int64_t value) { return std::to_string(value); }
std::string print(const std::string& value) { return value; }

std::string complaint(const SettingInfo& info, std::string_view text) {
  std::string wanted = "0 or 1";
  if (info.type_name != "bool") {
    wanted = str("an integer of at least ", least_of(info.name));
    constexpr auto kAny = std::numeric_limits<std::int64_t>::max();
    if (most_of(info.name) < kAny) wanted += str(" and at most ", most_of(info.name));
  }
  return str(info.environment_variable, " must be ", wanted, ", got '", text, "'");
}

}  // namespace

std::uint64_t SettingBase::num_changes() { return total_changes.load(std::memory_order_acquire); }

void SettingBase::note_change() { total_changes.fetch_add(1, std::memory_order_release); }

template <typename T>
void Setting<T>::load_from_environment() const {
  const std::lock_guard lock(load_mutex_);
  if (is_loaded_.load(std::memory_order_relaxed)) return;
  T value = default_value_;
  const std::string variable(info_.environment_variable);
  if (const char* const text = std::getenv(variable.c_str())) {
    // A bad value must not throw here: the first use may be in a noexcept callback of PyTorch.
    if (!parse(text, value, info_)) {
      value = default_value_;
      warn(complaint(info_, text) + "; using " + print(value));
    }
  }
  value_.store(std::move(value));
  is_loaded_.store(true, std::memory_order_release);
}

template <typename T>
std::string Setting<T>::text() const {
  return print((*this)());
}

template <typename T>
std::string Setting<T>::default_text() const {
  return print(default_value_);
}

template <typename T>
void Setting<T>::set_text(std::string_view text) {
  T value = default_value_;
  if (!parse(text, value, info_)) fail(ErrorKind::kValue, complaint(info_, text));
  set(std::move(value));
}

template class Setting<bool>;
template class Setting<std::int64_t>;
template class Setting<std::string>;

std::vector<SettingBase*> Settings::all() {
#define TORCH_XLA_LIST_SETTING(type, name, variable, default_value, part, doc) &name,
  return {TORCH_XLA_SETTINGS(TORCH_XLA_LIST_SETTING)};
#undef TORCH_XLA_LIST_SETTING
}

SettingBase* Settings::find(std::string_view name) {
  for (SettingBase* const setting : all()) {
    const SettingInfo& info = setting->info();
    if (info.name == name || info.environment_variable == name) return setting;
  }
  return nullptr;
}

void Settings::reload() {
  for (SettingBase* const setting : all()) setting->reload();
}

void Settings::add_compile_key(Hasher& hasher) {
  for (const SettingBase* const setting : all()) {
    if (setting->info().key_part != CompileKeyPart::kInKey) continue;
    hasher.add(setting->info().name);
    hasher.add(setting->text());
  }
}

Settings& settings() {
  // Never destroyed: threads and static destructors may still ask at exit.
  static Settings* const instance = new Settings();
  return *instance;
}

std::string user_cache_directory() {
  const char* const chosen = std::getenv("XDG_CACHE_HOME");
  // A relative path there is to be ignored, says its specification.
  if (chosen != nullptr && *chosen == '/') return chosen;
  const char* const home = std::getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.cache" : std::string();
}

std::string settings_page() {
  std::ostringstream out;
  out << "# Settings\n\n"
         "Generated from the table in `src/base/settings.h` by `make docs`; do not edit.\n\n"
         "Each is an environment variable, read when the setting is first used, and an attribute "
         "of the\nsame name in Python's `torch_xla.settings`. A setting in the compile key makes "
         "programs compiled\nunder another value of it be compiled again.\n\n"
         "| Environment variable | Python attribute | Type | Default | In the compile key | Effect "
         "|\n|---|---|---|---|---|---|\n";
  Settings defaults;
  for (const SettingBase* const setting : defaults.all()) {
    const SettingInfo& info = setting->info();
    const std::string value = setting->default_text();
    out << "| `" << info.environment_variable << "` | `" << info.name << "` | " << info.type_name
        << " | " << (value.empty() ? "empty" : "`" + value + "`") << " | "
        << (info.key_part == CompileKeyPart::kInKey ? "yes" : "no") << " | " << info.documentation
        << " |\n";
  }
  return out.str();
}

}  // namespace torch_xla::base

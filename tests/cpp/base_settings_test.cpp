// Tests of the settings table: environment, code, compile key, generated page.
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/settings.h"
#include "check.h"

namespace torch_xla::base {
namespace {

// Sets an environment variable for the life of the object, with all settings unread before and
// after.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    setenv(name, value, 1);
    settings().reload();
  }
  ~ScopedVariable() {
    unsetenv(name_);
    settings().reload();
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
};

Hash128 compile_key() {
  Hasher hasher;
  settings().add_compile_key(hasher);
  return hasher.finish();
}

TEST(defaults_hold_without_environment) {
  for (const SettingBase* setting : settings().all()) {
    unsetenv(std::string(setting->info().environment_variable).c_str());
  }
  settings().reload();
  EXPECT_EQ(settings().compilation_cache_size(), 2048);
  EXPECT_EQ(settings().cpu_num_devices(), 1);
  EXPECT_EQ(settings().max_inflight_launches(), 128);
  EXPECT(settings().enable_param_aliasing());
  EXPECT(!settings().no_special_scalars());
  EXPECT_EQ(settings().xla_flags(), "");
  for (const SettingBase* setting : settings().all()) {
    EXPECT_EQ(setting->text(), setting->default_text());
  }
}

TEST(environment_is_read_at_first_use_and_once) {
  const ScopedVariable devices("CPU_NUM_DEVICES", "4");
  const ScopedVariable scalars("XLA_NO_SPECIAL_SCALARS", "1");
  const ScopedVariable flags("XLA_FLAGS", "--xla_a=1 --xla_b=2");
  EXPECT_EQ(settings().cpu_num_devices(), 4);
  EXPECT(settings().no_special_scalars());
  EXPECT_EQ(settings().xla_flags(), "--xla_a=1 --xla_b=2");
  setenv("CPU_NUM_DEVICES", "5", 1);
  EXPECT_EQ(settings().cpu_num_devices(), 4);
}

TEST(malformed_variable_leaves_the_default) {
  const ScopedVariable devices("CPU_NUM_DEVICES", "four");
  const ScopedVariable aliasing("XLA_ENABLE_PARAM_ALIASING", "perhaps");
  EXPECT_EQ(settings().cpu_num_devices(), 1);
  EXPECT(settings().enable_param_aliasing());
}

TEST(integers_that_mean_nothing_leave_the_default) {
  for (SettingBase* const setting : settings().all()) {
    if (setting->info().type_name != "int") continue;
    EXPECT_THROWS(setting->set_text("-1"), "must be an integer of at least");
    EXPECT_EQ(setting->text(), setting->default_text());
  }
  for (const char* const text : {"0", "-1", "128", "99999999999999999999"}) {
    const ScopedVariable devices("CPU_NUM_DEVICES", text);
    EXPECT_EQ(settings().cpu_num_devices(), 1);
    EXPECT_THROWS(settings().cpu_num_devices.set_text(text), "CPU_NUM_DEVICES must be");
  }
  EXPECT_THROWS(settings().max_inflight_launches.set_text("0"), "of at least 1, got '0'");
  settings().reload();
}

TEST(code_overrides_the_environment) {
  const ScopedVariable devices("CPU_NUM_DEVICES", "4");
  settings().cpu_num_devices.set(2);
  EXPECT_EQ(settings().cpu_num_devices(), 2);
  settings().reload();
  EXPECT_EQ(settings().cpu_num_devices(), 4);
}

TEST(settings_are_found_by_either_name_and_set_as_text) {
  SettingBase* const by_name = settings().find("cpu_num_devices");
  SettingBase* const by_variable = settings().find("CPU_NUM_DEVICES");
  EXPECT(by_name != nullptr && by_name == by_variable);
  EXPECT(settings().find("no_such_setting") == nullptr);
  by_name->set_text("3");
  EXPECT_EQ(settings().cpu_num_devices(), 3);
  EXPECT_THROWS(by_name->set_text("3x"),
                "CPU_NUM_DEVICES must be an integer of at least 1 and at most 127, got '3x'");
  EXPECT_THROWS(settings().find("pt_xla_debug")->set_text("2"), "PT_XLA_DEBUG must be 0 or 1");
  EXPECT_EQ(settings().cpu_num_devices(), 3);
  settings().reload();
}

TEST(only_settings_in_the_key_change_it) {
  settings().reload();
  const Hash128 before = compile_key();
  settings().compilation_cache_size.set(7);
  EXPECT(compile_key() == before);
  settings().xla_flags.set("--xla_a=1");
  EXPECT(compile_key() != before);
  settings().reload();
  EXPECT(compile_key() == before);
}

TEST(page_has_a_row_for_every_setting) {
  const std::string page = settings_page();
  for (const SettingBase* setting : settings().all()) {
    const std::string cell = "| `" + std::string(setting->info().environment_variable) + "` |";
    EXPECT(page.find(cell) != std::string::npos);
  }
}

}  // namespace
}  // namespace torch_xla::base

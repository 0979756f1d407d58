// The suite of claims that hold for every plugin: PLUGIN_TEST(claim) { ... } registers the test
// once for each plugin, which the test gets as `plugin`, as claim[fake], claim[cpu], and, where the
// environment variable PJRT_LIBRARY_PATH names one, claim[PJRT_LIBRARY_PATH].
//
// A test that throws Unsupported, or a PJRT error of the code UNIMPLEMENTED, is unsupported by the
// plugin: it lacks what the test is about, and says so. That is no failure, but where the plugin is
// known (kExceptions) it must be listed, so that nothing is lost unseen. What a plugin does
// otherwise than claimed is listed as expected to fail, with its reason; a listed test that passes
// fails.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pjrt_fixture.h"

namespace torch_xla::testing {

class PluginUnderTest {
 public:
  PluginUnderTest(std::string name, std::string path)
      : name_(std::move(name)), path_(std::move(path)) {}

  const std::string& name() const { return name_; }
  std::shared_ptr<const pjrt::Plugin> load() const { return pjrt::Plugin::load(path_); }

  // A client of at least that many devices. Unsupported where there are fewer.
  std::shared_ptr<pjrt::Client> client(std::size_t num_devices = 1) const {
    std::shared_ptr<pjrt::Client> client;
    try {
      const auto count = static_cast<std::int64_t>(num_devices);
      client = pjrt::Client::create(load(), {{"cpu_device_count", count}});
    } catch (const pjrt::Error&) {  // the option is not one of its own
      client = pjrt::Client::create(load());
    }
    const std::size_t found = client->addressable_devices().size();
    if (found >= num_devices) return client;
    throw Unsupported{base::str(num_devices, " devices, there are ", found)};
  }

  // The same, of devices that work on the host's memory.
  std::shared_ptr<pjrt::Client> client_on_host_memory() const {
    std::shared_ptr<pjrt::Client> found = client();
    if (upload(found->addressable_devices()[0], {1}).is_on_cpu()) return found;
    throw Unsupported{"the device works on memory of its own"};
  }

 private:
  std::string name_;
  std::string path_;
};

inline const std::vector<PluginUnderTest>& plugins_under_test() {
  static const std::vector<PluginUnderTest> plugins = [] {
    std::vector<PluginUnderTest> result{{"fake", kFakePlugin}};
    if (has_cpu_plugin()) result.emplace_back("cpu", kCpuPlugin);
    const char* named = std::getenv("PJRT_LIBRARY_PATH");
    if (named != nullptr && *named != '\0') result.emplace_back("PJRT_LIBRARY_PATH", named);
    return result;
  }();
  return plugins;
}

struct Exception {
  std::string_view platform;  // as PJRT_Client_PlatformName says it
  std::string_view claim;
  Outcome outcome;
  std::string_view reason;
};

// The platforms of which every test that is unsupported is listed below.
inline constexpr std::string_view kKnownPlatforms[] = {"fake", "cpu"};

inline constexpr Exception kExceptions[] = {
    {"fake", "test_a_custom_call_runs_our_function", Outcome::kUnsupported, "no FFI extension"},
    {"fake", "test_an_unknown_flag_of_the_compiler_is_refused", Outcome::kExpectedFailure,
     "it has no compiler and reads no flags"},
    {"fake", "test_a_custom_call_schedules_tasks", Outcome::kUnsupported, "no FFI extension"},
    {"cpu", "test_memory_in_use_is_told", Outcome::kUnsupported, "no memory statistics"},
    {"cpu", "test_a_plugin_records_its_own_trace", Outcome::kUnsupported, "no profiler extension"},
};

// What is known of the claim on the plugin's platform, or nullptr.
inline const Exception* find_exception(std::string_view platform, std::string_view claim) {
  const auto* found = std::ranges::find_if(kExceptions, [&](const Exception& exception) {
    return exception.platform == platform && exception.claim == claim;
  });
  return found != std::end(kExceptions) ? found : nullptr;
}

// Holds the outcome against what is known.
inline Outcome judge(Outcome outcome, const std::string& name, std::string_view platform,
                     std::string_view claim) {
  const Exception* known = find_exception(platform, claim);
  const auto fail = [&](std::string_view what) {
    std::cerr << name << ": " << what << "\n";
    return Outcome::kFailed;
  };
  if (known == nullptr) {
    const bool must_be_listed =
        outcome == Outcome::kUnsupported &&
        std::ranges::find(kKnownPlatforms, platform) != std::end(kKnownPlatforms);
    return must_be_listed ? fail("is unsupported, but not listed in kExceptions") : outcome;
  }
  if (outcome == Outcome::kPassed) return fail("is listed in kExceptions, but passed");
  if (known->outcome == Outcome::kUnsupported || outcome == Outcome::kUnsupported) {
    return outcome == known->outcome ? outcome : fail("ended otherwise than kExceptions says");
  }
  std::cerr << "EXPECTED TO FAIL " << name << ": " << known->reason << "\n";
  return Outcome::kExpectedFailure;
}

using PluginTest = void (*)(const PluginUnderTest& plugin);

inline Outcome run_plugin_test(const std::string& claim, PluginTest body,
                               const PluginUnderTest& plugin) {
  const std::string name = claim + "[" + plugin.name() + "]";
  const Outcome outcome = outcome_of(name, [&] {
    try {
      body(plugin);
    } catch (const pjrt::Error& error) {
      if (error.code() != pjrt::ErrorCode::kUnimplemented) throw;
      throw Unsupported{error.what()};
    }
  });
  std::string platform;
  try {
    platform = plugin.client()->platform_name();
  } catch (const std::exception&) {  // the test has told what is wrong
  }
  return judge(outcome, name, platform, claim);
}

struct PluginTestRegistration {
  PluginTestRegistration(const std::string& claim, PluginTest body) {
    for (const PluginUnderTest& plugin : plugins_under_test()) {
      test_cases().push_back({claim + "[" + plugin.name() + "]",
                              [=, &plugin] { return run_plugin_test(claim, body, plugin); }});
    }
  }
};

}  // namespace torch_xla::testing

#define PLUGIN_TEST(claim)                                                                       \
  static void claim(const ::torch_xla::testing::PluginUnderTest& plugin);                        \
  static const ::torch_xla::testing::PluginTestRegistration claim##_registration(#claim, claim); \
  static void claim(const ::torch_xla::testing::PluginUnderTest& plugin)

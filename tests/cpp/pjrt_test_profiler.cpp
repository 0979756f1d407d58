// The profiler extension, which plugins may have. The fake one has it, the CPU's has not.
#include "pjrt/profiler.h"

#include <memory>

#include "pjrt_suite.h"

namespace torch_xla::pjrt {
namespace {

using namespace torch_xla::testing;  // NOLINT(google-build-using-namespace)

PLUGIN_TEST(test_a_plugin_records_its_own_trace) {
  const std::unique_ptr<Profiler> profiler = Profiler::create(*plugin.load());
  if (profiler == nullptr) throw Unsupported{"profiler extension"};
  profiler->start();
  profiler->stop();
  EXPECT(!profiler->collect().empty());
}

TEST(test_a_trace_is_what_the_plugin_made) {
  const std::unique_ptr<Profiler> profiler = Profiler::create(*Plugin::load(kFakePlugin));
  profiler->start();
  profiler->stop();
  EXPECT_EQ(profiler->collect(), "stopped");
}

TEST(test_what_a_profiler_complains_about_is_an_error) {
  const std::unique_ptr<Profiler> profiler = Profiler::create(*Plugin::load(kFakePlugin));
  const Error error = error_of([&] { profiler->stop(); });
  EXPECT_EQ(error.call(), "PLUGIN_Profiler_Stop");
  EXPECT_EQ(error.message(), "was created, must be started");
}

}  // namespace
}  // namespace torch_xla::pjrt

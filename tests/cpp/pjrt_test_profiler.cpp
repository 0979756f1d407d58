// The profiler extension, against the fake plugin, which has one, and the CPU's, which has none.
#include "pjrt/profiler.h"

#include <memory>

#include "pjrt_fixture.h"

namespace torch_xla::pjrt {
namespace {

using namespace torch_xla::testing;  // NOLINT(google-build-using-namespace)

TEST(test_a_plugin_records_its_own_trace) {
  const std::unique_ptr<Profiler> profiler = Profiler::create(*Plugin::load(kFakePlugin));
  EXPECT(profiler != nullptr);
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

TEST(test_a_plugin_without_profiler_gives_none) {
  EXPECT(Profiler::create(*Plugin::load(kCpuPlugin)) == nullptr);
}

}  // namespace
}  // namespace torch_xla::pjrt

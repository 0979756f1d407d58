// Captures and barriers: who waits for whom.
#include <chrono>
#include <future>
#include <optional>

#include "runtime/capture.h"
#include "runtime_fixture.h"

namespace torch_xla {
namespace {

using runtime::CaptureScope;
using testing::add;
using testing::Floats;
using testing::kFakePlugin;
using testing::Session;
using testing::Tensor;
using testing::tensor;
using testing::values_of;

TEST(a_barrier_waits_for_captures_of_its_device_alone) {
  const Session session(kFakePlugin, 2);
  runtime::Device& captured = runtime::device(0);
  runtime::Device& other = runtime::device(1);
  const Tensor a = tensor(captured, {1, 2});
  const Tensor b = tensor(other, {1, 2});
  const Tensor twice_a = add(a, a);
  const Tensor twice_b = add(b, b);
  std::optional<CaptureScope> capture(std::in_place, captured);
  EXPECT(captured.captures().is_any() && !other.captures().is_any());
  std::async(std::launch::async, [&] { runtime::sync(other, true); }).get();
  EXPECT(testing::is_leaf(twice_b));
  auto barrier = std::async(std::launch::async, [&] { runtime::sync(captured, true); });
  EXPECT(barrier.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  EXPECT(!testing::is_leaf(twice_a));
  capture.reset();
  barrier.get();
  EXPECT(values_of(twice_a) == (Floats{2, 4}));
}

TEST(a_barrier_inside_of_a_capture_is_an_error_on_any_device) {
  const Session session(kFakePlugin, 2);
  const CaptureScope capture(runtime::device(0));
  EXPECT_THROWS(runtime::sync(runtime::device(0), false), "put it outside");
  EXPECT_THROWS(runtime::sync(runtime::device(1), false), "put it outside");
}

}  // namespace
}  // namespace torch_xla

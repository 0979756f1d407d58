// Failures of compilations and of asynchronous work, on the fake plugin: where they surface, what
// they say, and that everything goes on afterwards.
#include <atomic>

#include "base/settings.h"
#include "runtime_fixture.h"

namespace torch_xla {
namespace {

using testing::add;
using testing::add_;
using testing::array_of;
using testing::AsyncFake;
using testing::Counts;
using testing::eventually;
using testing::FakePlugin;
using testing::Floats;
using testing::kFakePlugin;
using testing::Session;
using testing::Tensor;
using testing::tensor;
using testing::values_of;

template <typename Body>
base::ErrorKind kind_of_error(Body body) {
  try {
    body();
  } catch (const base::Error& error) {
    return error.kind();
  }
  EXPECT(false);
  return base::ErrorKind::kInternal;
}

TEST(a_failed_compilation_throws_at_the_barrier_and_at_the_reads) {
  const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
  const Session session(fake.path());
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2});
  const Tensor b = add(a, a);
  fake.fail("PJRT_Client_Compile", 13, "the compiler gave up");
  EXPECT_THROWS(runtime::sync(device, false, "train.py:7"), "of 1 operations (at train.py:7)");
  EXPECT_THROWS(values_of(b), "the compiler gave up");
  // What depends on it fails for the same reason, as long as there is one.
  EXPECT_THROWS(values_of(add(b, a)), "the compiler gave up");
  fake.reset();
  EXPECT(values_of(add(b, a)) == (Floats{3, 6}));
  EXPECT(values_of(a) == (Floats{1, 2}));
  EXPECT(values_of(add(a, a)) == (Floats{2, 4}));
}

TEST(an_operator_without_lowering_is_named) {
  const Session session(kFakePlugin);
  const Tensor a = tensor(runtime::device(0), {1, 2});
  const Tensor b = testing::record(testing::binary_entry("no_such_operator", a.type()), {a, a});
  EXPECT_THROWS(runtime::sync(runtime::device(0), false),
                "aten::no_such_operator has no lowering for the platform");
}

TEST(a_lowering_that_gives_another_type_is_an_internal_error) {
  const Session session(kFakePlugin);
  const Tensor a = tensor(runtime::device(0), {1, 2});
  graph::Entry entry = *testing::binary_entry("add.Tensor", a.type());
  entry.outputs = {testing::f32({3})};
  const Tensor b = testing::record(testing::entry_for("wrong", entry), {a, a});
  EXPECT_THROWS(values_of(b),
                "aten::add.Tensor: result 0 was recorded as f32[3] and lowered to f32[2]");
}

TEST(results_of_in_place_calls_are_converted) {
  const Session session(kFakePlugin);
  const Tensor a = tensor(runtime::device(0), {1.5, 2});
  graph::Entry entry = *testing::binary_entry("add.Tensor", a.type());
  graph::Op op = *entry.op;
  op.converts_result = true;
  entry.op = &op;
  entry.outputs = {graph::intern_contiguous({base::DType::kInt32, {3, 2}})};
  const Tensor b = testing::record(testing::entry_for("converted", entry), {a, a});
  EXPECT(array_of(b)->shape() == entry.outputs[0]->shape);
  array_of(b)->wait_ready();
}

TEST(a_failed_launch_is_reported_by_all_of_its_results) {
  const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
  const Session session(fake.path());
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2});
  const Tensor b = add(a, a);
  const Tensor c = add(b, a);
  fake.fail("PJRT_LoadedExecutable_Execute", 8, "out of memory");
  runtime::sync(device, false, "train.py:9");
  const auto is_in = [](std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
  };
  const auto is_told = [&](const base::Error& error) {
    const std::string_view what = error.what();
    return error.kind() == base::ErrorKind::kOutOfMemory &&
           is_in(what, "(started at train.py:9) failed") &&
           is_in(what, "its 2 results are computed anew if they are read") &&
           is_in(what, "live buffers of xla:0, 8 bytes in all:\n  8 bytes: 1 x f32[2]");
  };
  for (const Tensor& lost : {b, c}) {
    const std::exception_ptr error = array_of(lost)->await_launch();
    try {
      std::rethrow_exception(error);
    } catch (const base::Error& e) {
      EXPECT(is_told(e));
    }
  }
  const Tensor after = add(b, a);
  EXPECT_THROWS(runtime::sync(device, true), "its 2 results are computed anew");
  EXPECT_THROWS(values_of(c), "its 1 results are computed anew");
  fake.reset();
  EXPECT(values_of(add(a, a)) == (Floats{2, 4}));
  runtime::wait(device);
}

TEST(work_that_fails_later_is_reported_with_what_was_lost) {
  const AsyncFake fake;
  runtime::Device& device = runtime::device(0);
  const Tensor x = tensor(device, {1, 1});
  const Tensor w = tensor(device, {0, 0});
  add_(w, x);
  fake.fail("Execution", 8, "the device ran out of memory");
  EXPECT_THROWS(runtime::sync(device, true), "the device ran out of memory");
  EXPECT_THROWS(values_of(w), "its 1 results are lost, and so are 1 inputs");
  EXPECT(kind_of_error([&] { values_of(w); }) == base::ErrorKind::kOutOfMemory);
  fake.reset();
  EXPECT(values_of(add(x, x)) == (Floats{2, 2}));
}

TEST(a_launch_that_hangs_holds_up_neither_recording_nor_barriers) {
  const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
  const Session session(fake.path());
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2});
  fake.hang("PJRT_LoadedExecutable_Execute");
  const Tensor b = add(a, a);
  runtime::sync(device, false);
  const Tensor c = add(b, b);
  runtime::sync(device, false);
  EXPECT(eventually([&] { return fake.waiting("PJRT_LoadedExecutable_Execute") == 1; }));
  EXPECT(!array_of(b)->is_ready());
  EXPECT(!array_of(c)->is_ready());
  fake.release();
  EXPECT(values_of(c) == (Floats{4, 8}));
  EXPECT(array_of(b)->is_ready());
}

TEST(waiting_returns_when_the_values_are_there) {
  const AsyncFake fake;
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2});
  fake.hang("Execution");
  const Tensor b = add(a, a);
  runtime::sync(device, false);
  EXPECT(eventually([&] { return fake.waiting("Execution") == 1; }));
  std::atomic<bool> is_done{false};
  std::thread waiter([&] {
    runtime::sync(device, true);  // nothing of its own to compute
    is_done = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT(!is_done);
  fake.release();
  waiter.join();
  EXPECT(array_of(b)->is_ready());
}

TEST(barriers_wait_when_too_many_launches_are_unfinished) {
  const AsyncFake fake;
  base::settings().max_inflight_launches.set(2);
  runtime::Device& device = runtime::device(0);
  const Tensor x = tensor(device, {1, 1});
  const Tensor w = tensor(device, {0, 0});
  fake.hang("Execution");
  std::atomic<int> num_barriers{0};
  std::thread trainer([&] {
    for (int i = 0; i < 4; ++i) {
      add_(w, x);
      runtime::sync(device, false);
      ++num_barriers;
    }
  });
  EXPECT(eventually([&] { return num_barriers == 2; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(num_barriers.load(), 2);
  fake.release();
  trainer.join();
  EXPECT(values_of(w) == (Floats{4, 4}));
  base::settings().reload();
}

TEST(a_failed_compilation_may_be_tried_again) {
  const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
  const Session session(fake.path());
  const Counts counts;
  const Tensor a = tensor(runtime::device(0), {1, 2});
  fake.fail("PJRT_Client_Compile", 14, "the compiler is busy");
  EXPECT_THROWS(values_of(add(a, a)), "the compiler is busy");
  fake.reset();
  EXPECT(values_of(add(a, a)) == (Floats{2, 4}));
  EXPECT_EQ(counts.compiled(), 1);
}

}  // namespace
}  // namespace torch_xla

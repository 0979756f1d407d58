// Waits that a user ends, on the fake plugin: what is interrupted goes on in the background, and
// everything else as if nothing had been.
#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "base/settings.h"
#include "runtime/interruption.h"
#include "runtime_fixture.h"

namespace torch_xla {
namespace {

using testing::add;
using testing::add_;
using testing::AsyncFake;
using testing::Counts;
using testing::eventually;
using testing::Floats;
using testing::multiply;
using testing::tensor;
using testing::Tensor;
using testing::values_of;

struct Interrupted {};

thread_local bool belongs_to_user = false;
std::atomic<bool> is_requested{false};

// While it lives, the waits of a user's thread end when an interruption is requested.
class Interruptions {
 public:
  Interruptions() {
    runtime::set_interruption_hooks({[] { return belongs_to_user; },
                                     [] {
                                       if (is_requested.exchange(false)) throw Interrupted();
                                     },
                                     nullptr});
  }
  ~Interruptions() { runtime::set_interruption_hooks({}); }
};

// Calls `wait` on a user's thread, interrupts it when `is_waiting`, and says whether that ended it.
bool interrupts(const std::function<bool()>& is_waiting, const std::function<void()>& wait) {
  bool was_interrupted = false;
  std::atomic<bool> has_ended{false};
  std::thread user([&] {
    belongs_to_user = true;
    try {
      wait();
    } catch (const Interrupted&) {
      was_interrupted = true;
    }
    has_ended = true;
  });
  EXPECT(eventually([&] { return is_waiting() || has_ended; }));
  is_requested = true;
  user.join();
  is_requested = false;
  return was_interrupted;
}

TEST(an_interrupted_compilation_goes_on_and_holds_nobody_up) {
  const Interruptions interruptions;
  const AsyncFake fake;
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2});
  EXPECT(values_of(add(a, a)) == (Floats{2, 4}));  // has a program now
  const Counts counts;
  const Tensor product = multiply(a, a);
  fake.hang("PJRT_Client_Compile");
  EXPECT(interrupts([&] { return fake.waiting("PJRT_Client_Compile") == 1; },
                    [&] { runtime::sync(device, false); }));
  EXPECT_EQ(fake.waiting("PJRT_Client_Compile"), 1);
  // What has a program runs, though it comes later.
  EXPECT(values_of(add(a, a)) == (Floats{2, 4}));
  EXPECT_EQ(fake.waiting("PJRT_Client_Compile"), 1);
  // Others wait for the same compilation, and the result for its end.
  const Tensor other = tensor(device, {3, 4});
  std::thread second([&] {
    const Tensor same = multiply(other, other);
    runtime::sync(device, false);
    EXPECT(values_of(same) == (Floats{9, 16}));
  });
  EXPECT(interrupts([] { return true; }, [&] { values_of(product); }));
  fake.release();
  second.join();
  EXPECT(values_of(product) == (Floats{1, 4}));
  EXPECT_EQ(counts.compiled(), 1);
}

TEST(an_interrupted_compilation_that_fails_is_told_of_at_the_read) {
  const Interruptions interruptions;
  const AsyncFake fake;
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2});
  const Tensor b = add(a, a);
  fake.hang("PJRT_Client_Compile");
  EXPECT(interrupts([&] { return fake.waiting("PJRT_Client_Compile") == 1; },
                    [&] { runtime::sync(device, false, "train.py:3"); }));
  fake.fail("PJRT_Client_Compile", 13, "no such instruction");
  fake.release();
  EXPECT_THROWS(values_of(b), "no such instruction");
  fake.fail("PJRT_Client_Compile", 0, "");
  EXPECT(values_of(add(a, a)) == (Floats{2, 4}));
}

TEST(results_that_nobody_wants_after_an_interruption_are_not_computed) {
  const Interruptions interruptions;
  const AsyncFake fake;
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2});
  fake.hang("PJRT_Client_Compile");
  {
    const Tensor b = add(a, a);
    EXPECT(interrupts([&] { return fake.waiting("PJRT_Client_Compile") == 1; },
                      [&] { runtime::sync(device, false); }));
  }
  fake.release();
  EXPECT(values_of(multiply(a, a)) == (Floats{1, 4}));
  EXPECT_EQ(fake.calls("PJRT_LoadedExecutable_Execute"), 1);
}

TEST(waits_for_running_programs_are_interruptible) {
  const Interruptions interruptions;
  const AsyncFake fake;
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2});
  const Tensor b = add(a, a);
  fake.hang("Execution");
  const auto runs = [&] { return fake.waiting("Execution") == 1; };
  EXPECT(interrupts(runs, [&] { runtime::sync(device, true); }));
  EXPECT(interrupts(runs, [&] { runtime::wait(device); }));
  EXPECT(interrupts(runs, [&] { values_of(b); }));
  EXPECT(device.launches().runs_what_was_interrupted());
  fake.release();
  EXPECT(values_of(b) == (Floats{2, 4}));
  runtime::wait(device);
  EXPECT(!device.launches().runs_what_was_interrupted());
}

TEST(waits_for_launches_are_interruptible) {
  const Interruptions interruptions;
  const AsyncFake fake;
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2});
  const Tensor b = add(a, a);
  fake.hang("PJRT_LoadedExecutable_Execute");
  EXPECT(interrupts([&] { return fake.waiting("PJRT_LoadedExecutable_Execute") == 1; },
                    [&] { values_of(b); }));
  fake.release();
  EXPECT(values_of(b) == (Floats{2, 4}));
}

TEST(a_launch_whose_place_was_waited_for_is_not_lost) {
  const Interruptions interruptions;
  base::settings().max_inflight_launches.set(2);
  const AsyncFake fake;
  runtime::Device& device = runtime::device(0);
  const Tensor one = tensor(device, {1});
  const Tensor total = tensor(device, {0});
  int num_steps = 0;
  fake.hang("Execution");
  EXPECT(interrupts([&] { return fake.waiting("Execution") == 1; },
                    [&] {
                      while (true) {
                        add_(total, one);
                        ++num_steps;
                        runtime::sync(device, false);
                      }
                    }));
  fake.release();
  EXPECT(num_steps > 2);
  EXPECT_EQ(values_of(total)[0], static_cast<float>(num_steps));
  base::settings().reload();
}

TEST(a_shutdown_does_not_wait_for_the_compiler) {
  const Interruptions interruptions;
  const AsyncFake fake;
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2});
  const Tensor b = add(a, a);
  fake.hang("PJRT_Client_Compile");
  std::thread left_behind([&] { EXPECT_THROWS(runtime::sync(device, true), "was shut down"); });
  EXPECT(eventually([&] { return fake.waiting("PJRT_Client_Compile") == 1; }));
  runtime::shutdown();
  EXPECT_EQ(fake.waiting("PJRT_Client_Compile"), 1);
  EXPECT_THROWS(values_of(b), "was shut down");
  fake.release();
  left_behind.join();
}

TEST(a_shutdown_does_not_wait_for_an_interrupted_compilation) {
  const Interruptions interruptions;
  const AsyncFake fake;
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2});
  const Tensor b = add(a, a);
  fake.hang("PJRT_Client_Compile");
  EXPECT(interrupts([&] { return fake.waiting("PJRT_Client_Compile") == 1; },
                    [&] { runtime::sync(device, false); }));
  runtime::shutdown();
  EXPECT_EQ(fake.waiting("PJRT_Client_Compile"), 1);
  EXPECT_THROWS(values_of(b), "was shut down");
  fake.release();
}

}  // namespace
}  // namespace torch_xla

// Several threads that record, sync and read at once, on one device and on several, on the fake
// plugin with asynchronous launches. Run under ThreadSanitizer too.
#include <atomic>

#include "base/settings.h"
#include "runtime_fixture.h"

namespace torch_xla {
namespace {

using testing::add;
using testing::add_;
using testing::AsyncFake;
using testing::Counts;
using testing::FakePlugin;
using testing::Floats;
using testing::kFakePlugin;
using testing::multiply;
using testing::Session;
using testing::Tensor;
using testing::tensor;
using testing::values_of;

void run_threads(int count, const std::function<void(int)>& body) {
  std::atomic<int> num_failures{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      try {
        body(i);
      } catch (const std::exception& error) {
        std::cerr << "thread " << i << ": " << error.what() << "\n";
        ++num_failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_failures.load(), 0);
}

void must(bool condition, const char* what) { base::check(condition, what); }

// Counts up, with barriers or reads in between, and checks every value it sees.
void count_up(runtime::Device& device, int rounds, int flavor) {
  const Tensor one = tensor(device, {1, 1, 1});
  const Tensor total = tensor(device, {0, 0, 0});
  for (int i = 1; i <= rounds; ++i) {
    add_(total, one);
    const Tensor twice = add(total, total);
    if ((i + flavor) % 3 == 0) runtime::sync(device, (i + flavor) % 2 == 0);
    const auto expected = static_cast<float>(i);
    if ((i + flavor) % 4 == 0) must(values_of(twice) == Floats(3, 2 * expected), "twice");
    if ((i + flavor) % 5 == 0) must(values_of(total) == Floats(3, expected), "total");
  }
  must(values_of(total) == Floats(3, static_cast<float>(rounds)), "the last total");
}

TEST(threads_on_one_device_get_their_own_values) {
  const AsyncFake fake;
  run_threads(4, [&](int i) { count_up(runtime::device(0), 60, i); });
}

TEST(threads_on_several_devices_get_their_own_values) {
  const AsyncFake fake(4);
  run_threads(8, [&](int i) { count_up(runtime::device(i % 4), 40, i); });
}

TEST(threads_that_need_one_program_compile_it_once) {
  const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
  const Session session(fake.path(), 4);
  runtime::client();
  const Counts counts;
  fake.hang("PJRT_Client_Compile");
  std::thread opener([&] {
    testing::eventually([&] { return fake.waiting("PJRT_Client_Compile") > 0; });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    fake.release();
  });
  run_threads(4, [&](int i) {
    const Tensor a = tensor(runtime::device(i), {1, 2});
    must(values_of(add(a, a)) == (Floats{2, 4}), "the sum");
  });
  opener.join();
  EXPECT_EQ(counts.compiled(), 1);
  EXPECT_EQ(counts.executed(), 4);
}

TEST(programs_that_differ_are_compiled_at_the_same_time) {
  const AsyncFake fake(2);
  runtime::client();
  fake.hang("PJRT_Client_Compile");
  std::thread opener([&] {
    EXPECT(testing::eventually([&] { return fake.waiting("PJRT_Client_Compile") == 3; }));
    fake.release();
  });
  // Two graphs on one device, and another one on the other.
  run_threads(3, [&](int i) {
    const Tensor a = tensor(runtime::device(i / 2), {1, 2});
    const Tensor b = i == 0 ? add(a, a) : multiply(a, a);
    const Tensor c = i == 2 ? multiply(b, b) : b;
    const Floats expected[] = {{2, 4}, {1, 4}, {1, 16}};
    must(values_of(c) == expected[i], "the result");
  });
  opener.join();
}

TEST(one_thread_reads_what_another_one_computes) {
  const AsyncFake fake;
  runtime::Device& device = runtime::device(0);
  const Tensor one = tensor(device, {1});
  const Tensor total = tensor(device, {0});
  std::atomic<bool> is_done{false};
  run_threads(3, [&](int i) {
    if (i == 0) {
      for (int step = 0; step < 100; ++step) {
        add_(total, one);
        runtime::sync(device, false);
      }
      is_done = true;
      return;
    }
    float last = 0;
    while (!is_done) {
      const float now = values_of(total)[0];
      must(now >= last, "a total that never falls");
      last = now;
    }
  });
  EXPECT_EQ(values_of(total)[0], 100.0f);
}

TEST(arrays_cross_devices_while_both_are_busy) {
  const AsyncFake fake(2);
  run_threads(4, [&](int i) {
    runtime::Device& from = runtime::device(i % 2);
    runtime::Device& to = runtime::device(1 - i % 2);
    for (int round = 0; round < 20; ++round) {
      const auto value = static_cast<float>(round);
      const Tensor a = tensor(from, {value});
      const runtime::ArrayPtr there = runtime::copy_to_device(*testing::array_of(add(a, a)), to);
      must(testing::download(*there) == Floats{2 * value}, "the copy");
    }
  });
}

TEST(steps_that_donate_are_launched_while_the_first_one_runs) {
  const AsyncFake fake;
  runtime::Device& device = runtime::device(0);
  const Tensor one = tensor(device, {1});
  const Tensor total = tensor(device, {0});
  fake.hang("Execution");
  for (int step = 0; step < 5; ++step) {
    add_(total, one);
    runtime::sync(device, false);
  }
  EXPECT(testing::eventually([&] { return fake.calls("PJRT_LoadedExecutable_Execute") == 5; }));
  // The program has taken the memory of each total but the last.
  EXPECT(testing::eventually([&] { return device.arrays().num_bytes() == 8; }));
  fake.release();
  EXPECT_EQ(values_of(total)[0], 5.0f);
  runtime::sync(device, true);
  EXPECT_EQ(fake.live("buffer"), 2);
}

TEST(a_plugin_gets_further_launches_when_half_of_its_own_are_done) {
  constexpr int kMost = 16;
  const AsyncFake fake;
  base::settings().max_inflight_launches.set(4 * kMost);
  runtime::Device& device = runtime::device(0);
  const Tensor one = tensor(device, {1});
  const Tensor total = tensor(device, {0});
  const auto train = [&](int num_steps) {
    for (int step = 0; step < num_steps; ++step) {
      add_(total, one);
      runtime::sync(device, false);
    }
  };
  // The plugin has so many of short programs: the last ones must have been short.
  int num_before = 0;
  for (int num_short = 0; num_short < 30 && num_before < 1000; ++num_before) {
    const auto start = std::chrono::steady_clock::now();
    train(1);
    runtime::sync(device, true);
    const auto elapsed = std::chrono::steady_clock::now() - start;
    num_short = elapsed < std::chrono::microseconds(500) ? num_short + 1 : 0;
  }
  fake.hang("Execution");
  train(2 * kMost + 1);
  const auto launched_after = [&](int num_more_executed, int expected) {
    fake.hang("Execution", num_more_executed);
    const auto num_launched = [&] {
      return fake.calls("PJRT_LoadedExecutable_Execute") - num_before;
    };
    EXPECT(testing::eventually([&] { return num_launched() >= expected; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return num_launched();
  };
  EXPECT_EQ(launched_after(0, kMost), kMost);
  EXPECT_EQ(launched_after(kMost / 2 - 1, kMost), kMost);
  // No longer as many as before: those that hung have taken long.
  EXPECT(launched_after(1, kMost + 1) > kMost);
  fake.release();
  EXPECT_EQ(values_of(total)[0], static_cast<float>(num_before + 2 * kMost + 1));
  base::settings().reload();
}

TEST(places_in_a_queue_keep_their_order_whoever_submits_first) {
  runtime::LaunchQueue queue;
  std::vector<int> order;
  runtime::LaunchQueue::Place first = queue.reserve();
  runtime::LaunchQueue::Place given_up = queue.reserve();
  runtime::LaunchQueue::Place last = queue.reserve();
  const auto start = [&order](int number) {
    return [&order, number] {
      order.push_back(number);
      return std::vector<pjrt::Event>();
    };
  };
  queue.submit(std::move(last), start(3));
  given_up = {};
  queue.submit(std::move(first), start(1));
  queue.wait_idle();
  EXPECT(order == (std::vector<int>{1, 3}));
  queue.close();
  EXPECT_THROWS(queue.reserve(), "was shut down");
}

TEST(a_full_queue_is_waited_for_until_half_of_it_is_done) {
  constexpr int kLimit = 4;
  base::settings().max_inflight_launches.set(kLimit);
  runtime::LaunchQueue queue;
  std::atomic<int> num_allowed{0};
  std::atomic<int> num_started{0};
  const auto start = [&] {
    const int number = num_started++;
    EXPECT(testing::eventually([&] { return number < num_allowed; }));
    return std::vector<pjrt::Event>();
  };
  std::atomic<int> num_submitted{0};
  std::thread recorder([&] {
    for (int i = 0; i <= 2 * kLimit; ++i) {
      queue.submit(queue.reserve(), start);
      ++num_submitted;
    }
  });
  const auto submitted_after = [&](int num_executed) {
    num_allowed = num_executed;
    EXPECT(testing::eventually([&] { return num_started == num_executed + 1; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return num_submitted.load();
  };
  EXPECT_EQ(submitted_after(0), kLimit);
  EXPECT_EQ(submitted_after(2), kLimit);
  // The fifth waits for three, and then there is room for two more.
  EXPECT_EQ(submitted_after(3), kLimit + 3);
  num_allowed = 2 * kLimit + 1;
  recorder.join();
  queue.wait_idle();
  EXPECT_EQ(num_started.load(), 2 * kLimit + 1);
  base::settings().reload();
}

}  // namespace
}  // namespace torch_xla

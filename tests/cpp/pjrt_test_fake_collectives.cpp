// Collectives of the fake plugin: replicas that fail, hang, stay away, or run different programs.
#include <memory>
#include <string>
#include <vector>

#include "pjrt_fixture.h"

namespace torch_xla::pjrt {
namespace {

using namespace torch_xla::testing;  // NOLINT(google-build-using-namespace)
using Floats = std::vector<float>;

// Two devices that work asynchronously, and a program that adds up what both have.
struct Pair : Fake {
  Pair()
      : client((controls.set_async(true), make_client({{"cpu_device_count", std::int64_t{2}}}))),
        sum(compile(all_reduce_program(2))),
        rows(client->addressable_devices(),
             [](std::size_t i) { return Floats{1, 2, 3, static_cast<float>(i)}; }) {}
  // A device that waits for another would keep the client.
  ~Pair() { controls.release(); }

  std::unique_ptr<Executable> compile(const std::string& program) const {
    return client->compile(program, replicas_on({0, 1}));
  }
  ExecuteResult run(const Executable& executable) const {
    return rows.execute(executable, launch(1));
  }
  // On one of the devices alone.
  ExecuteResult run_on(std::size_t i, const Executable& executable, const Rows& arguments,
                       int launch_id = 1) const {
    ExecuteOptions options = launch(launch_id);
    options.execute_device = client->addressable_devices()[i];
    return executable.execute(arguments.get(i), options);
  }

  const std::shared_ptr<Client> client;
  const std::unique_ptr<Executable> sum;
  const Rows rows;
};

TEST(test_a_device_that_fails_in_a_collective_keeps_the_other_waiting) {
  const Pair pair;
  pair.controls.fail("Collective 1", 13, "link down");
  const ExecuteResult result = pair.run(*pair.sum);
  EXPECT_EQ(error_of([&] { result.events[1].await(); }).message(), "link down");
  EXPECT(eventually([&] { return pair.controls.waiting("Meeting") == 1; }));
  EXPECT(!result.events[0].is_ready());
  pair.controls.release();
  const Error late = error_of([&] { result.events[0].await(); });
  EXPECT(late.code() == ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(late.message(),
            "of 2 devices that must meet only these came: stablehlo.all_reduce of stablehlo.add "
            "4xf32 on device 0");
}

TEST(test_collectives_fail_on_every_device) {
  const Pair pair;
  pair.controls.fail("Collective", 14, "network unreachable");
  const ExecuteResult result = pair.run(*pair.sum);
  for (const auto& outputs : result.outputs) {
    EXPECT_EQ(error_of([&] { download(outputs[0]); }).message(), "network unreachable");
  }
  pair.controls.fail("Collective", 0, "");
  EXPECT(download(pair.run(*pair.sum).outputs[0][0]) == (Floats{2, 4, 6, 1}));
}

TEST(test_a_collective_hangs_until_it_is_released) {
  const Pair pair;
  pair.controls.hang("Collective");
  const ExecuteResult result = pair.run(*pair.sum);
  EXPECT(eventually([&] { return pair.controls.waiting("Collective") == 2; }));
  EXPECT(!result.events[0].is_ready() && !result.events[1].is_ready());
  pair.controls.release();
  EXPECT(download(result.outputs[1][0]) == (Floats{2, 4, 6, 1}));
}

TEST(test_a_replica_that_stays_away_is_waited_for) {
  const Pair pair;
  const ExecuteResult first = pair.run_on(0, *pair.sum, pair.rows);
  EXPECT(eventually([&] { return pair.controls.waiting("Meeting") == 1; }));
  const ExecuteResult second = pair.run_on(1, *pair.sum, pair.rows);
  EXPECT(download(first.outputs[0][0]) == (Floats{2, 4, 6, 1}));
  EXPECT(download(second.outputs[0][0]) == (Floats{2, 4, 6, 1}));
}

TEST(test_launches_with_other_numbers_do_not_meet) {
  const Pair pair;
  const ExecuteResult first = pair.run_on(0, *pair.sum, pair.rows, 1);
  const ExecuteResult second = pair.run_on(1, *pair.sum, pair.rows, 2);
  EXPECT(eventually([&] { return pair.controls.waiting("Meeting") == 2; }));
  pair.controls.release();
  for (const ExecuteResult* result : {&first, &second}) {
    EXPECT(error_of([&] { result->events[0].await(); }).code() == ErrorCode::kDeadlineExceeded);
  }
}

TEST(test_programs_that_differ_in_a_collective_fail) {
  const Pair pair;
  const auto maximum = pair.compile(all_reduce_program(2, "maximum"));
  const ExecuteResult first = pair.run_on(0, *pair.sum, pair.rows);
  const ExecuteResult second = pair.run_on(1, *maximum, pair.rows);
  for (const ExecuteResult* result : {&first, &second}) {
    EXPECT_EQ(error_of([&] { result->events[0].await(); }).message(),
              "collectives that differ have met: stablehlo.all_reduce of stablehlo.add 4xf32 on "
              "device 0; stablehlo.all_reduce of stablehlo.maximum 4xf32 on device 1");
  }
  EXPECT_EQ(pair.controls.calls("Mismatch"), 1);
}

TEST(test_programs_that_differ_may_meet_unseen_as_in_real_plugins) {
  const Pair pair;
  pair.controls.let_mismatches_pass(true);
  const auto maximum = pair.compile(all_reduce_program(2, "maximum", 2));
  const Rows shorter(pair.client->addressable_devices(), [](std::size_t) { return Floats{5, 6}; });
  const ExecuteResult first = pair.run_on(0, *pair.sum, pair.rows);
  const ExecuteResult second = pair.run_on(1, *maximum, shorter);
  EXPECT(download(first.outputs[0][0]) == (Floats{6, 8, 3, 0}));
  EXPECT(download(second.outputs[0][0]) == (Floats{5, 6}));
  EXPECT_EQ(pair.controls.calls("Mismatch"), 1);
}

TEST(test_a_device_that_fails_before_a_collective_never_comes) {
  const Pair pair;
  pair.controls.hang("Execution", 1);  // one of the two goes on
  const ExecuteResult result = pair.run(*pair.sum);
  EXPECT(eventually([&] { return pair.controls.waiting("Meeting") == 1; }));
  EXPECT(eventually([&] { return pair.controls.waiting("Execution") == 1; }));
  pair.controls.fail("Execution", 13, "device lost");
  pair.controls.release();
  int lost = 0;
  for (const Event& event : result.events) {
    lost += error_of([&] { event.await(); }).message() == "device lost" ? 1 : 0;
  }
  EXPECT_EQ(lost, 1);
}

TEST(test_programs_are_for_devices_that_exist) {
  const Pair pair;
  EXPECT_THROWS(pair.client->compile(all_reduce_program(3), replicas_on({0, 1, 2})),
                "the program is for device 2, which does not exist");
  EXPECT_THROWS(pair.sum->execute(pair.rows.get(0), {}), "wrong number of devices");
}

}  // namespace
}  // namespace torch_xla::pjrt

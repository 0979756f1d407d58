// The suite of every plugin (pjrt_suite.h): programs on several devices, as replicas that meet in
// collectives and as partitions.
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "pjrt_suite.h"

namespace torch_xla::pjrt {
namespace {

using namespace torch_xla::testing;  // NOLINT(google-build-using-namespace)
using Floats = std::vector<float>;

std::vector<int> ids_of(const Client& client, const std::vector<std::size_t>& order) {
  std::vector<int> ids;
  for (const std::size_t i : order) ids.push_back(client.addressable_devices()[i]->id());
  return ids;
}

PLUGIN_TEST(test_four_replicas_meet_in_one_launch) {
  const auto client = plugin.client(4);
  const std::vector<int> ids = ids_of(*client, {3, 2, 1, 0});
  const auto executable = client->compile(all_reduce_program(4), replicas_on(ids));
  EXPECT_EQ(executable->num_replicas(), 4);
  EXPECT_EQ(executable->num_partitions(), 1);
  const std::vector<Device*> devices = executable->addressable_devices();
  EXPECT_EQ(devices.size(), std::size_t{4});
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(devices.at(i)->id(), ids[i]);
  const Rows rows(devices, [](std::size_t i) { return Floats{1, 0, static_cast<float>(i), 0}; });
  const ExecuteResult result = rows.execute(*executable, launch(1));
  EXPECT_EQ(result.events.size(), std::size_t{4});
  for (const Event& event : result.events) event.await();
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT(result.outputs[i][0].device() == devices[i]);
    EXPECT(download(result.outputs[i][0]) == (Floats{4, 0, 6, 0}));
  }
}

PLUGIN_TEST(test_four_threads_meet_in_a_collective) {
  const auto client = plugin.client(4);
  const auto executable =
      client->compile(all_reduce_program(4), replicas_on(ids_of(*client, {0, 1, 2, 3})));
  std::vector<Floats> results(4);
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id) {
    threads.emplace_back([&, id] {
      Device* device = client->addressable_devices()[id];
      Buffer input = upload(device, {1, 2, 3, static_cast<float>(id)});
      Buffer* arguments[] = {&input};
      results[id] = download(executable->execute(arguments, on(device)).outputs[0][0]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Floats& result : results) EXPECT(result == (Floats{4, 8, 12, 6}));
}

PLUGIN_TEST(test_groups_of_replicas_meet_among_themselves) {
  const auto client = plugin.client(4);
  std::string program = all_reduce_program(4);
  const std::string all = "[[0, 1, 2, 3]]> : tensor<1x4xi64>";
  program.replace(program.find(all), all.size(), "[[0, 2], [1, 3]]> : tensor<2x2xi64>");
  const auto executable = client->compile(program, replicas_on(ids_of(*client, {0, 1, 2, 3})));
  const Rows rows(executable->addressable_devices(),
                  [](std::size_t i) { return Floats(4, static_cast<float>(1 << i)); });
  const ExecuteResult result = rows.execute(*executable, launch(2));
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT(download(result.outputs[i][0]) == Floats(4, i % 2 == 0 ? 5.0F : 10.0F));
  }
}

// Rows over the mesh's first axis come in, columns over its second go out.
constexpr const char* kSharded = R"(module @test {
sdy.mesh @mesh = <["x"=2, "y"=2]>
func.func public @main(%a: tensor<4x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
    -> (tensor<4x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>}) {
  %0 = stablehlo.add %a, %a : tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
}
})";

PLUGIN_TEST(test_four_partitions_share_a_program) {
  const auto client = plugin.client(4);
  CompileOptions options;
  options.num_partitions = 4;
  options.use_spmd_partitioning = true;
  options.use_shardy_partitioner = true;
  options.device_assignment = ids_of(*client, {0, 1, 2, 3});
  const auto executable = client->compile(kSharded, options);
  EXPECT_EQ(executable->num_replicas(), 1);
  EXPECT_EQ(executable->num_partitions(), 4);
  // The rows 1 2, 3 4, 5 6, 7 8: partitions 0 and 1 have the first two, 2 and 3 the last.
  std::vector<Buffer> inputs;
  const std::int64_t dims[] = {2, 2};
  for (int i = 0; i < 4; ++i) {
    const float first = i < 2 ? 1.0F : 5.0F;
    const float values[] = {first, first + 1, first + 2, first + 3};
    inputs.push_back(client->buffer_from_host_buffer(
        values, base::DType::kFloat32, dims, {}, executable->addressable_devices()[i],
        HostBufferSemantics::kImmutableOnlyDuringCall));
  }
  std::vector<Buffer*> pointers;
  for (Buffer& input : inputs) pointers.push_back(&input);
  const ExecuteResult result = executable->execute(pointers, launch(3), 4);
  EXPECT_EQ(result.events.size(), std::size_t{4});
  for (std::size_t i = 0; i < 4; ++i) {
    const Buffer& output = result.outputs[i][0];
    EXPECT(output.shape() == (base::Shape{base::DType::kFloat32, {4, 1}}));
    EXPECT(download(output) == (i % 2 == 0 ? Floats{2, 6, 10, 14} : Floats{4, 8, 12, 16}));
  }
}

PLUGIN_TEST(test_a_launch_has_a_row_for_every_device) {
  const auto client = plugin.client(4);
  const auto executable =
      client->compile(all_reduce_program(4), replicas_on(ids_of(*client, {0, 1, 2, 3})));
  std::vector<Device*> devices = executable->addressable_devices();
  devices.pop_back();
  const Rows rows(devices, [](std::size_t) { return Floats(4, 1.0F); });
  const Error error = error_of([&] { rows.execute(*executable, {}); });
  EXPECT_EQ(error.call(), "PJRT_LoadedExecutable_Execute");
}

// A program of four replicas that changes 4 floats into as many by `operation`.
std::string collective_program(const std::string& operation) {
  return "module @test {\n"
         "func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n" +
         operation +
         "  return %r : tensor<4xf32>\n"
         "}\n"
         "}\n";
}

const std::string kGroups = "replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>";

// What the four replicas get of 0 1 2 3, 10 11 12 13, 20 21 22 23, 30 31 32 33.
std::vector<Floats> results_of(Client& client, const std::string& operation) {
  const auto executable =
      client.compile(collective_program(operation), replicas_on(ids_of(client, {0, 1, 2, 3})));
  const Rows rows(executable->addressable_devices(), [](std::size_t i) {
    const auto ten = static_cast<float>(10 * i);
    return Floats{ten, ten + 1, ten + 2, ten + 3};
  });
  static int launch_id = 100;
  const ExecuteResult result = rows.execute(*executable, launch(++launch_id));
  std::vector<Floats> values;
  for (const auto& outputs : result.outputs) values.push_back(download(outputs[0]));
  return values;
}

PLUGIN_TEST(test_collectives_of_every_kind) {
  const auto client = plugin.client(4);
  const std::vector<Floats> exchanged = results_of(
      *client,
      "  %r = \"stablehlo.all_to_all\"(%a) {split_dimension = 0 : i64, concat_dimension = 0 : i64, "
      "split_count = 4 : i64, " +
          kGroups + "} : (tensor<4xf32>) -> tensor<4xf32>\n");
  EXPECT(exchanged[1] == (Floats{1, 11, 21, 31}));
  const std::vector<Floats> scattered_and_gathered =
      results_of(*client,
                 "  %0 = \"stablehlo.reduce_scatter\"(%a) ({\n"
                 "  ^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
                 "    %s = stablehlo.maximum %x, %y : tensor<f32>\n"
                 "    stablehlo.return %s : tensor<f32>\n"
                 "  }) {scatter_dimension = 0 : i64, " +
                     kGroups +
                     "} : (tensor<4xf32>) -> tensor<1xf32>\n"
                     "  %r = \"stablehlo.all_gather\"(%0) {all_gather_dim = 0 : i64, " +
                     kGroups + "} : (tensor<1xf32>) -> tensor<4xf32>\n");
  for (const Floats& values : scattered_and_gathered) EXPECT(values == (Floats{30, 31, 32, 33}));
  const std::vector<Floats> moved = results_of(
      *client,
      "  %r = \"stablehlo.collective_permute\"(%a) {source_target_pairs = dense<[[0, 1], [1, 2]]> "
      ": tensor<2x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>\n");
  EXPECT(moved ==
         (std::vector<Floats>{{0, 0, 0, 0}, {0, 1, 2, 3}, {10, 11, 12, 13}, {0, 0, 0, 0}}));
}

}  // namespace
}  // namespace torch_xla::pjrt

// A device that stands for two of the plugin's: arrays lie on both, in parts or whole, and a launch
// runs on both.
#include <future>
#include <numeric>
#include <string>

#include "runtime_fixture.h"

namespace torch_xla {
namespace {

using testing::add;
using testing::AsyncFake;
using testing::Counts;
using testing::FakePlugin;
using testing::Floats;
using testing::kCpuPlugin;
using testing::kFakePlugin;
using testing::Session;
using testing::Tensor;
using testing::tensor;
using testing::values_of;

runtime::Device& both_devices() {
  runtime::Client& client = runtime::client();
  const std::vector<pjrt::Device*>& devices = client.pjrt_client().addressable_devices();
  return client.make_device({devices[0], devices[1]});
}

base::Shape f32(base::Dims dims) { return {base::DType::kFloat32, std::move(dims)}; }

Floats count_to(std::int64_t count) {
  Floats values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

Floats values_on(const runtime::Array& array, std::size_t place) {
  const pjrt::Buffer& buffer = array.buffers()[place];
  Floats values(static_cast<std::size_t>(buffer.shape().num_elements()));
  buffer.to_host(values.data(), values.size() * sizeof(float)).await();
  return values;
}

runtime::ArrayPtr upload(runtime::Device& device, const Floats& values, base::Dims dims,
                         const base::Sharding* sharding) {
  return runtime::Array::upload(device, values.data(), f32(std::move(dims)), sharding);
}

// The sum of two arrays, which lie on the devices as the attribute says.
std::string sum_of(const std::string& type, const std::string& sharding = "") {
  const std::string array = "tensor<" + type + ">";
  const std::string divided = array + sharding;
  return "module @sum {\nsdy.mesh @mesh = <[\"x\"=2]>\nfunc.func public @main(%0: " + divided +
         ", %1: " + divided + ") -> (" + divided + ") {\n%2 = \"stablehlo.add\"(%0, %1) : (" +
         array + ", " + array + ") -> " + array + "\n\"func.return\"(%2) : (" + array +
         ") -> ()\n}\n}";
}
const std::string kByRows = " {sdy.sharding = #sdy.sharding<@mesh, [{\"x\"}, {}]>}";

TEST(an_upload_slices_and_a_download_assembles) {
  const Session session(kFakePlugin, 2);
  runtime::Device& device = both_devices();
  const Floats values = count_to(16);
  const runtime::ArrayPtr rows = upload(device, values, {4, 4}, base::Sharding::make({{2}}, {{0}}));
  EXPECT(values_on(*rows, 1) == (Floats{8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT(testing::download(*rows) == values);
  const runtime::ArrayPtr columns =
      upload(device, values, {4, 4}, base::Sharding::make({{2}, {1, 0}}, {{}, {0}}));
  EXPECT(values_on(*columns, 0) == (Floats{2, 3, 6, 7, 10, 11, 14, 15}));
  EXPECT(testing::download(*columns) == values);
  const runtime::ArrayPtr uneven =
      upload(device, count_to(5), {5}, base::Sharding::make({{2}}, {{0}}));
  EXPECT_EQ(uneven->buffers()[1].shape().num_elements(), 3);
  EXPECT(testing::download(*uneven) == count_to(5));
  EXPECT_EQ(device.arrays().num_bytes(), (16 + 16 + 6) * 4);
}

TEST(what_no_sharding_splits_is_whole_on_each_device) {
  const Session session(kFakePlugin, 2);
  runtime::Device& device = both_devices();
  const Floats values = count_to(3);
  const runtime::ArrayPtr array = runtime::upload(device, values.data(), f32({3}));
  EXPECT(array->sharding() == base::Sharding::replicated(2));
  EXPECT(values_on(*array, 0) == values && values_on(*array, 1) == values);
  EXPECT_EQ(device.arrays().num_bytes(), 2 * 3 * 4);
  EXPECT(runtime::upload(runtime::device(0), values.data(), f32({3}))->sharding() == nullptr);
}

TEST(arrays_move_between_one_device_and_two) {
  const Session session(kFakePlugin, 2);
  runtime::Device& two = both_devices();
  const Floats values = count_to(6);
  const runtime::ArrayPtr split = upload(two, values, {6}, base::Sharding::make({{2}}, {{0}}));
  const runtime::ArrayPtr one = runtime::copy_to_device(*split, runtime::device(1));
  EXPECT(testing::download(*one) == values);
  const runtime::ArrayPtr whole = runtime::copy_to_device(*one, two);
  EXPECT(values_on(*whole, 0) == values && values_on(*whole, 1) == values);
  EXPECT(testing::download(*runtime::copy_to_device(*whole, runtime::device(0))) == values);
}

TEST(a_launch_has_a_row_for_each_device) {
  const Session session(kFakePlugin, 2);
  runtime::Device& device = both_devices();
  const base::Sharding* const rows = base::Sharding::make({{2}}, {{0}});
  const runtime::ArrayPtr a = upload(device, count_to(8), {4, 2}, rows);
  const runtime::ResultType result{f32({4, 2}), rows};
  const Counts counts;
  for (int i = 0; i < 2; ++i) {
    const auto sums = runtime::run_program(device, sum_of("4x2xf32", kByRows), {1, 1}, {a, a},
                                           std::span(&result, 1));
    EXPECT(testing::download(*sums[0]) == (Floats{0, 2, 4, 6, 8, 10, 12, 14}));
    EXPECT(sums[0]->sharding() == rows);
  }
  EXPECT_EQ(counts.compiled(), 1);
  EXPECT_EQ(counts.executed(), 2);
}

TEST(a_launch_has_ended_when_each_device_has) {
  const AsyncFake fake(2);
  runtime::Device& device = both_devices();
  const runtime::ArrayPtr a = runtime::upload(device, count_to(2).data(), f32({2}));
  fake.hang("Completion", 1);  // one of the two ends
  const runtime::ArrayPtr sum = runtime::run_program(device, sum_of("2xf32"), {1, 2}, {a, a})[0];
  auto idle = std::async(std::launch::async, [&] { runtime::wait(device); });
  EXPECT(testing::eventually([&] { return fake.waiting("Completion") == 1; }));
  EXPECT(idle.wait_for(std::chrono::milliseconds(50)) == std::future_status::timeout);
  EXPECT(!sum->is_ready());
  fake.release();
  idle.get();
  EXPECT(testing::download(*sum) == (Floats{0, 2}));
}

TEST(what_fails_on_one_device_fails_as_a_whole) {
  const AsyncFake fake(2);
  runtime::Device& device = both_devices();
  const runtime::ArrayPtr a = runtime::upload(device, count_to(2).data(), f32({2}));
  fake.fail("Execution", 13, "a core went away");
  const runtime::ArrayPtr sum = runtime::run_program(device, sum_of("2xf32"), {1, 3}, {a, a})[0];
  EXPECT_THROWS(testing::download(*sum), "a core went away");
  runtime::wait(device);
  fake.reset();
  EXPECT(testing::download(*a) == (Floats{0, 1}));
}

void expect_a_training_step_runs_on_both(runtime::Device& device) {
  const Tensor weights = tensor(device, {1, 2});
  const Tensor step = tensor(device, {0.5, 0.25});
  const Counts counts;
  for (int i = 0; i < 3; ++i) {
    testing::add_(weights, testing::scale(step, 2.0 + i));
    runtime::sync(device, false);
  }
  const runtime::ArrayPtr array = testing::array_of(weights);
  array->wait_ready();
  const Floats expected{1 + 4.5, 2 + 2.25};
  EXPECT(values_on(*array, 0) == expected && values_on(*array, 1) == expected);
  EXPECT(values_of(weights) == expected);
  EXPECT_EQ(counts.compiled(), 1);
}

TEST(recorded_programs_run_on_both_devices) {
  const Session session(kFakePlugin, 2);
  expect_a_training_step_runs_on_both(both_devices());
}

TEST(recorded_programs_run_on_two_devices_of_the_cpu) {
  if (testing::skip_without_cpu_plugin()) return;
  const Session session(kCpuPlugin, 2);
  expect_a_training_step_runs_on_both(both_devices());
}

TEST(a_partitioned_program_runs_on_two_devices_of_the_cpu) {
  if (testing::skip_without_cpu_plugin()) return;
  const Session session(kCpuPlugin, 2);
  runtime::Device& device = both_devices();
  const std::string matrix = "tensor<4x4xf32>" + kByRows;
  const std::string text =
      "module @product {\nsdy.mesh @mesh = <[\"x\"=2]>\nfunc.func public @main(%0: " + matrix +
      ", %1: tensor<4x4xf32>) -> (" + matrix +
      ") {\n%2 = stablehlo.dot_general %0, %1, contracting_dims = [1] x [0]"
      " : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>\n"
      "return %2 : tensor<4x4xf32>\n}\n}";
  const base::Sharding* const rows = base::Sharding::make({{2}}, {{0}});
  Floats identity(16);
  for (std::size_t i = 0; i < 16; i += 5) identity[i] = 2;
  const runtime::ArrayPtr a = upload(device, count_to(16), {4, 4}, rows);
  const runtime::ArrayPtr b = runtime::upload(device, identity.data(), f32({4, 4}));
  const runtime::ResultType result{f32({4, 4}), rows};
  const auto products = runtime::run_program(device, text, {1, 4}, {a, b}, std::span(&result, 1));
  Floats expected = count_to(16);
  for (float& value : expected) value *= 2;
  EXPECT(testing::download(*products[0]) == expected);
  EXPECT(values_on(*products[0], 1) == Floats(expected.begin() + 8, expected.end()));
}

TEST(operators_on_split_arrays_give_split_arrays) {
  const Session session(kFakePlugin, 2);
  runtime::Device& device = both_devices();
  const Tensor whole = tensor(device, {1, 2});
  graph::DataPtr split = upload(device, {1, 2}, {2}, base::Sharding::make({{2}}, {{0}}));
  const Tensor part{&device, graph::Alias::make(device.live(), whole.type(),
                                                {graph::Node::make_leaf(std::move(split)), 0})};
  const Tensor sum = add(whole, part);
  EXPECT(values_of(sum) == (Floats{2, 4}));
  EXPECT(values_on(*testing::array_of(sum), 1) == (Floats{4}));
  EXPECT(values_of(whole) == (Floats{1, 2}));
}

TEST(what_is_said_of_memory_holds_for_later_values) {
  const Session session(kFakePlugin, 2);
  runtime::Device& device = both_devices();
  const Tensor sum = add(tensor(device, {1, 2}), tensor(device, {3, 4}));
  sum.alias->set_sharding(base::Sharding::make({{2}}, {{0}}));
  runtime::sync(device, true);
  EXPECT(values_on(*testing::array_of(sum), 0) == (Floats{4}));
  testing::add_(sum, tensor(device, {1, 1}));
  sum.alias->set_sharding(nullptr);
  runtime::sync(device, true);
  EXPECT(values_on(*testing::array_of(sum), 1) == (Floats{7}));
}

TEST(a_device_is_spread_with_its_arrays) {
  const Session session(kFakePlugin, 2);
  runtime::Device& device = runtime::device(0);
  const Tensor before = tensor(device, {1, 2});
  runtime::client().make_one_device();
  EXPECT_EQ(runtime::device_count(), 1);
  EXPECT_EQ(device.num_devices(), std::size_t{2});
  EXPECT(values_on(*testing::array_of(before), 1) == (Floats{1, 2}));
  EXPECT(values_of(add(before, before)) == (Floats{2, 4}));
}

TEST(a_device_with_tensors_stays_one) {
  const Session session(kFakePlugin, 2);
  const Tensor other = tensor(runtime::device(1), {1, 2});
  EXPECT_THROWS(runtime::client().make_one_device(), "tensors on xla:1");
  EXPECT_EQ(runtime::device_count(), 2);
}

}  // namespace
}  // namespace torch_xla

// The path from recorded calls to values on the real CPU plugin.
#include "base/metrics.h"
#include "runtime/platform_options.h"
#include "runtime_fixture.h"

namespace torch_xla {
namespace {

using testing::add;
using testing::add_;
using testing::count_of;
using testing::Counts;
using testing::Floats;
using testing::kCpuPlugin;
using testing::multiply;
using testing::scale;
using testing::Session;
using testing::slice;
using testing::Tensor;
using testing::tensor;
using testing::values_of;

TEST(a_program_runs_on_the_cpu_plugin) {
  if (testing::skip_without_cpu_plugin()) return;
  const Session session(kCpuPlugin, 2);
  EXPECT_EQ(runtime::platform(), std::string("cpu"));
  for (int i = 0; i < 2; ++i) {
    const Counts counts;
    const Tensor a = tensor(runtime::device(i), {1, 2, 3});
    const Tensor b = multiply(add(a, a), a);
    runtime::sync(runtime::device(i), true);
    EXPECT(values_of(b) == (Floats{2, 8, 18}));
    EXPECT_EQ(counts.compiled(), i == 0 ? 1 : 0);  // the executable runs on any device
  }
}

TEST(numbers_reach_the_program_as_data) {
  if (testing::skip_without_cpu_plugin()) return;
  const Session session(kCpuPlugin);
  const Counts counts;
  const Tensor a = tensor(runtime::device(0), {1, 2});
  for (const float factor : {2.0f, 3.0f}) {
    const Tensor b = scale(scale(a, factor), factor + 1);
    EXPECT(values_of(b) == (Floats{factor * (factor + 1), 2 * factor * (factor + 1)}));
  }
  EXPECT_EQ(counts.compiled(), 1);
}

TEST(integers_and_random_keys_share_a_vector) {
  if (testing::skip_without_cpu_plugin()) return;
  const Session session(kCpuPlugin);
  const graph::TensorType* type = testing::f32({1});
  const auto times = [&](const Tensor& self, base::DType dtype, std::uint64_t bits) {
    graph::Entry entry = *testing::scale_entry(type);
    entry.args[1] = testing::slot_number(dtype, 0);
    entry.slots[0].dtype = dtype;
    return testing::record(testing::entry_for(base::str("integer", static_cast<int>(dtype)), entry),
                           {self}, {bits});
  };
  const Tensor a = tensor(runtime::device(0), {1});
  const Tensor b = times(a, base::DType::kUInt64, std::uint64_t{1} << 63);
  const Tensor c = times(a, base::DType::kInt64, static_cast<std::uint64_t>(-3));
  const Tensor d = scale(a, 0.5);
  runtime::sync(runtime::device(0), true);
  EXPECT(values_of(b) == Floats{9223372036854775808.0f});
  EXPECT(values_of(c) == Floats{-3});
  EXPECT(values_of(d) == Floats{0.5});
}

TEST(slices_at_other_offsets_share_a_program) {
  if (testing::skip_without_cpu_plugin()) return;
  const Session session(kCpuPlugin);
  const Counts counts;
  const Tensor a = tensor(runtime::device(0), {1, 2, 3, 4});
  for (const std::uint64_t start : {0, 1, 2, 0, 1}) {
    const Tensor part = scale(slice(a, start, 2), 10);
    const auto first = static_cast<float>(start + 1);
    EXPECT(values_of(part) == (Floats{10 * first, 10 * first + 10}));
  }
  EXPECT_EQ(counts.compiled(), 2);
}

TEST(writes_through_views_compile_once_for_all_offsets) {
  if (testing::skip_without_cpu_plugin()) return;
  const Session session(kCpuPlugin);
  runtime::Device& device = runtime::device(0);
  const Counts counts;
  const Tensor a = tensor(device, {0, 0, 0, 0});
  for (std::uint64_t i = 0; i < 3; ++i) {
    const Tensor update = tensor(device, {static_cast<float>(i + 1), static_cast<float>(i + 1)});
    testing::write(testing::slice_entry(a.type(), 2, true), {a, update}, {i});
    runtime::sync(device, false);
  }
  EXPECT(values_of(a) == (Floats{1, 2, 3, 3}));
  EXPECT_EQ(counts.compiled(), 2);
}

TEST(a_training_loop_donates_and_stays_right) {
  if (testing::skip_without_cpu_plugin()) return;
  const Session session(kCpuPlugin);
  runtime::Device& device = runtime::device(0);
  const Counts counts;
  const Tensor step = tensor(device, Floats(1000, 0.5));
  const Tensor weights = tensor(device, Floats(1000, 0));
  const runtime::ArrayPtr initial = testing::array_of(weights);
  for (int i = 0; i < 20; ++i) {
    add_(weights, step);
    runtime::sync(device, false);
  }
  EXPECT(values_of(weights) == Floats(1000, 10));
  EXPECT(testing::download(*initial) == Floats(1000, 0));
  EXPECT_EQ(counts.compiled(), 1);
}

TEST(a_chain_of_two_thousand_operations_runs) {
  if (testing::skip_without_cpu_plugin()) return;
  const Session session(kCpuPlugin);
  Tensor value = tensor(runtime::device(0), {1});
  for (int i = 0; i < 2000; ++i) value = scale(value, 1.0);
  EXPECT(values_of(value) == Floats{1});
}

TEST(options_reach_the_compiler) {
  if (testing::skip_without_cpu_plugin()) return;
  const Session session(kCpuPlugin);
  const Tensor a = tensor(runtime::device(0), {1});
  runtime::set_custom_compile_options({{"xla_no_such_flag", std::string("1")}});
  EXPECT_THROWS(values_of(add(a, a)), "xla_no_such_flag");
  runtime::set_custom_compile_options({{"xla_cpu_enable_fast_math", std::string("false")}});
  EXPECT(values_of(add(a, a)) == Floats{2});
  runtime::set_custom_compile_options({});
}

TEST(metrics_count_what_was_done) {
  if (testing::skip_without_cpu_plugin()) return;
  const Session session(kCpuPlugin);
  base::clear_metrics();
  base::clear_counters();
  const Tensor a = tensor(runtime::device(0), {1});
  for (int i = 0; i < 3; ++i) {
    const Tensor b = add(a, a);
    runtime::sync(runtime::device(0), true);
  }
  EXPECT_EQ(base::metric_data("CompileTime")->total_samples, 1);
  EXPECT_EQ(base::metric_data("ExecuteTime")->total_samples, 3);
  EXPECT_EQ(base::metric_data("TensorsGraphSize")->accumulator, 3.0);
  EXPECT_EQ(count_of("CachedCompile"), 2);
}

}  // namespace
}  // namespace torch_xla

// Barriers and reads on the fake plugin: what is computed, what is kept, and how often.
#include "base/metrics.h"
#include "base/settings.h"
#include "runtime_fixture.h"

namespace torch_xla {
namespace {

using testing::add;
using testing::add_;
using testing::array_of;
using testing::count_of;
using testing::Counts;
using testing::FakePlugin;
using testing::Floats;
using testing::is_leaf;
using testing::kFakePlugin;
using testing::multiply;
using testing::Session;
using testing::Tensor;
using testing::tensor;
using testing::values_of;

TEST(nothing_runs_before_a_barrier) {
  const Session session(kFakePlugin);
  const Counts counts;
  const Tensor a = tensor(runtime::device(0), {1, 2});
  const Tensor b = add(a, a);
  EXPECT_EQ(counts.executed(), 0);
  runtime::sync(runtime::device(0), true);
  EXPECT_EQ(counts.executed(), 1);
  EXPECT(is_leaf(b));
  EXPECT(values_of(b) == (Floats{2, 4}));
  EXPECT_EQ(counts.executed(), 1);
}

TEST(a_barrier_computes_every_live_tensor_in_one_program) {
  const Session session(kFakePlugin);
  const Counts counts;
  const Tensor a = tensor(runtime::device(0), {1, 2});
  const Tensor b = add(a, a);
  const Tensor c = multiply(b, b);
  Tensor dropped = add(c, c);
  dropped = {};
  runtime::sync(runtime::device(0), false);
  runtime::sync(runtime::device(0), false);
  EXPECT_EQ(counts.executed(), 1);
  EXPECT(values_of(c) == (Floats{4, 16}));
  EXPECT(values_of(b) == (Floats{2, 4}));
}

TEST(a_step_that_repeats_compiles_once) {
  const Session session(kFakePlugin);
  const Counts counts;
  base::clear_counters();
  const Tensor x = tensor(runtime::device(0), {1, 1});
  const Tensor w = tensor(runtime::device(0), {0, 0});
  for (int step = 0; step < 5; ++step) {
    add_(w, x);
    runtime::sync(runtime::device(0), false);
  }
  EXPECT(values_of(w) == (Floats{5, 5}));
  EXPECT_EQ(counts.compiled(), 1);
  EXPECT_EQ(counts.executed(), 5);
  EXPECT_EQ(count_of("UncachedCompile"), 1);
  EXPECT_EQ(count_of("CachedCompile"), 4);
}

TEST(an_aliased_result_is_computed_once) {
  const Session session(kFakePlugin);
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2});
  const Tensor b = add(a, a);
  graph::Value value = b.alias->value();
  const Tensor same{&device, graph::Alias::make(device.live(), b.type(), value)};
  value = {};
  runtime::sync(device, true);
  EXPECT(array_of(b) == array_of(same));
  EXPECT(values_of(same) == (Floats{2, 4}));
}

TEST(a_step_hands_over_the_memory_that_it_replaces) {
  const Session session(kFakePlugin);
  base::clear_metrics();
  const Tensor x = tensor(runtime::device(0), {1, 1});
  const Tensor w = tensor(runtime::device(0), {0, 0});
  const std::weak_ptr<runtime::Array> before = array_of(w);
  EXPECT(runtime::pending_graph(runtime::device(0), "stablehlo").find("aliasing") ==
         std::string::npos);
  add_(w, x);
  runtime::sync(runtime::device(0), true);
  EXPECT(before.expired());
  EXPECT_EQ(base::metric_data("InputOutputAliasCount")->accumulator, 1.0);
  EXPECT(values_of(w) == (Floats{1, 1}));
}

TEST(an_array_that_someone_holds_is_not_donated) {
  const Session session(kFakePlugin);
  const Counts counts;
  const Tensor x = tensor(runtime::device(0), {1, 1});
  const Tensor w = tensor(runtime::device(0), {0, 0});
  const runtime::ArrayPtr held = array_of(w);
  add_(w, x);
  runtime::sync(runtime::device(0), true);
  EXPECT(!held->buffers()[0].is_deleted());
  EXPECT(testing::download(*held) == (Floats{0, 0}));
  // The next step may donate, by the same executable.
  add_(w, x);
  runtime::sync(runtime::device(0), true);
  EXPECT(values_of(w) == (Floats{2, 2}));
  EXPECT_EQ(counts.compiled(), 1);
}

TEST(donation_can_be_switched_off) {
  const Session session(kFakePlugin);
  base::clear_metrics();
  base::settings().enable_param_aliasing.set(false);
  const Tensor w = tensor(runtime::device(0), {1, 1});
  add_(w, w);
  runtime::sync(runtime::device(0), true);
  EXPECT_EQ(base::metric_data("InputOutputAliasCount")->accumulator, 0.0);
  EXPECT(values_of(w) == (Floats{2, 2}));
  base::settings().reload();
}

TEST(swapped_parameters_are_each_donated_once) {
  const Session session(kFakePlugin);
  const Tensor a = tensor(runtime::device(0), {1, 2});
  const Tensor b = tensor(runtime::device(0), {3, 4});
  // Both new values depend on both old ones.
  const Tensor old_a = add(a, a);
  add_(a, b);
  add_(b, old_a);
  runtime::sync(runtime::device(0), true);
  EXPECT(values_of(a) == (Floats{4, 6}));
  EXPECT(values_of(b) == (Floats{5, 8}));
}

// ---- Reads --------------------------------------------------------------------------------------

TEST(a_read_computes_what_it_needs_and_leaves_the_rest) {
  const Session session(kFakePlugin);
  const Counts counts;
  const Tensor a = tensor(runtime::device(0), {1, 2});
  const Tensor b = add(a, a);
  const Tensor c = multiply(a, a);
  EXPECT(values_of(b) == (Floats{2, 4}));
  EXPECT(values_of(b) == (Floats{2, 4}));
  EXPECT_EQ(counts.executed(), 1);
  EXPECT(runtime::pending_graph(runtime::device(0), "stablehlo").find("multiply") !=
         std::string::npos);
  EXPECT(runtime::pending_graph(runtime::device(0), "stablehlo").find("add") == std::string::npos);
  EXPECT(values_of(c) == (Floats{1, 4}));
  EXPECT_EQ(counts.executed(), 2);
}

TEST(what_a_read_computed_on_its_way_is_kept) {
  const Session session(kFakePlugin);
  const Counts counts;
  const Tensor a = tensor(runtime::device(0), {1, 2});
  const Tensor b = add(a, a);
  Tensor hidden = multiply(b, b);
  const Tensor c = add(hidden, b);
  hidden = {};
  EXPECT(values_of(c) == (Floats{6, 20}));
  EXPECT(values_of(b) == (Floats{2, 4}));
  EXPECT_EQ(counts.executed(), 1);
  // A barrier afterwards finds nothing to compute.
  runtime::sync(runtime::device(0), true);
  EXPECT_EQ(counts.executed(), 1);
  EXPECT(is_leaf(b));
  EXPECT(values_of(add(b, c)) == (Floats{8, 24}));
}

TEST(views_on_the_way_of_a_read_are_not_kept) {
  const Session session(kFakePlugin);
  const Tensor a = tensor(runtime::device(0), {1, 2, 3, 4});
  const Tensor part = testing::slice(a, 1, 2);
  const Tensor sum = add(part, part);
  array_of(sum);
  EXPECT(runtime::pending_graph(runtime::device(0), "stablehlo").find("slice") !=
         std::string::npos);
}

TEST(reads_with_other_tensors_alive_have_programs_of_their_own) {
  const Session session(kFakePlugin);
  const Counts counts;
  for (const bool keep : {false, true, false, true}) {
    const Tensor a = tensor(runtime::device(0), {1, 2});
    Tensor b = add(a, a);
    const Tensor c = multiply(b, b);
    if (!keep) b = {};
    EXPECT(values_of(c) == (Floats{4, 16}));
    if (keep) EXPECT(values_of(b) == (Floats{2, 4}));
  }
  EXPECT_EQ(counts.compiled(), 2);
  EXPECT_EQ(counts.executed(), 4);
}

TEST(values_of_leaves_need_no_program) {
  const Session session(kFakePlugin);
  const Counts counts;
  const Tensor a = tensor(runtime::device(0), {1, 2});
  EXPECT(values_of(a) == (Floats{1, 2}));
  EXPECT_EQ(counts.executed(), 0);
}

// ---- Views across barriers ----------------------------------------------------------------------

TEST(a_view_that_a_barrier_used_up_is_read_anew) {
  const Session session(kFakePlugin);
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2, 3, 4});
  const auto view = graph::ViewRef::adopt(new graph::View(
      {}, testing::slice_entry(a.type(), 2), testing::slice_entry(a.type(), 2, true), {1}));
  graph::ViewCache cache;
  std::vector<graph::NodeRef> garbage;
  const auto read = [&](std::vector<graph::NodeRef>& freed) {
    return std::vector<graph::Value>(1, graph::read_view(*a.alias, view.get(), cache, freed));
  };
  Tensor user{&device, {}};
  {
    const std::lock_guard lock(device.live().mutex);
    const graph::Value part = read(garbage).front();
    user.alias = device.live().add_locked(
        part.node->entry()->outputs[0],
        testing::call(testing::binary_entry("add.Tensor", testing::f32({2})), {part, part}));
  }
  runtime::sync(device, true);
  EXPECT(is_leaf(user));
  EXPECT_EQ(runtime::compute(device, read).size(), std::size_t{1});
}

TEST(a_value_used_after_the_barrier_that_dropped_it_is_refused) {
  const Session session(kFakePlugin);
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2});
  Tensor hidden = multiply(a, a);
  graph::Value stale = hidden.alias->value();
  const Tensor b = add(hidden, a);
  hidden = {};
  runtime::sync(device, true);
  const std::vector<graph::Value> values = {stale};
  EXPECT_THROWS(runtime::compute(device, values), "was read before a barrier");
  EXPECT(values_of(b) == (Floats{2, 6}));
}

// ---- The cache ----------------------------------------------------------------------------------

TEST(the_least_recently_used_executable_is_dropped) {
  const Session session(kFakePlugin);
  base::settings().compilation_cache_size.set(2);
  const Counts counts;
  const auto run = [](std::size_t size) {
    const Tensor a = tensor(runtime::device(0), Floats(size, 1));
    EXPECT(values_of(add(a, a)) == Floats(size, 2));
  };
  run(1);
  run(4);
  run(1);
  run(7);  // drops 4
  EXPECT_EQ(runtime::compilation_cache_size(), std::size_t{2});
  EXPECT_EQ(counts.compiled(), 3);
  run(1);
  EXPECT_EQ(counts.compiled(), 3);
  run(4);
  EXPECT_EQ(counts.compiled(), 4);
  base::settings().reload();
}

TEST(numbers_that_change_are_data) {
  const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
  const Session session(fake.path());
  const Counts counts;
  const Tensor a = tensor(runtime::device(0), {1, 2});
  const int uploads = fake.calls("PJRT_Client_BufferFromHostBuffer");
  for (const double factor : {2.0, 3.0, 4.0}) {
    const Tensor b = testing::scale(testing::scale(a, factor), factor + 1);
    runtime::sync(runtime::device(0), true);
  }
  EXPECT_EQ(counts.compiled(), 1);
  // One transfer a step for all of its numbers.
  EXPECT_EQ(fake.calls("PJRT_Client_BufferFromHostBuffer") - uploads, 3);
}

TEST(a_constant_that_changes_is_compiled_twice_and_then_shared) {
  const Session session(kFakePlugin);
  const Counts counts;
  const Tensor a = tensor(runtime::device(0), {1, 2, 3, 4});
  for (const std::uint64_t start : {0, 0, 1, 2, 0, 1, 2}) {
    const Tensor part = testing::slice(a, start, 2);
    runtime::sync(runtime::device(0), true);
  }
  EXPECT_EQ(counts.compiled(), 2);
  EXPECT_EQ(counts.executed(), 7);
}

TEST(a_number_that_was_zero_at_first_is_compiled_twice_and_then_shared) {
  const Session session(kFakePlugin);
  const Counts counts;
  const Tensor a = tensor(runtime::device(0), {1, 2, 3, 4});
  const graph::Entry* entry = testing::scale_entry(a.type(), graph::SlotMode::kNumber);
  for (const double factor : {0.0, 0.0, 1.0, 2.0, 0.0, 3.0}) {
    const Tensor product = testing::record(entry, {a}, {testing::bits(factor)});
    runtime::sync(runtime::device(0), true);
  }
  EXPECT_EQ(counts.compiled(), 2);
  const Tensor b = tensor(runtime::device(0), {1, 2});
  for (const double factor : {2.0, 3.0, 0.5}) {
    const graph::Entry* other = testing::scale_entry(b.type(), graph::SlotMode::kNumber);
    const Tensor product = testing::record(other, {b}, {testing::bits(factor)});
    runtime::sync(runtime::device(0), true);
  }
  EXPECT_EQ(counts.compiled(), 3);
}

TEST(only_constants_that_change_become_data) {
  const Session session(kFakePlugin);
  const Counts counts;
  const Tensor a = tensor(runtime::device(0), {1, 2, 3, 4});
  const auto run = [&](std::uint64_t first, std::uint64_t second) {
    const Tensor x = testing::slice(a, first, 2);
    const Tensor y = testing::slice(a, second, 2);
    runtime::sync(runtime::device(0), true);
  };
  run(0, 0);
  run(0, 1);
  run(0, 2);
  EXPECT_EQ(counts.compiled(), 2);
  run(1, 2);
  run(2, 1);
  EXPECT_EQ(counts.compiled(), 3);
}

TEST(a_graph_has_a_text) {
  const Session session(kFakePlugin);
  const Tensor a = tensor(runtime::device(0), {1, 2});
  const Tensor b = add(a, a);
  const std::vector<graph::Value> values = {b.alias->value()};
  const std::string text = runtime::pending_graph(runtime::device(0), values, "stablehlo");
  EXPECT(text.find("stablehlo.add") != std::string::npos);
  EXPECT_EQ(text, runtime::pending_graph(runtime::device(0), "stablehlo"));
}

}  // namespace
}  // namespace torch_xla

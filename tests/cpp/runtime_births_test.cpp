// State that is made as a constant and updated in one graph, on the fake plugin.
#include "base/metrics.h"
#include "runtime_fixture.h"

namespace torch_xla {
namespace {

using testing::add;
using testing::add_;
using testing::Counts;
using testing::FakePlugin;
using testing::Floats;
using testing::kFakePlugin;
using testing::Session;
using testing::Tensor;
using testing::tensor;
using testing::values_of;

const graph::Entry* zeros_entry(std::int64_t size) {
  static const graph::Op op{.name = "zeros", .constant = graph::Constant::kZero};
  graph::Entry entry;
  entry.op = &op;
  entry.args = {base::Dims{size}, base::DType::kFloat32};
  entry.outputs = {testing::f32({size})};
  return testing::entry_for(base::str("zeros", size), entry);
}

Tensor zeros(runtime::Device& device, std::int64_t size) {
  const graph::Entry* const entry = zeros_entry(size);
  const std::lock_guard lock(device.live().mutex);
  return {&device, device.live().add_locked(entry->outputs[0], testing::call(entry, {}))};
}

void copy_(const Tensor& a, const Tensor& b) {
  static const graph::Op op{.name = "copy", .converts_result = true, .is_overwrite = true};
  graph::Entry entry;
  entry.op = &op;
  entry.args = {graph::Operand{0}, graph::Operand{1}};
  entry.operands = {a.type(), b.type()};
  entry.outputs = {a.type()};
  testing::write(testing::entry_for(base::str("copy", base::to_string(a.type()->shape)), entry),
                 {a, b});
}

std::string pending_text() { return runtime::pending_graph(runtime::device(0), "stablehlo"); }

TEST(a_step_that_makes_its_state_has_the_program_of_the_next) {
  const Session session(kFakePlugin);
  const Counts counts;
  base::clear_metrics();
  runtime::Device& device = runtime::device(0);
  const Tensor x = tensor(device, {1, 2});
  std::vector<Tensor> states;
  std::vector<std::string> texts;
  for (int step = 0; step < 3; ++step) {
    const Tensor loss = add(x, x);
    if (step == 0) states = {zeros(device, 2), zeros(device, 2)};
    add_(states[0], x);
    add_(states[1], states[0]);
    texts.push_back(pending_text());
    EXPECT_EQ(pending_text(), texts.back());  // to look changes nothing
    runtime::sync(device, true);
    EXPECT_EQ(base::metric_data("InputOutputAliasCount")->accumulator, 2.0);
  }
  EXPECT(texts[0] == texts[1] && texts[0] == texts[2]);
  EXPECT(texts[0].find("%2: tensor<2xf32>") != std::string::npos);
  EXPECT_EQ(counts.compiled(), 1);
  EXPECT(values_of(states[0]) == (Floats{3, 6}));
  EXPECT(values_of(states[1]) == (Floats{6, 12}));
}

TEST(a_constant_that_nobody_updates_stays_one) {
  const Session session(kFakePlugin);
  runtime::Device& device = runtime::device(0);
  const Tensor x = tensor(device, {1, 2});
  const Tensor constant = zeros(device, 2);
  const Tensor sum = add(constant, x);
  const Tensor copied = zeros(device, 2);
  copy_(copied, sum);
  EXPECT(pending_text().find("%1: tensor<2xf32>") == std::string::npos);
  runtime::sync(device, true);
  EXPECT(values_of(constant) == (Floats{0, 0}));
  EXPECT(values_of(sum) == (Floats{1, 2}));
}

TEST(memory_that_is_read_before_it_is_overwritten_is_an_input) {
  const Session session(kFakePlugin);
  const Counts counts;
  runtime::Device& device = runtime::device(0);
  const Tensor x = tensor(device, {1, 2});
  const Tensor last = zeros(device, 2);
  Tensor sum;
  for (int step = 0; step < 3; ++step) {
    sum = {};
    sum = add(x, last);
    copy_(last, sum);
    runtime::sync(device, true);
  }
  EXPECT_EQ(counts.compiled(), 1);
}

TEST(two_tensors_of_one_constant_are_two_memories_when_one_is_updated) {
  const Session session(kFakePlugin);
  runtime::Device& device = runtime::device(0);
  const Tensor x = tensor(device, {1, 2});
  const Tensor state = zeros(device, 2);
  graph::Value value = state.alias->value();
  const Tensor other{&device, graph::Alias::make(device.live(), state.type(), value)};
  value = {};
  add_(state, x);
  runtime::sync(device, true);
  EXPECT(values_of(other) == (Floats{0, 0}));
  EXPECT(values_of(state) == (Floats{1, 2}));
  add_(state, x);
  add_(other, state);
  runtime::sync(device, true);
  EXPECT(values_of(other) == (Floats{2, 4}));
  EXPECT(values_of(state) == (Floats{2, 4}));
}

TEST(a_program_that_fails_leaves_state_as_it_was_born) {
  for (const char* const call : {"PJRT_LoadedExecutable_Execute", "PJRT_Client_Compile"}) {
    const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
    const Session session(fake.path());
    runtime::Device& device = runtime::device(0);
    const Tensor x = tensor(device, {1, 2});
    const Tensor state = zeros(device, 2);
    add_(state, x);
    fake.fail(call, 8, "no memory");
    EXPECT_THROWS(runtime::sync(device, true), "no memory");
    fake.reset();
    EXPECT(values_of(state) == (Floats{0, 0}));
    add_(state, x);
    runtime::sync(device, true);
    EXPECT(values_of(state) == (Floats{1, 2}));
  }
}

TEST(state_that_can_not_be_filled_is_lost) {
  const FakePlugin fake = FakePlugin::copy_of(kFakePlugin);
  const Session session(fake.path());
  runtime::Device& device = runtime::device(0);
  const Tensor x = tensor(device, {1, 2});
  const Tensor state = zeros(device, 2);
  add_(state, x);
  add_(x, x);
  fake.fail("PJRT_Client_BufferFromHostBuffer", 8, "no memory");
  EXPECT_THROWS(runtime::sync(device, true), "no memory");
  fake.reset();
  EXPECT_THROWS(values_of(state), "no memory");
  EXPECT(values_of(x) == (Floats{1, 2}));
}

}  // namespace
}  // namespace torch_xla

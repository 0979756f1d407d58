// Calls of a graph whose program is known, on the fake plugin: what they share, and for how long.
#include <functional>
#include <thread>

#include "runtime_fixture.h"

namespace torch_xla {
namespace {

using testing::add;
using testing::add_;
using testing::array_of;
using testing::AsyncFake;
using testing::Counts;
using testing::Floats;
using testing::kFakePlugin;
using testing::Session;
using testing::Tensor;
using testing::tensor;

// The sum of two tensors as a graph that is called: nothing is recorded for a call.
class Sum {
 public:
  explicit Sum(const Tensor& a, const Tensor& b) {
    const Tensor sum = add(a, b);
    const auto read = [&](std::vector<graph::NodeRef>&) {
      return std::vector<graph::Value>{sum.alias->value()};
    };
    call_ = runtime::compute_graph(*a.device, read, "test");
    EXPECT(call_.has_value());
  }

  Floats operator()(const Tensor& a, const Tensor& b) const {
    const auto read = [&](const runtime::ArgumentListPtr& kept,
                          std::vector<const graph::DataPtr*>& leaves) {
      for (const Tensor* operand : {&a, &b}) {
        const graph::Value& value = operand->alias->value();
        const graph::DataPtr& data = value.node->data(value.output);
        if (data == nullptr) return false;
        const std::size_t i = leaves.size();
        leaves.push_back(kept != nullptr && (*kept)[i] == data ? &(*kept)[i] : &data);
      }
      return true;
    };
    const auto arrays = runtime::compute_again(*a.device, *call_, read, "test");
    return arrays.has_value() ? testing::download(*arrays->front()) : Floats();
  }

 private:
  std::optional<runtime::GraphCall> call_;
};

// Launches let go of their arguments in the queue's thread.
bool has_uses(const runtime::ArrayPtr& array, long count) {
  return testing::eventually([&] { return array.use_count() == count; });
}

TEST(calls_keep_the_arguments_that_stay_until_something_else_runs) {
  const Session session(kFakePlugin);
  runtime::Device& device = runtime::device(0);
  const Tensor weight = tensor(device, {1, 2});
  const Tensor one = tensor(device, {1, 1});
  const Sum sum(weight, one);
  runtime::wait(device);
  const runtime::ArrayPtr array = array_of(weight);
  const long uses = array.use_count();
  for (int i = 0; i < 3; ++i) {
    const Tensor x = tensor(device, {static_cast<float>(i), 0});
    const runtime::ArrayPtr x_array = array_of(x);
    const long uses_of_x = x_array.use_count();
    const Counts counts;
    EXPECT(sum(weight, x) == (Floats{static_cast<float>(1 + i), 2}));
    EXPECT_EQ(counts.executed(), 1);
    EXPECT(has_uses(array, i == 0 ? uses : uses + 1));
    EXPECT(has_uses(x_array, uses_of_x));
  }
  runtime::sync(device, true);  // there is nothing to do
  EXPECT(has_uses(array, uses + 1));
  const Tensor other = add(one, one);
  runtime::sync(device, true);
  EXPECT(has_uses(array, uses));
  EXPECT(sum(weight, one) == (Floats{2, 3}));
  EXPECT(sum(weight, one) == (Floats{2, 3}));
  EXPECT(has_uses(array, uses + 1));
  runtime::forget_arguments(device);
  EXPECT(has_uses(array, uses));
}

TEST(calls_see_arguments_that_were_written_or_exchanged) {
  const Session session(kFakePlugin);
  runtime::Device& device = runtime::device(0);
  const Tensor a = tensor(device, {1, 2});
  const Tensor b = tensor(device, {10, 20});
  const Sum sum(a, b);
  for (int i = 0; i < 3; ++i) EXPECT(sum(a, b) == (Floats{11, 22}));
  EXPECT(sum(b, a) == (Floats{11, 22}));
  EXPECT(sum(a, a) == (Floats{2, 4}));
  EXPECT(sum(a, b) == (Floats{11, 22}));
  add_(a, b);
  EXPECT(sum(a, b).empty());  // the long way has to be gone
  runtime::sync(device, false);
  EXPECT(sum(a, b) == (Floats{21, 42}));
  EXPECT(sum(a, b) == (Floats{21, 42}));
}

TEST(threads_call_one_graph_on_several_devices) {
  const AsyncFake fake(2);
  const Sum sum(tensor(runtime::device(0), {0, 0}), tensor(runtime::device(0), {0, 0}));
  std::atomic<int> num_wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      runtime::Device& device = runtime::device(i % 2);
      const auto value = static_cast<float>(i);
      const Tensor weight = tensor(device, {value, 1});
      for (int call = 0; call < 40; ++call) {
        const Tensor x = tensor(device, {static_cast<float>(call), 0});
        if (sum(weight, x) != Floats{value + static_cast<float>(call), 1}) ++num_wrong;
        if (call % 8 == 0) {
          const Tensor other = add(x, x);
          runtime::sync(device, false);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_wrong.load(), 0);
}

}  // namespace
}  // namespace torch_xla

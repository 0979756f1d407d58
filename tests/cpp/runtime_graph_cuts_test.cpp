// Graphs that differ in a small part from one that came before: what is compiled of them, and how
// often, on the fake plugin.
#include <cstdint>
#include <vector>

#include "base/settings.h"
#include "runtime_fixture.h"

namespace torch_xla::runtime {
namespace {

using testing::add;
using testing::AsyncFake;
using testing::count_of;
using testing::Counts;
using testing::record;
using testing::slice;
using testing::slice_entry;
using testing::tensor;
using testing::Tensor;
using testing::values_of;

// While it lives, graphs are cut.
class Cutting {
 public:
  Cutting() {
    base::settings().graph_cuts.set(true);
    base::settings().bounded_growth.set(false);
  }
  ~Cutting() { base::settings().reload(); }
  Cutting(const Cutting&) = delete;
  Cutting& operator=(const Cutting&) = delete;
};

// A part that does not change, long enough to be compiled by itself.
Tensor model(Tensor x, int length = 80) {
  for (int i = 0; i < length; ++i) x = add(x, x);
  return x;
}

Tensor zeros(std::size_t size) { return tensor(device(0), std::vector<float>(size)); }

Tensor first_two(const Tensor& x) { return slice(x, 0, 2); }

Tensor with_first_two(const Tensor& x, const Tensor& two) {
  return record(slice_entry(x.type(), 2, true), {x, two}, {0});
}

struct Cost {
  std::int64_t compiled;
  std::int64_t executed;
  friend bool operator==(const Cost&, const Cost&) = default;
};

template <typename Make>
Cost cost_of(const Make& make, std::size_t size) {
  const Tensor x = zeros(size);
  const Counts counts;
  const Tensor result = make(x);
  EXPECT_EQ(static_cast<std::int64_t>(values_of(result).size()), result.type()->shape.dims[0]);
  return {counts.compiled(), counts.executed()};
}

TEST(what_comes_before_the_rest_is_compiled_alone) {
  const Cutting cutting;
  const AsyncFake fake;
  const auto read = [](const Tensor& x) { return model(first_two(x)); };
  EXPECT(cost_of(read, 4) == (Cost{1, 1}));
  EXPECT(cost_of(read, 5) == (Cost{2, 2}));  // the rest is still to be compiled
  EXPECT(cost_of(read, 6) == (Cost{1, 2}));
  EXPECT(cost_of(read, 7) == (Cost{1, 2}));
  EXPECT(cost_of(read, 6) == (Cost{0, 2}));
  EXPECT(cost_of(read, 4) == (Cost{0, 1}));
}

TEST(what_comes_behind_the_rest_is_compiled_alone) {
  const Cutting cutting;
  const AsyncFake fake;
  const Tensor two = zeros(2);
  const auto read = [&](const Tensor& x) { return with_first_two(x, model(two)); };
  EXPECT(cost_of(read, 4) == (Cost{1, 1}));
  EXPECT(cost_of(read, 5) == (Cost{2, 2}));
  EXPECT(cost_of(read, 6) == (Cost{1, 2}));
}

TEST(both_are) {
  const Cutting cutting;
  const AsyncFake fake;
  base::clear_counters();
  const auto read = [](const Tensor& x) { return with_first_two(x, model(first_two(x))); };
  EXPECT(cost_of(read, 4) == (Cost{1, 1}));
  EXPECT(cost_of(read, 5) == (Cost{3, 3}));
  EXPECT(cost_of(read, 6) == (Cost{2, 3}));
  EXPECT_EQ(count_of("GraphCut"), 2);
}

TEST(graphs_that_differ_in_much_or_are_small_are_not_cut) {
  const Cutting cutting;
  const AsyncFake fake;
  const auto all = [](const Tensor& x) { return model(x); };
  const auto small = [](const Tensor& x) { return model(first_two(x), 20); };
  for (const std::size_t size : {4U, 5U, 6U}) {
    EXPECT(cost_of(all, size) == (Cost{1, 1}));
    EXPECT(cost_of(small, size) == (Cost{1, 1}));
  }
}

TEST(switched_off_each_graph_is_a_program) {
  const AsyncFake fake;
  const auto read = [](const Tensor& x) { return model(first_two(x)); };
  for (const std::size_t size : {4U, 7U, 12U}) EXPECT(cost_of(read, size) == (Cost{1, 1}));
}

}  // namespace
}  // namespace torch_xla::runtime

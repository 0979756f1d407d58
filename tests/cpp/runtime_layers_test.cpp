// Equal layers in a row: what is compiled and launched of them, on the fake plugin.
#include <cstdint>
#include <vector>

#include "base/settings.h"
#include "runtime_fixture.h"

namespace torch_xla::runtime {
namespace {

using testing::add;
using testing::add_;
using testing::AsyncFake;
using testing::count_of;
using testing::Counts;
using testing::multiply;
using testing::tensor;
using testing::Tensor;
using testing::values_of;

// While it lives, graphs are cut at layers.
class Layers {
 public:
  Layers() { base::settings().layer_programs.set(true); }
  ~Layers() { base::settings().reload(); }
  Layers(const Layers&) = delete;
  Layers& operator=(const Layers&) = delete;
};

constexpr int kLayers = 5;

// Seventeen calls, the last of which tells layers apart.
Tensor layer(Tensor x, const Tensor& weight) {
  for (int i = 0; i < 16; ++i) x = add(x, weight);
  return multiply(x, weight);
}

std::vector<Tensor> weights(std::size_t size = 2) {
  std::vector<Tensor> all;
  for (int i = 0; i < kLayers; ++i) {
    all.push_back(tensor(device(0), std::vector<float>(size, static_cast<float>(i) / 16)));
  }
  return all;
}

Tensor model(Tensor x, const std::vector<Tensor>& weights) {
  for (const Tensor& weight : weights) x = layer(x, weight);
  return x;
}

float expected(float x) {
  for (int i = 0; i < kLayers; ++i) {
    const float weight = static_cast<float>(i) / 16;
    x = (x + 16 * weight) * weight;
  }
  return x;
}

TEST(a_layer_is_compiled_once_and_launched_for_each) {
  const Layers cut;
  const AsyncFake fake;
  base::clear_counters();
  const std::vector<Tensor> all = weights();
  for (const bool is_first : {true, false}) {
    const Counts counts;
    const Tensor x = model(tensor(device(0), {1, 2}), all);
    EXPECT(values_of(x) == (std::vector<float>{expected(1), expected(2)}));
    EXPECT_EQ(counts.compiled(), is_first ? 1 : 0);
    EXPECT_EQ(counts.executed(), kLayers);
  }
  EXPECT_EQ(count_of("GraphCut"), 2);
}

TEST(a_barrier_computes_what_stands_around_them_too) {
  const Layers cut;
  const AsyncFake fake;
  const std::vector<Tensor> all = weights();
  const Tensor first = tensor(device(0), {1, 2});
  const Counts counts;
  const Tensor before = add(first, first);
  const Tensor x = model(before, all);
  const Tensor behind = add(x, first);
  sync(device(0), true);
  EXPECT_EQ(counts.compiled(), 3);
  EXPECT_EQ(counts.executed(), kLayers + 2);
  for (const Tensor& each : {before, x, behind}) EXPECT(is_leaf(each));
  EXPECT(values_of(x) == (std::vector<float>{expected(2), expected(4)}));
  EXPECT(values_of(behind) == (std::vector<float>{expected(2) + 1, expected(4) + 2}));
}

TEST(what_only_looks_like_layers_is_left_whole) {
  const Layers cut;
  const AsyncFake fake;
  const std::vector<Tensor> all = weights();
  const Tensor first = tensor(device(0), {1, 2});
  std::vector<Tensor> apart;  // none takes anything from the one before
  for (const Tensor& weight : all) apart.push_back(layer(first, weight));
  const Counts counts;
  sync(device(0), true);
  EXPECT_EQ(counts.executed(), 1);
  values_of(model(first, {all[1], all[2]}));
  EXPECT_EQ(counts.executed(), 2);
}

TEST(rows_that_replace_large_arrays_are_left_whole) {
  const Layers cut;
  const AsyncFake fake;
  for (const std::size_t size : {std::size_t{2}, std::size_t{1} << 17}) {
    const std::vector<Tensor> all = weights(size);
    Tensor x = tensor(device(0), std::vector<float>(size, 1));
    for (const Tensor& weight : all) {
      x = layer(x, weight);
      add_(weight, x);
      x = add(x, weight);
    }
    const Counts counts;
    sync(device(0), true);
    EXPECT_EQ(counts.executed(), size == 2 ? kLayers : 1);
    EXPECT(values_of(all[1]).front() > 0);
  }
}

TEST(a_layer_that_cannot_be_compiled_leaves_the_barrier_as_it_would_be) {
  const Layers cut;
  const AsyncFake fake;
  const Tensor x = model(tensor(device(0), {1, 2}), weights());
  const Tensor other = add(tensor(device(0), {1, 2}), tensor(device(0), {3, 4}));
  fake.fail("PJRT_Client_Compile", 13, "the compiler gave up");
  EXPECT_THROWS(sync(device(0), true, "train.py:7"), "of 86 operations (at train.py:7)");
  EXPECT_THROWS(values_of(x), "the compiler gave up");
  fake.reset();
  EXPECT(values_of(x) == (std::vector<float>{expected(1), expected(2)}));
  EXPECT(values_of(other) == (std::vector<float>{4, 6}));
}

TEST(switched_off_they_are_one_program) {
  const AsyncFake fake;
  const Counts counts;
  values_of(model(tensor(device(0), {1, 2}), weights()));
  EXPECT_EQ(counts.compiled(), 1);
  EXPECT_EQ(counts.executed(), 1);
}

}  // namespace
}  // namespace torch_xla::runtime

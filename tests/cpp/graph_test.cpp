// Nodes, the walk and its keys, memo entries, aliases and views.
#include <memory>
#include <set>
#include <thread>

#include "check.h"
#include "graph/alias.h"
#include "graph/inlined.h"
#include "graph/memo.h"
#include "graph/region.h"
#include "graph/walk.h"
#include "recording.h"

namespace torch_xla {
namespace {

using graph::Value;
using testing::binary_entry;
using testing::call;
using testing::f32;
using testing::leaf;
using testing::scale_entry;
using testing::slice_entry;
using testing::TestData;

Value add(const Value& a, const Value& b) {
  return call(binary_entry("add.Tensor", f32({4})), {a, b});
}
Value scale(const Value& a, double factor) {
  return call(scale_entry(f32({4})), {a}, {testing::bits(factor)});
}
Value slice(const Value& a, std::uint64_t start) {
  return call(slice_entry(f32({4}), 2), {a}, {start});
}

graph::Trace walk(const std::vector<Value>& roots) { return graph::walk(roots); }

TEST(a_chain_of_a_million_nodes_is_recorded_walked_and_freed) {
  constexpr std::size_t kLength = 1'000'000;
  const Value start = leaf(f32({4}));
  Value value = start;
  for (std::size_t i = 0; i < kLength; ++i) value = scale(value, 1.5);
  {
    const graph::Trace trace = walk({value});
    EXPECT_EQ(trace.steps.size(), kLength);
    EXPECT_EQ(trace.numbers.size(), kLength);
    EXPECT_EQ(trace.leaves.size(), std::size_t{1});
    EXPECT_EQ(trace.steps.back().uses, 1u);
  }
  value = {};
  EXPECT_EQ(start.node->use_count(), 1u);
}

TEST(a_walk_lists_operands_before_their_users_and_each_node_once) {
  const Value a = leaf(f32({4}));
  Value value = a;
  for (int i = 0; i < 40; ++i) value = add(value, value);  // 2^40 paths
  const graph::Trace trace = walk({value});
  EXPECT_EQ(trace.steps.size(), std::size_t{40});
  for (std::uint32_t i = 0; i < trace.steps.size(); ++i) {
    for (std::uint32_t k = 0; k < 2; ++k) {
      const graph::Source source = trace.sources[trace.steps[i].first_source + k];
      EXPECT(source.is_leaf ? i == 0 : source.index == i - 1);
    }
  }
  EXPECT_EQ(trace.steps.front().uses, 2u);
}

// (a, b) -> (a + b) * 2.5, a
graph::RegionPtr captured_sum() {
  auto region = std::make_shared<graph::Region>();
  const Value a = leaf(f32({4}));
  const Value b = leaf(f32({4}));
  region->trace = walk({scale(add(a, b), 2.5), a});
  region->trace.leaves.clear();
  region->num_arguments = 2;
  region->operands = region->results = {f32({4}), f32({4})};
  region->operand_of_leaf = {0, 1};
  graph::finish(*region);
  return region;
}

TEST(what_calls_hold_stands_in_their_place) {
  const Value x = leaf(f32({4}));
  const Value y = leaf(f32({4}));
  EXPECT(!graph::inlined(walk({add(x, y)})).has_value());
  const graph::Entry* const entry = graph::region_entry(graph::RegionKind::kCall, {captured_sum()},
                                                        {}, std::vector{f32({4}), f32({4})});
  const Value first = call(entry, {x, y});
  const Value second = call(entry, {scale(first, 3.0), {first.node, 1}});
  const graph::Trace trace = walk({second, {second.node, 1}});
  EXPECT_EQ(trace.steps.size(), std::size_t{3});
  const std::optional<graph::Trace> inlined = graph::inlined(trace);
  EXPECT(inlined.has_value());
  // add, scale; scale; add, scale.
  EXPECT_EQ(inlined->steps.size(), std::size_t{5});
  EXPECT_EQ(inlined->leaves.size(), std::size_t{2});
  const std::vector<std::uint64_t> numbers{testing::bits(2.5), testing::bits(3.0),
                                           testing::bits(2.5)};
  EXPECT(inlined->numbers == numbers);
  // The region's are constants until they are seen to differ.
  EXPECT(inlined->is_data == std::vector<bool>({false, trace.is_data[0], false}));
  const auto source = [&](std::size_t step, std::size_t operand) {
    return inlined->sources[inlined->steps[step].first_source + operand];
  };
  EXPECT(source(0, 0).is_leaf && source(0, 1).is_leaf);
  EXPECT(!source(3, 0).is_leaf && source(3, 0).index == 2);
  EXPECT(source(3, 1).is_leaf && source(3, 1).index == 0);  // what the first call gave back
  EXPECT_EQ(inlined->roots[0].index, 4u);
  EXPECT_EQ(inlined->roots[1].index, 2u);
  EXPECT_EQ(inlined->steps[2].uses, 2u);
}

TEST(keys_tell_one_leaf_twice_from_two_leaves) {
  const Value a = leaf(f32({4}));
  const Value b = leaf(f32({4}));
  const graph::Trace same = walk({add(a, a)});
  const graph::Trace different = walk({add(a, b)});
  EXPECT(same.strict_key != different.strict_key);
  EXPECT(same.relaxed_key != different.relaxed_key);
  EXPECT(different.strict_key == walk({add(b, a)}).strict_key);
}

TEST(keys_tell_the_roots_and_their_order) {
  const Value a = leaf(f32({4}));
  const Value x = scale(a, 2);
  const Value y = scale(x, 3);
  EXPECT(walk({y}).strict_key != walk({x, y}).strict_key);
  EXPECT(walk({y, x}).strict_key != walk({x, y}).strict_key);
}

TEST(data_is_in_no_key_and_promotables_only_in_the_strict_one) {
  const Value a = leaf(f32({4}));
  EXPECT(walk({scale(a, 2)}).strict_key == walk({scale(a, 3)}).strict_key);
  const graph::Trace first = walk({slice(a, 0)});
  const graph::Trace second = walk({slice(a, 1)});
  EXPECT(first.strict_key != second.strict_key);
  EXPECT(first.relaxed_key == second.relaxed_key);
  EXPECT_EQ(second.numbers.size(), std::size_t{1});
  EXPECT_EQ(second.numbers[0], std::uint64_t{1});
}

TEST(zero_and_one_are_in_the_strict_key_and_other_numbers_are_data) {
  const Value a = leaf(f32({4}));
  const graph::Entry* entry = scale_entry(f32({4}), graph::SlotMode::kNumber);
  std::vector<graph::Trace> traces;
  for (const double number : {0.0, 1.0, 2.0, 3.0, -0.0}) {
    traces.push_back(walk({call(entry, {a}, {testing::bits(number)})}));
    EXPECT(traces.back().relaxed_key == traces.front().relaxed_key);
    EXPECT_EQ(traces.back().is_data[0], number != 1 && testing::bits(number) != 0);
  }
  EXPECT(traces[0].strict_key != traces[1].strict_key);
  EXPECT(traces[1].strict_key != traces[2].strict_key);
  EXPECT(traces[2].strict_key == traces[3].strict_key);
  EXPECT(traces[2].strict_key == traces[4].strict_key);
  EXPECT(graph::key_of(traces[0], {true}) == traces[2].strict_key);
}

TEST(entry_keys_depend_on_every_part_of_the_call) {
  std::set<std::uint64_t> keys;
  graph::Entry entry = *binary_entry("add.Tensor", f32({4}));
  const auto add_key = [&](const graph::Entry& e) { keys.insert(graph::compute_key(e).lo); };
  add_key(entry);
  graph::Entry other = entry;
  other.op = testing::op_named("sub.Tensor");
  add_key(other);
  other = entry;
  other.args[2] = testing::constant(2);
  add_key(other);
  other = entry;
  other.args[2] = testing::constant(1.0);
  add_key(other);
  other = entry;
  other.args[1] = graph::Operand{0};
  add_key(other);
  other = entry;
  other.args[2] = std::monostate{};
  add_key(other);
  other = entry;
  other.operands[0] = f32({1});
  add_key(other);
  other = entry;
  other.outputs = {nullptr};
  add_key(other);
  other.outputs = {nullptr, f32({4})};
  add_key(other);
  other.outputs = {f32({4}), nullptr};
  add_key(other);
  EXPECT_EQ(keys.size(), std::size_t{10});
}

TEST(a_computed_value_is_a_leaf_of_the_walk) {
  const Value a = leaf(f32({4}));
  const Value x = scale(a, 2);
  const Value y = scale(x, 3);
  x.node->set_data(0, std::make_shared<TestData>(f32({4})->shape));
  const graph::Trace trace = walk({y});
  EXPECT_EQ(trace.steps.size(), std::size_t{1});
  EXPECT(trace.leaves[0] == x.node->data(0));
  EXPECT(graph::find_leaf(trace, *x.node->data(0)) == 0u);
  EXPECT(!graph::find_leaf(trace, *a.node->data(0)).has_value());
}

TEST(dropped_operands_are_freed_and_the_slots_stay) {
  const Value a = leaf(f32({4}));
  const Value x = scale(a, 2);
  EXPECT_EQ(a.node->use_count(), 2u);
  std::vector<graph::NodeRef> garbage;
  x.node->drop_operands(garbage);
  garbage.clear();
  EXPECT_EQ(a.node->use_count(), 1u);
  EXPECT_EQ(x.node->slots()[0], testing::bits(2.0));
}

TEST(a_memo_gives_every_thread_one_entry_per_call) {
  graph::Memo memo;
  const auto use = [&] {
    for (std::uint64_t round = 0; round < 100; ++round) {
      for (std::uint64_t i = 0; i < 100; ++i) {
        const std::vector<std::uint64_t> words = {i, i * 7};
        const graph::Entry* entry = memo.find(words);
        if (entry == nullptr) {
          graph::Entry fresh;
          fresh.key.lo = i;
          entry = memo.insert(words, std::move(fresh));
        }
        if (entry->key.lo != i || memo.find(words) != entry) testing::failures_in_test()++;
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(use);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memo.size(), std::size_t{100});
}

// ---- Aliases and views --------------------------------------------------------------------------

graph::ViewRef slice_of(graph::ViewRef parent, const graph::TensorType* type, std::int64_t length,
                        std::uint64_t start) {
  return graph::ViewRef::adopt(new graph::View(std::move(parent), slice_entry(type, length),
                                               slice_entry(type, length, true), {start}));
}

std::string op_of(const Value& value) {
  return value.node->entry() == nullptr ? "leaf" : value.node->entry()->op->name;
}

TEST(a_view_is_read_anew_only_after_a_write) {
  graph::LiveSet live;
  std::vector<graph::NodeRef> garbage;
  const graph::AliasRef alias = graph::Alias::make(live, f32({4}), leaf(f32({4})));
  const graph::ViewRef view = slice_of({}, f32({4}), 2, 1);
  graph::ViewCache cache;
  const Value first = graph::read_view(*alias, view.get(), cache, garbage);
  EXPECT(first == graph::read_view(*alias, view.get(), cache, garbage));
  alias->write(leaf(f32({4})), garbage);
  const Value second = graph::read_view(*alias, view.get(), cache, garbage);
  EXPECT(first != second);
  EXPECT(Value({graph::NodeRef::share(second.node->operands()[0].node), 0}) == alias->value());
  alias->expire_views();
  EXPECT(second != graph::read_view(*alias, view.get(), cache, garbage));
}

TEST(a_write_through_a_view_of_a_view_reaches_the_base) {
  graph::LiveSet live;
  std::vector<graph::NodeRef> garbage;
  const graph::AliasRef alias = graph::Alias::make(live, f32({4}), leaf(f32({4})));
  const Value before = alias->value();
  const graph::ViewRef outer = slice_of({}, f32({4}), 3, 1);
  const graph::ViewRef inner = slice_of(outer, f32({3}), 2, 0);
  graph::ViewCache cache;
  const Value update = leaf(f32({2}));
  graph::write_view(*alias, inner.get(), update, cache, garbage);
  // The base is inverse(before, inverse(outer(before), update)).
  const Value& after = alias->value();
  EXPECT_EQ(op_of(after), std::string("view:slice:inverse"));
  EXPECT(after.node->operands()[0].node == before.node.get());
  const graph::Node* middle = after.node->operands()[1].node;
  EXPECT_EQ(middle->entry()->op->name, std::string("view:slice:inverse"));
  EXPECT(middle->operands()[1].node == update.node.get());
  EXPECT(graph::read_view(*alias, inner.get(), cache, garbage) == update);
}

TEST(a_live_set_lists_the_aliases_that_exist_in_order) {
  graph::LiveSet live;
  const graph::AliasRef first = graph::Alias::make(live, f32({1}), leaf(f32({1})));
  graph::AliasRef second = graph::Alias::make(live, f32({2}), leaf(f32({2})));
  const graph::AliasRef third = graph::Alias::make(live, f32({3}), leaf(f32({3})));
  second = {};
  std::vector<graph::Alias*> seen;
  {
    const std::lock_guard lock(live.mutex);
    live.for_each([&](graph::Alias& alias) { seen.push_back(&alias); });
  }
  EXPECT_EQ(seen.size(), std::size_t{2});
  EXPECT(seen == (std::vector<graph::Alias*>{first.get(), third.get()}));
}

TEST(a_chain_of_a_hundred_thousand_views_is_freed) {
  graph::ViewRef view;
  for (int i = 0; i < 100'000; ++i) view = slice_of(view, f32({4}), 4, 0);
  view = {};
}

TEST(equal_tensor_types_have_one_address) {
  EXPECT(f32({2, 3}) == f32({2, 3}));
  EXPECT(f32({2, 3}) != f32({3, 2}));
  EXPECT(f32({2, 3}) != graph::intern({{base::DType::kFloat32, {2, 3}}, {1, 2}}));
  EXPECT(graph::contiguous_strides({2, 0, 3}) == (base::Dims{3, 3, 1}));
}

}  // namespace
}  // namespace torch_xla

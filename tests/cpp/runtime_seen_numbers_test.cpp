// Which numbers of a graph are taken for equal, and what becomes of those that part.
#include "runtime/seen_numbers.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "check.h"
#include "recording.h"

namespace torch_xla {
namespace {

using runtime::NumbersOf;
using runtime::SeenNumbers;
using runtime::SeenNumbersPtr;
using testing::f32;
using Places = std::vector<std::uint32_t>;

graph::Trace scaled_by(const std::vector<double>& numbers,
                       graph::SlotMode mode = graph::SlotMode::kData) {
  graph::Value value = testing::leaf(f32({4}));
  for (const double number : numbers) {
    value = testing::call(testing::scale_entry(f32({4}), mode), {value}, {testing::bits(number)});
  }
  return graph::walk(std::vector<graph::Value>{value});
}

TEST(numbers_with_the_same_bits_are_one) {
  EXPECT(SeenNumbers(scaled_by({2, 3, 2, 2})).same_as() == (Places{0, 1, 0, 0}));
  EXPECT(SeenNumbers(scaled_by({0.0, -0.0, 0.0})).same_as() == (Places{0, 1, 0}));
}

TEST(numbers_of_calls_of_other_operators_are_not_one) {
  const graph::Value a = testing::leaf(f32({4}));
  const graph::Entry* const scale = testing::scale_entry(f32({4}));
  graph::Entry other = *scale;
  other.op = testing::op_named("div.Tensor");
  const graph::Value scaled = testing::call(scale, {a}, {testing::bits(2)});
  const graph::Value divided =
      testing::call(testing::entry_for("divided", other), {scaled}, {testing::bits(2)});
  EXPECT(SeenNumbers(graph::walk(std::vector<graph::Value>{divided})).same_as() == (Places{0, 1}));
}

TEST(numbers_of_one_list_are_one_and_those_of_other_arguments_are_not) {
  graph::Entry entry;
  entry.op = testing::op_named("_foreach_div.ScalarList");
  entry.args = {graph::Operand{0},
                std::vector<graph::Number>{testing::slot_number(base::DType::kFloat64, 0),
                                           testing::slot_number(base::DType::kFloat64, 1)},
                testing::slot_number(base::DType::kFloat64, 2)};
  entry.operands = {f32({4})};
  entry.slots.assign(3, {base::DType::kFloat64, graph::SlotMode::kData});
  entry.outputs = {f32({4})};
  const std::vector<graph::Value> roots = {
      testing::call(testing::entry_for("list", entry), {testing::leaf(f32({4}))}, {7, 7, 7})};
  EXPECT(SeenNumbers(graph::walk(roots)).same_as() == (Places{0, 0, 2}));
}

TEST(random_keys_are_never_one) {
  graph::Entry entry;
  entry.op = testing::op_named("rand");
  entry.args = {testing::slot_number(base::DType::kUInt64, 0)};
  entry.slots = {{base::DType::kUInt64, graph::SlotMode::kData}};
  entry.outputs = {f32({4})};
  const graph::Entry* const rand = testing::entry_for("rand", entry);
  const std::vector<graph::Value> roots = {testing::call(rand, {}, {7}),
                                           testing::call(rand, {}, {7})};
  EXPECT(SeenNumbers(graph::walk(roots)).same_as() == (Places{0, 1}));
}

TEST(numbers_that_go_on_being_equal_say_nothing_new) {
  const SeenNumbers seen(scaled_by({2, 2, 3}));
  EXPECT(seen.with(scaled_by({2, 2, 3})) == nullptr);
  EXPECT(seen.with(scaled_by({5, 5, 5})) == nullptr);
}

TEST(numbers_that_part_do_so_by_their_values_and_stay_parted) {
  const SeenNumbers seen(scaled_by({2, 2, 2, 2}));
  const SeenNumbersPtr parted = seen.with(scaled_by({2, 3, 2, 3}));
  EXPECT(parted->same_as() == (Places{0, 1, 0, 1}));
  EXPECT(parted->with(scaled_by({2, 2, 2, 2})) == nullptr);
  EXPECT(parted->key_with({1, 1}) != seen.key_with({1, 1}));
}

TEST(numbers_that_part_twice_are_each_their_own) {
  const SeenNumbers seen(scaled_by({2, 2, 2, 2, 7, 7}));
  const SeenNumbersPtr once = seen.with(scaled_by({2, 2, 2, 3, 7, 7}));
  const SeenNumbersPtr twice = once->with(scaled_by({2, 2, 3, 3, 7, 7}));
  EXPECT(twice->same_as() == (Places{0, 1, 2, 3, 4, 4}));
}

TEST(after_a_few_partings_no_numbers_are_one) {
  std::vector<double> numbers;
  for (int i = 0; i < 100; ++i) numbers.insert(numbers.end(), {2.0 + i, 2.0 + i});
  auto seen = std::make_shared<const SeenNumbers>(scaled_by(numbers));
  int num_changes = 0;
  for (std::size_t i = 0; i < numbers.size(); i += 2) {
    numbers[i] += 0.5;
    if (SeenNumbersPtr now = seen->with(scaled_by(numbers))) {
      seen = now;
      ++num_changes;
    }
  }
  EXPECT(num_changes <= 8);
  EXPECT(seen->key_with({1, 1}) == (base::Hash128{1, 1}));
}

TEST(a_constant_that_changed_is_data_with_those_that_changed_with_it) {
  const graph::SlotMode mode = graph::SlotMode::kNumber;
  const SeenNumbers seen(scaled_by({0, 0, 1, 1}, mode));
  EXPECT(seen.is_data() == std::vector<bool>(4, false));
  const SeenNumbersPtr now = seen.with(scaled_by({5, 5, 1, 6}, mode));
  EXPECT(now->is_data() == (std::vector<bool>{true, true, false, true}));
  EXPECT(now->same_as() == (Places{0, 0, 2, 3}));
  EXPECT(now->with(scaled_by({0, 0, 1, 1}, mode)) == nullptr);
}

TEST(no_number_of_a_replica_is_a_constant_and_no_integer_equal_to_another) {
  const SeenNumbers floats(scaled_by({0, 1, 1}, graph::SlotMode::kNumber), NumbersOf::kReplica);
  EXPECT(floats.is_data() == std::vector<bool>(3, true));
  EXPECT(floats.same_as() == (Places{0, 1, 1}));
  EXPECT(floats.with(scaled_by({7, 8, 8}, graph::SlotMode::kNumber)) == nullptr);
  graph::Entry entry = *testing::scale_entry(f32({4}));
  entry.slots = {{base::DType::kInt64, graph::SlotMode::kNumber}};
  const graph::Entry* const scale = testing::entry_for("scaled by an integer", entry);
  const graph::Value once = testing::call(scale, {testing::leaf(f32({4}))}, {1});
  const std::vector<graph::Value> roots = {testing::call(scale, {once}, {1})};
  EXPECT(SeenNumbers(graph::walk(roots), NumbersOf::kReplica).is_data() ==
         std::vector<bool>(2, true));
  EXPECT(SeenNumbers(graph::walk(roots), NumbersOf::kReplica).same_as() == (Places{0, 1}));
  EXPECT(SeenNumbers(graph::walk(roots)).same_as() == (Places{0, 0}));
  const graph::Trace by_offsets = scaled_by({1, 1}, graph::SlotMode::kPromotable);
  EXPECT(SeenNumbers(by_offsets, NumbersOf::kReplica).is_data() == std::vector<bool>(2, false));
  EXPECT(SeenNumbers(by_offsets, NumbersOf::kReplicasOfOneProgram).is_data() ==
         std::vector<bool>(2, true));
}

}  // namespace
}  // namespace torch_xla

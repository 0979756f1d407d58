// Lowering a trace to a module, and inferring the types of a call: what is a parameter, in which
// order, and what errors say.
#include "check.h"
#include "ops/lower.h"
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

ops::Program lower(const std::vector<Value>& roots, std::span<const ops::Donation> donations = {}) {
  return ops::lower(graph::walk(roots), {"cpu"}, donations);
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(parameters_are_the_leaves_then_the_numbers_by_type) {
  const Value a = leaf(f32({4}));
  const Value scaled = call(scale_entry(f32({4})), {a}, {testing::bits(2)});
  const Value again = call(scale_entry(f32({4})), {scaled}, {testing::bits(3)});
  const ops::Program program = lower({again});
  EXPECT(contains(program.text, "(%0: tensor<4xf32>, %1: tensor<2xf64>) -> (tensor<4xf32>)"));
  EXPECT(program.floats == (std::vector<std::uint32_t>{0, 1}));
  EXPECT(program.ints.empty());
}

TEST(promotables_are_constants_until_they_are_promoted) {
  const Value a = leaf(f32({4}));
  const graph::Trace trace = graph::walk(std::vector<Value>{
      call(slice_entry(f32({4}), 2), {a}, {1}), call(slice_entry(f32({4}), 2), {a}, {2})});
  const ops::Program constant = ops::lower(trace, {"cpu"});
  EXPECT(contains(constant.text, "(%0: tensor<4xf32>) -> (tensor<2xf32>, tensor<2xf32>)"));
  const ops::Program promoted = ops::lower(trace, {"cpu"}, {}, {.is_data = {false, true}});
  EXPECT(contains(promoted.text, "%1: tensor<1xi64>) -> (tensor<2xf32>, tensor<2xf32>)"));
  EXPECT(promoted.ints == std::vector<std::uint32_t>{1});
  EXPECT(promoted.floats.empty());
}

TEST(numbers_that_are_the_same_are_one_element_taken_out_once) {
  const Value a = leaf(f32({4}));
  Value value = a;
  for (const double number : {2.0, 3.0, 2.0, 3.0}) {
    value = call(scale_entry(f32({4})), {value}, {testing::bits(number)});
  }
  const graph::Trace trace = graph::walk(std::vector<Value>{value});
  const ops::Program program = ops::lower(trace, {"cpu"}, {}, {.same_as = {0, 1, 0, 1}});
  EXPECT(contains(program.text, "(%0: tensor<4xf32>, %1: tensor<2xf64>)"));
  EXPECT(program.floats == (std::vector<std::uint32_t>{0, 1}));
  std::size_t num_slices = 0;
  for (std::size_t at = 0; (at = program.text.find("stablehlo.slice", at)) != std::string::npos;
       ++at) {
    ++num_slices;
  }
  EXPECT_EQ(num_slices, std::size_t{2});
}

TEST(donations_are_attributes_of_their_parameters) {
  const Value a = leaf(f32({4}));
  const Value b = leaf(f32({4}));
  const std::vector<ops::Donation> donations = {{0, 1}};
  const ops::Program program =
      lower({call(binary_entry("add.Tensor", f32({4})), {a, b})}, donations);
  EXPECT(contains(program.text, "%1: tensor<4xf32> {tf.aliasing_output = 0 : i32}"));
}

TEST(partitioned_programs_say_how_everything_lies) {
  const Value a = leaf(f32({4, 2}));
  const Value b = leaf(f32({4, 2}));
  const std::vector<Value> roots{call(binary_entry("add.Tensor", f32({4, 2})), {a, b})};
  const base::Mesh mesh{{2}, {1, 0}, {"data"}};
  const std::vector<const base::Sharding*> leaves{base::Sharding::make(mesh, {{0}}),
                                                  base::Sharding::replicated(2)};
  const std::vector<const base::Sharding*> results{leaves[0]};
  const ops::Program program =
      ops::lower(graph::walk(roots), {"cpu"}, {}, {}, {2, leaves, results});
  const std::size_t begin = program.text.find("sdy.mesh @") + 10;
  const std::string name = program.text.substr(begin, program.text.find(' ', begin) - begin);
  EXPECT(contains(program.text, "@" + name + " = <[\"data\"=2], device_ids=[1, 0]>"));
  const std::string split = "{sdy.sharding = #sdy.sharding<@" + name + ", [{\"data\"}, {}]>}";
  EXPECT(contains(program.text, "%0: tensor<4x2xf32> " + split));
  EXPECT(contains(program.text, "%1: tensor<4x2xf32> {sdy.sharding = #sdy.sharding<@" + name +
                                    ", [{}, {}]>}) -> (tensor<4x2xf32> " + split + ")"));
  EXPECT(!contains(lower(roots).text, "sdy"));
}

TEST(partitioned_programs_say_it_in_gspmds_words) {
  const Value a = leaf(f32({4, 2}));
  const std::vector<Value> roots{call(binary_entry("add.Tensor", f32({4, 2})), {a, a})};
  const base::Mesh mesh{{2, 3, 2}, {5, 0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11}};
  const std::vector<const base::Sharding*> leaves{base::Sharding::make(mesh, {{2}, {0}})};
  const std::vector<const base::Sharding*> results{base::Sharding::replicated(12)};
  const ops::Target target{.platform = "cpu", .partitioner = hlo::Partitioner::kGspmd};
  const ops::Program program =
      ops::lower(graph::walk(roots), target, {}, {}, {12, leaves, results});
  EXPECT(contains(program.text,
                  "%0: tensor<4x2xf32> {mhlo.sharding = \"{devices=[2,2,3]5,1,3,6,8,10,0,2,4,7,9,"
                  "11 last_tile_dim_replicate}\"}) -> (tensor<4x2xf32> {mhlo.sharding = "
                  "\"{replicated}\"})"));
  EXPECT(!contains(program.text, "sdy"));
}

TEST(a_module_does_not_need_the_operands_of_its_nodes) {
  const Value a = leaf(f32({4}));
  const Value sum = call(binary_entry("add.Tensor", f32({4})), {a, a});
  const graph::Trace trace = graph::walk(std::vector<Value>{sum});
  std::vector<graph::NodeRef> garbage;
  sum.node->drop_operands(garbage);
  EXPECT(contains(ops::lower(trace, {"cpu"}).text, "stablehlo.add"));
}

TEST(types_are_inferred_without_values) {
  graph::Entry entry = *binary_entry("add.Tensor", f32({4}));
  entry.operands[1] = f32({3, 1});
  entry.outputs.clear();
  const std::vector<std::optional<base::Shape>> types = ops::infer(entry, "cpu");
  EXPECT_EQ(types.size(), std::size_t{1});
  EXPECT(types[0] == (base::Shape{base::DType::kFloat32, {3, 4}}));
  entry.operands[1] = f32({3});
  EXPECT_THROWS(ops::infer(entry, "cpu"), "must match the size of tensor b (3)");
  entry.op = testing::op_named("no_such_operator");
  EXPECT_THROWS(ops::infer(entry, "cpu"), "aten::no_such_operator has no lowering");
}

TEST(errors_of_constraints_are_told_from_worded_ones) {
  EXPECT(ops::is_constraint_error(
      base::Error(base::ErrorKind::kInvalidArgument, "stablehlo.add: operands differ")));
  EXPECT(!ops::is_constraint_error(
      base::Error(base::ErrorKind::kInvalidArgument, "The size of tensor a (2) must match")));
}

TEST(numbers_that_travel_decide_no_type) {
  graph::Entry entry = *scale_entry(f32({4}));
  entry.outputs.clear();
  EXPECT(ops::infer(entry, "cpu")[0] == f32({4})->shape);
  entry = *slice_entry(f32({4}), 2);
  entry.outputs.clear();
  EXPECT(ops::infer(entry, "cpu")[0] == f32({2})->shape);
}

}  // namespace
}  // namespace torch_xla

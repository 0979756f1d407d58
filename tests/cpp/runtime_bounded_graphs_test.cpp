// Which graphs are worth a program for all sizes up to a bound, and what is in that program.
#include "runtime/bounded_graphs.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "ops/lower.h"
#include "recording.h"

namespace torch_xla {
namespace {

using runtime::BoundedGraph;
using runtime::BoundedGraphs;
using testing::constant;
using testing::f32;

// The sum over the first dimension of a tensor [size, 3], or another operator over that one.
graph::Trace reduced(std::int64_t size, const std::string& op = "sum.dim_IntList") {
  graph::Entry entry;
  entry.op = testing::op_named(op);
  entry.args = {graph::Operand{0}, base::Dims{0}, constant(false), std::monostate{}};
  if (op == "flip") entry.args.resize(2);
  entry.operands = {f32({size, 3})};
  entry.outputs = {op == "flip" ? f32({size, 3}) : f32({3})};
  const graph::Value value = testing::call(testing::entry_for(base::str(op, size), entry),
                                           {testing::leaf(f32({size, 3}))});
  return graph::walk(std::vector<graph::Value>{value});
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(a_size_that_grows_is_a_variable_at_its_second_value) {
  BoundedGraphs graphs;
  EXPECT(!graphs.see(reduced(5)).has_value());
  const std::optional<BoundedGraph> found = graphs.see(reduced(6));
  EXPECT(found.has_value());
  EXPECT(found->values == std::vector<std::uint64_t>{6});
  EXPECT(found->bounds.bounds == std::vector<std::int64_t>{64});
  EXPECT(graphs.see(reduced(63))->key == found->key);
  EXPECT(graphs.see(reduced(65))->key != found->key);
}

TEST(a_size_that_leaps_is_a_variable_at_its_third_value) {
  BoundedGraphs graphs;
  EXPECT(!graphs.see(reduced(64)).has_value());
  EXPECT(!graphs.see(reduced(17)).has_value());
  EXPECT(graphs.see(reduced(33))->bounds.bounds == std::vector<std::int64_t>{64});
}

TEST(sizes_that_broadcast_are_compiled_as_they_are) {
  BoundedGraphs graphs;
  EXPECT(!graphs.see(reduced(2)).has_value());
  EXPECT(!graphs.see(reduced(1)).has_value());
  EXPECT(graphs.see(reduced(3)).has_value());
}

TEST(of_growing_sizes_alone_others_are_no_variables) {
  BoundedGraphs graphs;
  EXPECT(!graphs.see(reduced(5), true).has_value());
  EXPECT(!graphs.see(reduced(9), true).has_value());
  EXPECT(!graphs.see(reduced(14), true).has_value());
  EXPECT(graphs.see(reduced(19)).has_value());
  graphs.clear();
  EXPECT(!graphs.see(reduced(5), true).has_value());
  EXPECT(graphs.see(reduced(7), true).has_value());
  EXPECT(graphs.see(reduced(40), true).has_value());
}

TEST(a_form_that_was_refused_stays_so) {
  BoundedGraphs graphs;
  graphs.see(reduced(5));
  graphs.refuse(graphs.see(reduced(6))->form);
  EXPECT(!graphs.see(reduced(7)).has_value());
  graphs.clear();
  graphs.see(reduced(7));
  EXPECT(graphs.see(reduced(8)).has_value());
}

TEST(a_bounded_program_hides_what_is_behind_the_elements) {
  BoundedGraphs graphs;
  graphs.see(reduced(5));
  const graph::Trace trace = reduced(6);
  const BoundedGraph found = *graphs.see(trace);
  const ops::Program program = ops::lower(trace, {"cpu"}, {}, {}, {}, &found.bounds);
  EXPECT(contains(program.text, "(%0: tensor<64x3xf32>, %1: tensor<1xi64>) -> (tensor<3xf32>)"));
  EXPECT(contains(program.text, "stablehlo.select"));
  EXPECT(program.ints == std::vector<std::uint32_t>{0});
  EXPECT(program.leaves == (std::vector<base::Dims>{{64, 3}}));
  EXPECT(program.roots == (std::vector<base::Dims>{{3}}));
}

TEST(an_operator_without_a_rule_has_no_bounded_program) {
  BoundedGraphs graphs;
  graphs.see(reduced(5, "flip"));
  const graph::Trace trace = reduced(6, "flip");
  const BoundedGraph found = *graphs.see(trace);
  EXPECT_THROWS(ops::lower(trace, {"cpu"}, {}, {}, {}, &found.bounds),
                "flip can't be computed for a size that is data");
}

}  // namespace
}  // namespace torch_xla

// The one key of programs: whatever differs in a spec differs in its key.
#include <set>
#include <string>
#include <vector>

#include "check.h"
#include "runtime/program_spec.h"

namespace torch_xla::runtime {
namespace {

TEST(specs_that_differ_in_one_field_have_different_keys) {
  const std::vector<ops::Donation> donations{{0, 1}};
  const std::vector<ops::Donation> other_donations{{1, 0}};
  const std::vector<const base::Sharding*> split{base::Sharding::make({{2}}, {{0}})};
  const std::vector<const base::Sharding*> whole{base::Sharding::replicated(2)};
  const std::vector<const base::Sharding*> none{nullptr};
  const std::vector<ProgramSpec> specs{
      {},
      {.program = {1, 0}},
      {.program = {0, 1}},
      {.options = {1, 0}},
      {.donations = donations},
      {.donations = other_donations},
      {.inputs = split},
      {.inputs = whole},
      {.inputs = none},
      {.results = split},
      {.results = whole},
      {.inputs = split, .results = split},
      {.placement = {.num_partitions = 2}},
      {.placement = {.num_partitions = 2, .device_assignment = {0, 1}}},
      {.placement = {.num_partitions = 2, .device_assignment = {1, 0}}},
      {.placement = {.device_assignment = {0, 1}}},
      {.may_be_quick = true},
  };
  std::set<std::string> keys;
  for (const ProgramSpec& spec : specs) keys.insert(base::to_string(key_of(spec)));
  EXPECT_EQ(keys.size(), specs.size());
}

TEST(equal_specs_have_one_key_whoever_holds_their_parts) {
  const std::vector<ops::Donation> donations{{0, 1}};
  const std::vector<ops::Donation> same = donations;
  EXPECT(key_of({.donations = donations}) == key_of({.donations = same}));
}

TEST(what_runs_on_named_devices_is_not_portable) {
  EXPECT(Placement().is_portable());
  const Placement replicas{.device_assignment = {2, 3}};
  EXPECT(!replicas.is_portable());
  EXPECT_EQ(replicas.num_replicas(), 2);
  const Placement grid{.num_partitions = 2, .device_assignment = {0, 1, 2, 3}};
  EXPECT_EQ(grid.num_replicas(), 2);
}

}  // namespace
}  // namespace torch_xla::runtime

// Collectives in StableHLO's words on four of the real plugin's devices, in two groups whose
// members do not stand in the order of their numbers.
#include "hlo_evaluate.h"
#include "ops/promotion.h"
#include "ops/replica_collectives.h"

namespace torch_xla {
namespace {

using base::DType;
using graph::Attribute;
using hlo::Value;
using hlo::Values;
using testing::evaluate_replicas;
using Numbers = std::vector<double>;

const ops::ReplicaRows kRows{{0, 3}, {2, 1}};

Attribute integer(std::int64_t value) {
  return graph::Number{.constant = value, .dtype = DType::kInt64};
}

// What each of the four replicas gets, of `x` that is ten times the replica's number on top of
// these.
std::vector<Numbers> exchanged(const std::string& op, const std::vector<Attribute>& between,
                               const Numbers& values, DType dtype = DType::kFloat32) {
  const auto out = evaluate_replicas(
      4, {testing::i32({static_cast<std::int64_t>(values.size())}, values)}, [&](auto x) {
        hlo::Builder& builder = x[0].builder();
        const Value replica = ops::convert(hlo::replica_id(builder), DType::kInt32);
        const Value ten = hlo::multiply(replica, hlo::full_like(replica, 10.0));
        const Value own = hlo::add(x[0], hlo::broadcast_in_dim(ten, x[0].dims(), {}));
        const Value result = ops::exchange_among(kRows, op, ops::convert(own, dtype), between);
        return Values{ops::convert(result, DType::kInt32)};
      });
  std::vector<Numbers> all;
  for (const auto& results : out) all.push_back(results[0].values);
  return all;
}

using All = std::vector<Numbers>;

TEST(reductions_are_of_each_group) {
  const auto reduced = [](const char* reduction) {
    return exchanged("_c10d_functional:all_reduce", {std::string(reduction)}, {1, 2});
  };
  EXPECT(reduced("sum") == (All{{32, 34}, {32, 34}, {32, 34}, {32, 34}}));
  EXPECT(reduced("max") == (All{{31, 32}, {21, 22}, {21, 22}, {31, 32}}));
  EXPECT(reduced("min") == (All{{1, 2}, {11, 12}, {11, 12}, {1, 2}}));
  EXPECT(reduced("product") == (All{{31, 64}, {231, 264}, {231, 264}, {31, 64}}));
}

TEST(reductions_by_bits_are_of_what_was_gathered) {
  const auto reduced = [](const char* reduction) {
    return exchanged("_c10d_functional:all_reduce", {std::string(reduction)}, {1}, DType::kInt64);
  };
  EXPECT(reduced("band") == (All{{1 & 31}, {11 & 21}, {11 & 21}, {1 & 31}}));
  EXPECT(reduced("bor") == (All{{1 | 31}, {11 | 21}, {11 | 21}, {1 | 31}}));
  EXPECT(reduced("bxor") == (All{{1 ^ 31}, {11 ^ 21}, {11 ^ 21}, {1 ^ 31}}));
}

TEST(parts_go_to_members_by_their_places) {
  const auto scattered = [](const char* reduction, DType dtype) {
    return exchanged("_c10d_functional:reduce_scatter_tensor", {std::string(reduction), integer(2)},
                     {1, 2}, dtype);
  };
  EXPECT(scattered("sum", DType::kFloat32) == (All{{32}, {34}, {32}, {34}}));
  EXPECT(scattered("bor", DType::kInt32) == (All{{1 | 31}, {12 | 22}, {11 | 21}, {2 | 32}}));
  EXPECT(exchanged("_c10d_functional:all_to_all_single", {base::Dims{1, 1}, base::Dims{1, 1}},
                   {1, 2}) == (All{{1, 31}, {22, 12}, {21, 11}, {2, 32}}));
}

TEST(what_is_gathered_is_in_the_order_of_the_members) {
  EXPECT(exchanged("_c10d_functional:all_gather_into_tensor", {integer(2)}, {1}) ==
         (All{{1, 31}, {21, 11}, {21, 11}, {1, 31}}));
}

TEST(a_broadcast_gives_the_bits_of_one) {
  for (const DType dtype : {DType::kUInt8, DType::kFloat16, DType::kBFloat16, DType::kFloat32,
                            DType::kInt64, DType::kFloat64}) {
    EXPECT(exchanged("_c10d_functional:broadcast", {integer(1)}, {1, 2}, dtype) ==
           (All{{31, 32}, {11, 12}, {11, 12}, {31, 32}}));
  }
}

TEST(a_permutation_is_of_the_members_of_each_group) {
  EXPECT(exchanged("xla:collective_permute", {base::Dims{0}, base::Dims{1}}, {1}) ==
         (All{{0}, {21}, {0}, {1}}));
}

TEST(messages_are_none_of_them) {
  EXPECT_THROWS(exchanged("xla:send", {integer(1), integer(0)}, {1}),
                "send: messages between two replicas can be parts of the CPU's programs alone");
}

}  // namespace
}  // namespace torch_xla

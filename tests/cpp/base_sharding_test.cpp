// Which part of an array each device of a mesh holds.
#include <numeric>
#include <vector>

#include "base/sharding.h"
#include "check.h"

namespace torch_xla::base {
namespace {

Shape f32(Dims dims) { return {DType::kFloat32, std::move(dims)}; }

TEST(equal_shardings_are_one_object) {
  const Sharding* const rows = Sharding::make({{2}}, {{0}});
  EXPECT(rows == Sharding::make({{2}}, {{0}, {}, {}}));
  EXPECT(rows != Sharding::make({{2}}, {{}, {0}}));
  EXPECT(rows != Sharding::make({{4}}, {{0}}));
  EXPECT(rows != Sharding::make({{2}, {1, 0}}, {{0}}));
  EXPECT(Sharding::make({{2}}, {{}}) == Sharding::replicated(2));
  EXPECT(Sharding::replicated(1) == nullptr);
}

TEST(a_sharding_is_found_by_its_text) {
  const Mesh mesh{{2, 2}, {0, 2, 1, 3}, {"data", "model"}};
  const Sharding* const sharding = Sharding::make(mesh, {{}, {1, 0}});
  EXPECT_EQ(sharding->text(),
            std::string(R"(["data"=2, "model"=2] over [0, 2, 1, 3] [{}, {"model", "data"}])"));
  EXPECT(Sharding::find(sharding->text()) == sharding);
  EXPECT(Sharding::make({{2, 2}, {0, 1, 2, 3}}, {{0}}) == Sharding::make({{2, 2}}, {{0}}));
  EXPECT(Sharding::make({{2, 2}}, {{0}}) != Sharding::make({{2, 2}, {}, {"a", "b"}}, {{0}}));
  EXPECT(sharding->divides(f32({1, 8})) && !sharding->divides(f32({1, 6})));
  EXPECT_THROWS(Sharding::find("[]"), "nothing lies like");
}

TEST(shards_of_a_grid_tile_the_array) {
  // The first axis splits columns, both others rows, the innermost last.
  const Sharding* const sharding = Sharding::make({{2, 2, 2}}, {{1, 2}, {0}});
  const Shape shape = f32({8, 6});
  EXPECT_EQ(sharding->num_shards(), std::size_t{8});
  EXPECT(sharding->local_shape(shape) == f32({2, 3}));
  EXPECT(sharding->slice(shape, 5).starts == (Dims{2, 3}));
  std::vector<float> whole(48);
  std::iota(whole.begin(), whole.end(), 0.0F);
  std::vector<float> copy(48);
  for (std::size_t shard = 0; shard < 8; ++shard) {
    std::vector<float> local(6);
    const Slice slice = sharding->slice(shape, shard);
    gather(whole.data(), shape, slice, local.data(), f32({2, 3}));
    EXPECT_EQ(local[4],
              whole[static_cast<std::size_t>((slice.starts[0] + 1) * 6 + slice.starts[1] + 1)]);
    scatter(local.data(), f32({2, 3}), copy.data(), shape, slice);
  }
  EXPECT(copy == whole);
}

TEST(devices_stand_in_the_mesh_in_any_order) {
  const Sharding* const sharding = Sharding::make({{2}, {1, 0}}, {{0}});
  EXPECT(sharding->slice(f32({4}), 0).starts == Dims{2});
  EXPECT(sharding->slice(f32({4}), 1).starts == Dims{0});
}

TEST(what_cannot_be_split_evenly_is_padded) {
  const Sharding* const sharding = Sharding::make({{4}}, {{0}});
  EXPECT(sharding->local_shape(f32({5})) == f32({2}));
  const std::vector<std::int64_t> sizes{2, 2, 1, 0};
  for (std::size_t shard = 0; shard < 4; ++shard) {
    EXPECT_EQ(sharding->slice(f32({5}), shard).sizes[0], sizes[shard]);
  }
}

TEST(a_scalar_is_whole_on_each_device) {
  const Sharding* const sharding = Sharding::replicated(2);
  const float value = 3;
  float copy = 0;
  gather(&value, f32({}), sharding->slice(f32({}), 1), &copy, f32({}));
  EXPECT_EQ(copy, value);
}

TEST(shardings_that_make_no_sense_are_errors) {
  EXPECT_THROWS(Sharding::make({{2, 0}}, {}), "positive sizes");
  EXPECT_THROWS(Sharding::make({{2}, {}, {"a", "b"}}, {}), "2 names for 1 axes");
  EXPECT_THROWS(Sharding::make({{2}, {0, 2}}, {}), "must be those from 0 to 1");
  EXPECT_THROWS(Sharding::make({{2}}, {{1}}), "none with number 1");
  EXPECT_THROWS(Sharding::make({{2}}, {{0}, {0}}), "splits two dimensions");
  EXPECT_THROWS(Sharding::make({{2}}, {{}, {0}})->local_shape(f32({4})), "f32[4]");
}

}  // namespace
}  // namespace torch_xla::base

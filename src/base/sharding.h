// How an array lies on the devices that its `Device` stands for: the part of it that each of them
// holds. Equal shardings are one object, so that they are compared and kept by their address; an
// array on a device that is one device has none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/shape.h"

namespace torch_xla::base {

// The devices as a grid.
struct Mesh {
  std::vector<std::int64_t> sizes;  // of its axes
  // Which of the `Device`'s devices stands where, in row-major order; empty: in their order.
  std::vector<int> devices = {};
  // Of the axes, for people; empty: they have none.
  std::vector<std::string> names = {};

  friend bool operator==(const Mesh&, const Mesh&) = default;
};

// A box of an array's elements.
struct Slice {
  Dims starts;
  Dims sizes;
};

// Immutable, never freed.
class Sharding {
 public:
  // `axes` has, for each dimension of an array, the axes of the mesh that split it, the outermost
  // first; dimensions that it leaves out are whole, and along axes that it leaves out devices hold
  // the same. Throws Error if the mesh is no grid of its devices, or an axis stands twice.
  static const Sharding* make(const Mesh& mesh, std::vector<std::vector<int>> axes);
  // Each of so many devices holds all of it. Null for one device.
  static const Sharding* replicated(std::size_t num_devices);
  // The one with that text. Throws base::Error if none was made yet.
  static const Sharding* find(std::string_view text);

  std::size_t num_shards() const { return places_.size(); }
  bool is_replicated() const { return axes_.empty(); }
  // What each device holds: the last parts of a dimension that can't be split evenly are padded.
  Shape local_shape(const Shape& shape) const;
  // The elements that the shard of the device in this place among the `Device`'s holds, without
  // padding: maybe none. Throws Error if the array has too few dimensions.
  Slice slice(const Shape& shape, std::size_t shard) const;
  // Whether all shards of such an array are of one size, without padding.
  bool divides(const Shape& shape) const;

  const Mesh& mesh() const { return mesh_; }
  // By dimension; without empty ones at the end.
  const std::vector<std::vector<int>>& axes() const { return axes_; }
  // All that tells it from others: `["data"=2, "model"=2] over [0, 2, 1, 3] [{"data"}, {}]`.
  const std::string& text() const { return text_; }
  // The same in every process.
  const Hash128& key() const { return key_; }

 private:
  Sharding(Mesh mesh, std::vector<std::vector<int>> axes);
  std::int64_t num_parts(std::size_t dimension) const;
  void check_rank(const Shape& shape) const;

  Mesh mesh_;
  std::vector<std::vector<int>> axes_;
  std::vector<std::vector<std::int64_t>> places_;  // in the mesh, by device
  std::string text_;
  Hash128 key_;
};

// `"data"`, or `"axis1"` for the second one of a mesh without names.
std::string axis_text(const Mesh& mesh, int axis);
// `["data"=2, "model"=2]`
std::string axes_text(const Mesh& mesh);

// How an array with so many dimensions lies, as XLA's `OpSharding` is printed:
// "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}". Each number is a device, in the order of the
// tiles; those that hold the same tile are the last dimension.
std::string tiling_text(const Sharding& sharding, std::int64_t rank);

// The same where there may be none: the whole array on one device.
inline std::size_t num_shards(const Sharding* sharding) {
  return sharding == nullptr ? 1 : sharding->num_shards();
}
inline bool is_whole(const Sharding* sharding) {
  return sharding == nullptr || sharding->is_replicated();
}
inline Shape local_shape(const Shape& shape, const Sharding* sharding) {
  return is_whole(sharding) ? shape : sharding->local_shape(shape);
}

// Copies between a dense array of `shape` and the memory of one of its shards, which holds `slice`
// in its first elements along each dimension. `gather` leaves the padding as it is.
void gather(const void* whole, const Shape& shape, const Slice& slice, void* local,
            const Shape& local_shape);
void scatter(const void* local, const Shape& local_shape, void* whole, const Shape& shape,
             const Slice& slice);

}  // namespace torch_xla::base

// Arrays from and to the host by the parts that their devices hold, one at a time, for those who
// must not have all of an array in host memory. Parts are dense and row-major.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "base/sharding.h"
#include "pjrt/buffer.h"
#include "runtime/array.h"
#include "runtime/device.h"

namespace torch_xla::runtime {

// Copies the part of the device in this place, with its padding, to `destination`, which must hold
// `local_shape(...).num_bytes()`. Blocks until the value is there and copied.
void download_shard(Array& array, std::size_t place, void* destination);

// A new array in the making. Not thread-safe.
class ShardUpload {
 public:
  // Throws base::Error if the shards of such an array would have padding.
  ShardUpload(Device& device, base::Shape shape, const base::Sharding* sharding);

  const base::Shape& shape() const { return shape_; }
  const base::Sharding* sharding() const { return sharding_; }
  // Of each part.
  base::Shape local_shape() const { return base::local_shape(shape_, sharding_); }
  // How many devices of this process get one.
  std::size_t num_parts() const { return buffers_.size(); }
  // Gives the device in this place its part, or another one. The memory is free when this returns.
  void put(std::size_t place, const void* data);
  // What `put` gave it, which must have been called. Blocks until it is copied.
  void get(std::size_t place, void* destination) const;
  // The array, once: each device must have its part. Throws base::Error if one has none.
  ArrayPtr finish();

 private:
  Device& device_;
  const base::Shape shape_;
  const base::Sharding* const sharding_;
  std::vector<std::optional<pjrt::Buffer>> buffers_;
};

}  // namespace torch_xla::runtime

// How tensors lie on the mesh of their device: what the user says of it, and what is so. It is a
// fact of the memory, which all tensors of that memory share. Functions throw c10::Error for
// tensors of other devices.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "base/sharding.h"

namespace torch_xla::runtime {
class ShardUpload;
}

namespace torch_xla::aten {

class TensorImpl;

// Says that the tensor's memory lies by `sharding`: its value now, which is divided at once if it
// has been computed, and those that are written later. Of a view, the value now alone. Blocks while
// it divides.
void mark_sharding(const at::Tensor& tensor, const base::Sharding* sharding);
// New tensors of the same values, which lie by the shardings: one for each. For values within a
// program; nothing is said of the tensors' memory. Autograd sees nothing of it.
std::vector<at::Tensor> constrained(const std::vector<at::Tensor>& tensors,
                                    const std::vector<const base::Sharding*>& shardings);
// Forgets it, and makes the value whole again.
void clear_sharding(const at::Tensor& tensor);
// What was said of the memory; else how its array is divided; null where neither is so.
const base::Sharding* sharding_of(const at::Tensor& tensor);
// What was said of the memory, or null.
const base::Sharding* marked_sharding(const at::Tensor& tensor);
const base::Sharding* marked_sharding(const TensorImpl& impl);

// The part of a tensor that one of the device's devices has, without padding, on the CPU.
struct LocalShard {
  at::Tensor data;
  base::Slice slice;  // where it is in the tensor
};
// In the order of the devices. Blocks until the value is there.
std::vector<LocalShard> local_shards(const at::Tensor& tensor);
// The one of the device in this place.
LocalShard local_shard(const at::Tensor& tensor, std::size_t place);
// Where they are, in the order of the devices: nothing is read, but what is pending is computed.
std::vector<base::Slice> shard_slices(const at::Tensor& tensor);

// Gives a tensor, which must not be a view, another value device by device, so that the host needs
// one part of it at a time. The tensor keeps its value until `finish`. Not thread-safe.
class ShardLoad {
 public:
  explicit ShardLoad(const at::Tensor& tensor);
  ~ShardLoad();
  // The part of the device in this place, a CPU tensor of its size; it may be given again.
  void put(std::size_t place, const at::Tensor& cpu);
  // What `put` gave.
  at::Tensor get(std::size_t place) const;
  // Throws c10::Error if a device got none.
  void finish();

 private:
  at::Tensor tensor_;
  std::unique_ptr<runtime::ShardUpload> upload_;
};

}  // namespace torch_xla::aten

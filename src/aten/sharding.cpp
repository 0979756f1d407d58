// Annotations and shards. What is still to be computed gets a constraint in its graph; what has
// been computed gets an array that lies otherwise, so that the first program that reads it is the
// one that later steps run.
#include "aten/sharding.h"

#include <ATen/ops/empty.h>

#include <mutex>
#include <utility>

#include "aten/blocking.h"
#include "aten/copy.h"
#include "aten/errors.h"
#include "aten/record.h"
#include "aten/tensor.h"
#include "base/stored_dtype.h"
#include "runtime/array.h"
#include "runtime/shard_transfer.h"
#include "runtime/transfer.h"

namespace torch_xla::aten {
namespace {

// The array that is the value of a tensor that is no view, or null.
std::shared_ptr<runtime::Array> computed_array(TensorImpl& impl) {
  if (impl.view()) return nullptr;
  std::vector<graph::NodeRef> garbage;
  const std::lock_guard lock(impl.xla_device().live().mutex);
  const graph::Value& value = impl.read(garbage);
  return std::dynamic_pointer_cast<runtime::Array>(value.node->data(value.output));
}

// Unless it was written meanwhile.
void replace_array(TensorImpl& impl, const std::shared_ptr<runtime::Array>& before,
                   std::shared_ptr<runtime::Array> after) {
  std::vector<graph::NodeRef> garbage;
  graph::DataPtr freed;
  const std::lock_guard lock(impl.xla_device().live().mutex);
  const graph::Value& value = impl.read(garbage);
  if (value.node->data(value.output) != before) return;
  freed = impl.alias()->settle(after);
  impl.write({graph::Node::make_leaf(std::move(after)), 0}, garbage);
}

void reshard(TensorImpl& impl, const std::shared_ptr<runtime::Array>& array,
             const base::Sharding* sharding) {
  if (array->sharding() == sharding) return;
  std::shared_ptr<runtime::Array> moved;
  blocking([&] {
    array->wait_launched();
    moved = runtime::reshard(*array, sharding);
  });
  replace_array(impl, array, std::move(moved));
}

at::Tensor constrained_value(const at::Tensor& tensor, const base::Sharding& sharding) {
  static auto* const record = new Recorder("xla::_sharding_constraint", "");
  return (*record)({tensor, sharding.text()});
}

void constrain(const at::Tensor& tensor, TensorImpl& impl, const base::Sharding& sharding) {
  const at::Tensor constrained = constrained_value(tensor, sharding);
  std::vector<graph::NodeRef> garbage;
  const std::lock_guard lock(impl.xla_device().live().mutex);
  impl.write(as_xla(constrained)->read(garbage), garbage);
}

void set_sharding(TensorImpl& impl, const base::Sharding* sharding) {
  if (impl.view()) return;
  const std::lock_guard lock(impl.xla_device().live().mutex);
  impl.alias()->set_sharding(sharding);
}

}  // namespace

void mark_sharding(const at::Tensor& tensor, const base::Sharding* sharding) {
  TensorImpl& impl = expect_xla(tensor, "mark_sharding", "t");
  runtime::Device& device = impl.xla_device();
  translating([&] {
    base::check(sharding->num_shards() == device.num_devices(), "mark_sharding: a mesh of ",
                sharding->num_shards(), " devices, and xla:", device.ordinal(), " stands for ",
                device.num_devices());
    set_sharding(impl, sharding);
    if (device.num_devices() == 1) return;
    const base::Shape stored = base::stored_shape(impl.xla_type()->shape);
    const std::shared_ptr<runtime::Array> array = computed_array(impl);
    // What this process has not all of can't go by way of its host.
    if (array != nullptr && array->is_complete()) {
      reshard(impl, array, device.boundary(sharding, stored));
    } else {
      constrain(tensor, impl, *sharding);
    }
  });
}

std::vector<at::Tensor> constrained(const std::vector<at::Tensor>& tensors,
                                    const std::vector<const base::Sharding*>& shardings) {
  TORCH_CHECK_VALUE(tensors.size() == shardings.size(),
                    "constrained: expected a sharding for each ", "of ", tensors.size(),
                    " tensors, got ", shardings.size());
  std::vector<at::Tensor> values;
  values.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    expect_xla(tensors[i], "constrained", "tensors");
    values.push_back(constrained_value(tensors[i], *shardings[i]));
  }
  return values;
}

void clear_sharding(const at::Tensor& tensor) {
  TensorImpl& impl = expect_xla(tensor, "clear_sharding", "t");
  set_sharding(impl, nullptr);
  translating([&] {
    if (const std::shared_ptr<runtime::Array> array = computed_array(impl)) {
      reshard(impl, array, impl.xla_device().whole());
    }
  });
}

const base::Sharding* marked_sharding(const at::Tensor& tensor) {
  return marked_sharding(expect_xla(tensor, "sharding_of", "t"));
}

const base::Sharding* marked_sharding(const TensorImpl& impl) {
  if (impl.view()) return nullptr;
  const std::lock_guard lock(impl.xla_device().live().mutex);
  return impl.alias()->sharding();
}

const base::Sharding* sharding_of(const at::Tensor& tensor) {
  if (const base::Sharding* const marked = marked_sharding(tensor)) return marked;
  const std::shared_ptr<runtime::Array> array = computed_array(*as_xla(tensor));
  return array == nullptr || base::is_whole(array->sharding()) ? nullptr : array->sharding();
}

namespace {

// Computed, as it lies on the devices.
std::shared_ptr<runtime::Array> ready_array(const at::Tensor& tensor) {
  std::shared_ptr<runtime::Array> array;
  blocking([&] {
    array = materialize(tensor);
    translating([&] { array->wait_ready(); });
  });
  return array;
}

base::Slice slice_of(const runtime::Array& array, std::size_t place) {
  const base::Shape& shape = array.shape();
  if (array.sharding() == nullptr) return {base::Dims(shape.dims.size()), shape.dims};
  return array.sharding()->slice(shape, array.device().place_of(place));
}

at::Tensor empty_on_host(const base::Shape& shape) {
  return at::empty(shape.dims,
                   at::TensorOptions().dtype(to_scalar_type(shape.dtype)).device(at::kCPU));
}

LocalShard read_shard(const at::Tensor& tensor, runtime::Array& array, std::size_t place) {
  const base::Shape local = base::local_shape(array.shape(), array.sharding());
  at::Tensor data = empty_on_host(local);
  blocking([&] {
    translating([&] { runtime::download_shard(array, place, data.mutable_data_ptr()); });
  });
  base::Slice slice = slice_of(array, place);
  for (std::size_t d = 0; d < slice.sizes.size(); ++d) {
    data = data.narrow(static_cast<std::int64_t>(d), 0, slice.sizes[d]);
  }
  return {data.to(tensor.scalar_type()), std::move(slice)};
}

void check_place(std::string_view what, std::size_t place, std::size_t count) {
  TORCH_CHECK_INDEX(place < count, what, ": expected the number of one of ", count,
                    " devices, got ", place);
}

}  // namespace

std::vector<LocalShard> local_shards(const at::Tensor& tensor) {
  expect_xla(tensor, "local_shards", "t");
  const std::shared_ptr<runtime::Array> array = ready_array(tensor);
  std::vector<LocalShard> shards;
  for (std::size_t i = 0; i < array->buffers().size(); ++i) {
    shards.push_back(read_shard(tensor, *array, i));
  }
  return shards;
}

LocalShard local_shard(const at::Tensor& tensor, std::size_t place) {
  expect_xla(tensor, "local_shard", "t");
  const std::shared_ptr<runtime::Array> array = ready_array(tensor);
  check_place("local_shard", place, array->buffers().size());
  return read_shard(tensor, *array, place);
}

std::vector<base::Slice> shard_slices(const at::Tensor& tensor) {
  TensorImpl& impl = expect_xla(tensor, "shard_slices", "t");
  std::shared_ptr<runtime::Array> array;
  blocking([&] { array = materialize(tensor); });
  std::vector<base::Slice> slices;
  for (std::size_t i = 0; i < impl.xla_device().pjrt_devices().size(); ++i) {
    slices.push_back(slice_of(*array, i));
  }
  return slices;
}

ShardLoad::ShardLoad(const at::Tensor& tensor) : tensor_(tensor) {
  TensorImpl& impl = expect_xla(tensor, "ShardLoad", "t");
  base::internal_check(!impl.view(), "ShardLoad: the tensor is a view");
  std::shared_ptr<runtime::Array> array;
  blocking([&] { array = materialize(tensor); });
  translating([&] {
    upload_ = std::make_unique<runtime::ShardUpload>(impl.xla_device(), array->shape(),
                                                     array->sharding());
  });
}

ShardLoad::~ShardLoad() = default;

void ShardLoad::put(std::size_t place, const at::Tensor& cpu) {
  const base::Shape local = upload_->local_shape();
  check_place("ShardLoad.put", place, upload_->num_parts());
  TORCH_CHECK_VALUE(cpu.sizes() == at::IntArrayRef(local.dims), "ShardLoad.put: expected ",
                    base::to_string(local), ", got ", cpu.sizes());
  const at::Tensor dense = dense_values(cpu, local.dtype);
  blocking([&] { translating([&] { upload_->put(place, dense.const_data_ptr()); }); });
}

at::Tensor ShardLoad::get(std::size_t place) const {
  const base::Shape local = upload_->local_shape();
  check_place("ShardLoad.get", place, upload_->num_parts());
  at::Tensor data = empty_on_host(local);
  blocking([&] { translating([&] { upload_->get(place, data.mutable_data_ptr()); }); });
  return data.to(tensor_.scalar_type());
}

void ShardLoad::finish() {
  translating([&] { write_data(*as_xla(tensor_), upload_->finish()); });
  tensor_.unsafeGetTensorImpl()->bump_version();
}

}  // namespace torch_xla::aten

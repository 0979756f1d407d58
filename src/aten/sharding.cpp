// Annotations and shards. What is still to be computed gets a constraint in its graph; what has
// been computed gets an array that lies otherwise, so that the first program that reads it is the
// one that later steps run.
#include "aten/sharding.h"

#include <ATen/ops/empty.h>

#include <mutex>
#include <utility>

#include "aten/blocking.h"
#include "aten/errors.h"
#include "aten/record.h"
#include "aten/tensor.h"
#include "base/stored_dtype.h"
#include "runtime/array.h"
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

void constrain(const at::Tensor& tensor, TensorImpl& impl, const base::Sharding& sharding) {
  static auto* const record = new Recorder("xla::_sharding_constraint", "");
  const at::Tensor constrained = (*record)({tensor, sharding.text()});
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
    if (const std::shared_ptr<runtime::Array> array = computed_array(impl)) {
      reshard(impl, array, device.boundary(sharding, stored));
    } else {
      constrain(tensor, impl, *sharding);
    }
  });
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

std::vector<LocalShard> local_shards(const at::Tensor& tensor) {
  expect_xla(tensor, "local_shards", "t");
  std::vector<LocalShard> shards;
  blocking([&] {
    const std::shared_ptr<runtime::Array> array = materialize(tensor);
    translating([&] {
      array->wait_ready();
      const base::Sharding* const sharding = array->sharding();
      const base::Shape& shape = array->shape();
      const base::Shape local = base::local_shape(shape, sharding);
      const auto options = at::TensorOptions().dtype(to_scalar_type(shape.dtype)).device(at::kCPU);
      for (std::size_t i = 0; i < array->buffers().size(); ++i) {
        at::Tensor data = at::empty(local.dims, options);
        array->buffers()[i].to_host(data.mutable_data_ptr(), data.nbytes()).await();
        base::Slice slice{base::Dims(shape.dims.size()), shape.dims};
        if (sharding != nullptr) slice = sharding->slice(shape, i);
        for (std::size_t d = 0; d < slice.sizes.size(); ++d) {
          data = data.narrow(static_cast<std::int64_t>(d), 0, slice.sizes[d]);
        }
        shards.push_back({data.to(tensor.scalar_type()), std::move(slice)});
      }
    });
  });
  return shards;
}

}  // namespace torch_xla::aten

#include "aten/storage.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "aten/device.h"
#include "aten/tensor.h"
#include "base/error.h"
#include "base/stored_dtype.h"
#include "runtime/array.h"

namespace torch_xla::aten {
namespace {

class NoMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t) override { return {}; }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "an xla tensor exposes no storage");
  }
};

// Behind the data pointer of a storage: what it is the storage of.
struct Memory {
  graph::AliasRef alias;
  runtime::Device* device;
};

at::Device device_of(const Memory& memory) {
  return {at::kXLA, static_cast<c10::DeviceIndex>(memory.device->ordinal())};
}

void release(void* memory) { delete static_cast<Memory*>(memory); }

// The one error of all memory that was given back, by which it is known.
const std::exception_ptr& given_back() {
  static const auto* const error = new std::exception_ptr(std::make_exception_ptr(
      base::Error(base::ErrorKind::kRuntime,
                  "the memory of this tensor was given back: its storage was "
                  "resized to 0 bytes, and not back since")));
  return *error;
}

// Under the recording lock.
bool is_given_back(const graph::Alias& alias) {
  const graph::Value& value = alias.value();
  const runtime::Array* const array = runtime::as_array(value.node->data(value.output));
  return array != nullptr && array->error() == given_back();
}

// With the gaps that strides may leave between columns: torch makes tangents of that size.
std::size_t size_of(const graph::TensorType& type) {
  const auto width = static_cast<std::size_t>(base::size_bytes(type.shape.dtype));
  const std::size_t spanned =
      at::detail::computeStorageNbytes(type.shape.dims, type.strides, width);
  return std::max(spanned, static_cast<std::size_t>(type.shape.num_bytes()));
}

// x86 faults on addresses with bit 60 and without those above; where the top byte counts for
// nothing, as on ARM, bit 55 is one of the kernel's addresses.
constexpr std::uint64_t kFirstAddress = (std::uint64_t{1} << 60) | (std::uint64_t{1} << 55);
constexpr std::uint64_t kAlignment = 256;

std::uint64_t address_of(graph::Alias& alias) {
  static std::atomic<std::uint64_t> next{kFirstAddress};
  const std::lock_guard lock(alias.live().mutex);
  if (alias.address() == 0) {
    const std::uint64_t num_bytes = std::max<std::uint64_t>(size_of(*alias.type()), 1);
    const std::uint64_t taken = (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
    alias.set_address(next.fetch_add(taken, std::memory_order_relaxed));
  }
  return alias.address();
}

c10::intrusive_ptr<c10::StorageImpl> make_storage(const graph::AliasRef& alias,
                                                  runtime::Device& device) {
  static auto* const allocator = new NoMemory();
  const bool has_memory = [&] {
    const std::lock_guard lock(alias->live().mutex);
    return !is_given_back(*alias);
  }();
  auto* const memory = new Memory{alias, &device};
  c10::DataPtr data(nullptr, memory, release, device_of(*memory));
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), has_memory ? size_of(*alias->type()) : 0,
      std::move(data), allocator, /*resizable=*/false);
  // Not on constant access too: torch compares storages by what they hold.
  storage->set_throw_on_mutable_data_ptr();
  return storage;
}

// The value of memory whose content is no matter.
graph::Value any_value(const Memory& memory, std::vector<graph::NodeRef>& garbage) {
  const base::Shape& shape = memory.alias->type()->shape;
  const auto options =
      at::TensorOptions().dtype(to_scalar_type(shape.dtype)).device(device_of(memory));
  const at::Tensor fresh = at::empty(shape.dims, options);
  const std::lock_guard lock(memory.alias->live().mutex);
  return as_xla(fresh)->read(garbage);
}

graph::Value no_value(const Memory& memory) {
  auto array =
      runtime::Array::make_pending(*memory.device, base::stored_shape(memory.alias->type()->shape));
  array->set_failed(given_back());
  return {graph::Node::make_leaf(std::move(array)), 0};
}

}  // namespace

c10::Storage storage_of(const graph::AliasRef& alias, runtime::Device& device) {
  static auto* const mutex = new std::mutex();
  static auto* const storages =
      new std::map<const graph::Alias*, c10::weak_intrusive_ptr<c10::StorageImpl>>();
  const std::lock_guard lock(*mutex);
  std::erase_if(*storages, [](const auto& item) { return item.second.expired(); });
  const auto it = storages->find(alias.get());
  c10::intrusive_ptr<c10::StorageImpl> storage;
  if (it != storages->end()) storage = it->second.lock();
  if (!storage) {
    storage = make_storage(alias, device);
    storages->insert_or_assign(alias.get(), c10::weak_intrusive_ptr<c10::StorageImpl>(storage));
  }
  return c10::Storage(std::move(storage));
}

void resize_storage(const c10::Storage& storage, std::int64_t num_bytes) {
  const auto* const memory = static_cast<const Memory*>(storage.data_ptr().get_context());
  TORCH_CHECK(memory != nullptr, "UntypedStorage.resize_: not the storage of an xla tensor");
  const graph::TensorType& type = *memory->alias->type();
  const auto whole = static_cast<std::int64_t>(size_of(type));
  TORCH_CHECK(num_bytes == 0 || num_bytes == whole,
              "UntypedStorage.resize_: the storage of an xla tensor takes 0 bytes (its memory is "
              "given back) or the ",
              whole, " that it was made with, got ", num_bytes);
  if (num_bytes == static_cast<std::int64_t>(storage.nbytes())) return;
  std::vector<graph::NodeRef> garbage;
  graph::DataPtr settled;
  graph::Value value = num_bytes == 0 ? no_value(*memory) : any_value(*memory, garbage);
  {
    const std::lock_guard lock(memory->alias->live().mutex);
    settled = memory->alias->settle(nullptr);
    memory->alias->write(std::move(value), garbage);
  }
  storage.set_nbytes(num_bytes);
}

std::uint64_t address_of(const c10::Storage& storage) {
  const auto* const memory = static_cast<const Memory*>(storage.data_ptr().get_context());
  TORCH_CHECK(memory != nullptr, "UntypedStorage.data_ptr: not the storage of an xla tensor");
  return storage.nbytes() == 0 ? 0 : address_of(*memory->alias);
}

std::uint64_t address_of(const TensorImpl& tensor) {
  if (tensor.numel() == 0 || tensor.storage().nbytes() == 0) return 0;
  const auto offset = static_cast<std::uint64_t>(tensor.storage_offset());
  return address_of(*tensor.alias()) + offset * tensor.itemsize();
}

}  // namespace torch_xla::aten

// Ownership of a plugin's buffer, and the way back to the host.
#include "pjrt/buffer.h"

#include <utility>

#include "pjrt/api.h"
#include "pjrt/client.h"
#include "pjrt/live_objects.h"

namespace torch_xla::pjrt {

Buffer::Buffer(std::shared_ptr<Client> client, PJRT_Buffer* buffer)
    : client_(std::move(client)), buffer_(buffer) {
  live_counters().buffers.fetch_add(1, std::memory_order_relaxed);
}

Buffer::Buffer(Buffer&& other) noexcept
    : client_(std::move(other.client_)), buffer_(std::exchange(other.buffer_, nullptr)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  destroy();
  client_ = std::move(other.client_);
  buffer_ = std::exchange(other.buffer_, nullptr);
  return *this;
}

Buffer::~Buffer() { destroy(); }

void Buffer::destroy() noexcept {
  if (buffer_ == nullptr) return;
  auto args = PJRT_MAKE(PJRT_Buffer_Destroy_Args);
  args.buffer = std::exchange(buffer_, nullptr);
  PJRT_CALL_NOEXCEPT(client_->api(), PJRT_Buffer_Destroy, args);
  live_counters().buffers.fetch_sub(1, std::memory_order_relaxed);
}

base::DType Buffer::dtype() const {
  auto args = PJRT_MAKE(PJRT_Buffer_ElementType_Args);
  args.buffer = buffer_;
  PJRT_CALL(client_->api(), PJRT_Buffer_ElementType, args);
  return from_buffer_type(args.type);
}

base::Dims Buffer::dims() const {
  auto args = PJRT_MAKE(PJRT_Buffer_Dimensions_Args);
  args.buffer = buffer_;
  PJRT_CALL(client_->api(), PJRT_Buffer_Dimensions, args);
  return base::Dims(args.dims, args.dims + args.num_dims);
}

Device* Buffer::device() const {
  auto args = PJRT_MAKE(PJRT_Buffer_Device_Args);
  args.buffer = buffer_;
  PJRT_CALL(client_->api(), PJRT_Buffer_Device, args);
  return client_->find_device(args.device);
}

std::size_t Buffer::on_device_size_in_bytes() const {
  auto args = PJRT_MAKE(PJRT_Buffer_OnDeviceSizeInBytes_Args);
  args.buffer = buffer_;
  PJRT_CALL(client_->api(), PJRT_Buffer_OnDeviceSizeInBytes, args);
  return args.on_device_size_in_bytes;
}

bool Buffer::is_on_cpu() const {
  auto args = PJRT_MAKE(PJRT_Buffer_IsOnCpu_Args);
  args.buffer = buffer_;
  PJRT_CALL(client_->api(), PJRT_Buffer_IsOnCpu, args);
  return args.is_on_cpu;
}

Event Buffer::to_host(void* dst, std::size_t size_bytes) const {
  const base::Dims sizes = dims();
  // A null destination asks for the size instead of copying, and an empty array may have one.
  if (base::num_elements(sizes) == 0) return ready_event();
  std::vector<std::int64_t> minor_to_major(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    minor_to_major[i] = static_cast<std::int64_t>(sizes.size() - 1 - i);
  }
  auto layout = PJRT_MAKE(PJRT_Buffer_MemoryLayout);
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();
  auto args = PJRT_MAKE(PJRT_Buffer_ToHostBuffer_Args);
  args.src = buffer_;
  args.host_layout = &layout;
  args.dst = dst;
  args.dst_size = size_bytes;
  PJRT_CALL(client_->api(), PJRT_Buffer_ToHostBuffer, args);
  return Event(client_->api(), args.event, "PJRT_Buffer_ToHostBuffer");
}

Event Buffer::ready_event() const {
  auto args = PJRT_MAKE(PJRT_Buffer_ReadyEvent_Args);
  args.buffer = buffer_;
  PJRT_CALL(client_->api(), PJRT_Buffer_ReadyEvent, args);
  return Event(client_->api(), args.event, "PJRT_Buffer_ReadyEvent");
}

Buffer Buffer::copy_to_device(Device* device) const {
  auto args = PJRT_MAKE(PJRT_Buffer_CopyToDevice_Args);
  args.buffer = buffer_;
  args.dst_device = device->c_device();
  PJRT_CALL(client_->api(), PJRT_Buffer_CopyToDevice, args);
  return Buffer(client_, args.dst_buffer);
}

void Buffer::delete_() {
  auto args = PJRT_MAKE(PJRT_Buffer_Delete_Args);
  args.buffer = buffer_;
  PJRT_CALL(client_->api(), PJRT_Buffer_Delete, args);
}

bool Buffer::is_deleted() const {
  auto args = PJRT_MAKE(PJRT_Buffer_IsDeleted_Args);
  args.buffer = buffer_;
  PJRT_CALL(client_->api(), PJRT_Buffer_IsDeleted, args);
  return args.is_deleted;
}

std::uintptr_t Buffer::unsafe_pointer() const {
  auto args = PJRT_MAKE(PJRT_Buffer_UnsafePointer_Args);
  args.buffer = buffer_;
  PJRT_CALL(client_->api(), PJRT_Buffer_UnsafePointer, args);
  return args.buffer_pointer;
}

ExternalReference::ExternalReference(const Buffer& buffer) : api_(buffer.client().api()) {
  buffer.ready_event().await();
  auto increase = PJRT_MAKE(PJRT_Buffer_IncreaseExternalReferenceCount_Args);
  increase.buffer = buffer.c_buffer();
  PJRT_CALL(api_, PJRT_Buffer_IncreaseExternalReferenceCount, increase);
  buffer_ = buffer.c_buffer();
  auto pointer = PJRT_MAKE(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args);
  pointer.buffer = buffer_;
  try {
    PJRT_CALL(api_, PJRT_Buffer_OpaqueDeviceMemoryDataPointer, pointer);
  } catch (...) {
    release();
    throw;
  }
  data_ = pointer.device_memory_ptr;
}

ExternalReference::ExternalReference(ExternalReference&& other) noexcept
    : api_(other.api_),
      buffer_(std::exchange(other.buffer_, nullptr)),
      data_(std::exchange(other.data_, nullptr)) {}

ExternalReference& ExternalReference::operator=(ExternalReference&& other) noexcept {
  if (this == &other) return *this;
  release();
  api_ = other.api_;
  buffer_ = std::exchange(other.buffer_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  return *this;
}

ExternalReference::~ExternalReference() { release(); }

void ExternalReference::release() noexcept {
  if (buffer_ == nullptr) return;
  auto args = PJRT_MAKE(PJRT_Buffer_DecreaseExternalReferenceCount_Args);
  args.buffer = std::exchange(buffer_, nullptr);
  PJRT_CALL_NOEXCEPT(api_, PJRT_Buffer_DecreaseExternalReferenceCount, args);
}

}  // namespace torch_xla::pjrt

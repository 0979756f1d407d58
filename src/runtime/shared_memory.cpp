// Sharing by the plugin's external references and views.
#include "runtime/shared_memory.h"

#include <cstdint>
#include <utility>

#include "pjrt/client.h"
#include "runtime/client.h"
#include "runtime/device.h"

namespace torch_xla::runtime {
namespace {

// XLA's programs for the CPU use aligned instructions on what they are given.
constexpr std::uintptr_t kAlignment = 64;

}  // namespace

bool shares_host_memory(Device& device) { return platform() == "cpu" && device.num_devices() == 1; }

SharedMemory::SharedMemory(ArrayPtr array) : array_(std::move(array)) {
  array_->wait_ready();
  const std::vector<pjrt::Buffer>& buffers = array_->buffers();
  base::check(buffers.size() == 1, "an array that lies on ", buffers.size(),
              " devices can't be shown to the host as one piece of memory");
  reference_ = std::make_unique<pjrt::ExternalReference>(buffers[0]);
  data_ = reference_->data();
  const std::lock_guard lock(list().mutex_);
  list().all_.insert(this);
}

SharedMemory::~SharedMemory() {
  const std::lock_guard lock(list().mutex_);
  list().all_.erase(this);
  reference_.reset();
}

SharedMemories& SharedMemory::list() const { return array_->device().shared_memories(); }

void SharedMemories::end_all() {
  const std::lock_guard lock(mutex_);
  for (SharedMemory* const memory : all_) memory->reference_.reset();
}

ArrayPtr adopt_memory(Device& device, void* data, base::Shape shape,
                      std::function<void()> on_delete) {
  if (!shares_host_memory(device) || reinterpret_cast<std::uintptr_t>(data) % kAlignment != 0) {
    return nullptr;
  }
  pjrt::Device& target = device.any_pjrt_device();
  std::vector<pjrt::Buffer> buffers;
  buffers.push_back(target.client().create_view_of_device_buffer(data, shape.dtype, shape.dims,
                                                                 &target, std::move(on_delete)));
  return Array::make_launched(device, std::move(buffers), std::move(shape), device.whole());
}

}  // namespace torch_xla::runtime

// Sharing by the plugin's external references and views.
#include "runtime/shared_memory.h"

#include <cstdint>
#include <mutex>
#include <set>
#include <utility>

#include "pjrt/client.h"
#include "runtime/client.h"
#include "runtime/device.h"

namespace torch_xla::runtime {
namespace {

// XLA's programs for the CPU use aligned instructions on what they are given.
constexpr std::uintptr_t kAlignment = 64;

struct Shared {
  std::mutex mutex;
  std::set<SharedMemory*> all;  // under mutex
};

Shared& shared() {
  // Never destroyed: tensors of static lifetime end after everything.
  static auto* const instance = new Shared();
  return *instance;
}

}  // namespace

bool shares_host_memory(Device& device) { return platform() == "cpu" && device.num_devices() == 1; }

SharedMemory::SharedMemory(ArrayPtr array) : array_(std::move(array)) {
  array_->wait_ready();
  const std::vector<pjrt::Buffer>& buffers = array_->buffers();
  base::check(buffers.size() == 1, "an array that lies on ", buffers.size(),
              " devices can't be shown to the host as one piece of memory");
  reference_ = std::make_unique<pjrt::ExternalReference>(buffers[0]);
  data_ = reference_->data();
  const std::lock_guard lock(shared().mutex);
  shared().all.insert(this);
}

SharedMemory::~SharedMemory() {
  const std::lock_guard lock(shared().mutex);
  shared().all.erase(this);
  reference_.reset();
}

void end_shared_memory() {
  const std::lock_guard lock(shared().mutex);
  for (SharedMemory* const memory : shared().all) memory->reference_.reset();
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

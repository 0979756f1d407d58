// The current device, and how torch asks about devices: the guard.
#include "aten/device.h"

#include <c10/core/AutogradState.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "aten/errors.h"
#include "runtime/client.h"
#include "runtime/executor.h"

namespace torch_xla::aten {
namespace {

thread_local int current_index = 0;

// Streams do not exist on this device: a queue per device orders its programs.
class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::XLA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device previous = getDevice();
    uncheckedSetDevice(device);
    return previous;
  }
  c10::Device getDevice() const override {
    return {c10::DeviceType::XLA, static_cast<c10::DeviceIndex>(current_index)};
  }
  void setDevice(c10::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) current_index = device.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return getStream(stream.device());
  }
  // The first backward of a process asks this for good, also one on the CPU: an upper bound from
  // the settings, which makes no client.
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(runtime::device_count_upper_bound());
  }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream& stream) const override {
    synchronizeDevice(stream.device_index());
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    if (runtime::is_initialized()) runtime::wait(runtime::device(index));
  }
};

C10_REGISTER_GUARD_IMPL(XLA, Guard);

}  // namespace

int number_of(c10::DeviceIndex index) {
  constexpr int kNumIndices = 256;
  return index < -1 ? index + kNumIndices : index;
}

runtime::Device& device_of(c10::Device device) {
  TORCH_CHECK(device.is_xla(), "expected an xla device, got ", device);
  const int index = device.has_index() ? number_of(device.index()) : current_index;
  return translating([&]() -> runtime::Device& { return runtime::device(index); });
}

runtime::Device& current_device() {
  return translating([]() -> runtime::Device& { return runtime::device(current_index); });
}

void keep_backward_in_this_thread() {
  thread_local bool is_kept = false;
  if (is_kept) return;
  is_kept = true;
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

int current_device_index() { return current_index; }
void set_current_device_index(int index) { current_index = index; }

}  // namespace torch_xla::aten

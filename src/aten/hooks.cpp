// What torch asks its xla backend for beside operators: generators, devices, pinned memory.
#include <ATen/detail/XLAHooksInterface.h>

#include "aten/device.h"
#include "aten/generator.h"
#include "runtime/client.h"

namespace torch_xla::aten {
namespace {

struct XLAHooks final : at::XLAHooksInterface {
  explicit XLAHooks(at::XLAHooksArgs = {}) {}
  void init() const override {}
  bool hasXLA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  std::string showConfig() const override {
    return "torch_xla, device type " +
           (runtime::is_initialized() ? runtime::client().device_type() : "not chosen yet");
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(resolve(index));
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<XlaGenerator>(resolve(index));
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device_index());
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(runtime::device_count_upper_bound());
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return runtime::is_initialized(); }
  bool isPinnedPtr(const void*) const override { return false; }

 private:
  static c10::DeviceIndex resolve(c10::DeviceIndex index) {
    TORCH_CHECK(index >= -1, "device index ", number_of(index), " does not exist");
    return index >= 0 ? index : static_cast<c10::DeviceIndex>(current_device_index());
  }
};

}  // namespace
}  // namespace torch_xla::aten

namespace at {
// The key is the name of the class in the torch_xla that torch was written for.
C10_REGISTER_CLASS(XLAHooksRegistry, torch_xla::detail::XLAHooks, torch_xla::aten::XLAHooks);
}  // namespace at

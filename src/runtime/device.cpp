// What a device is from its making on.
#include "runtime/device.h"

#include <utility>

namespace torch_xla::runtime {
namespace {

// What is for one device runs on any.
Placement placement_on(const std::vector<pjrt::Device*>& devices) {
  Placement placement;
  if (devices.size() == 1) return placement;
  placement.num_partitions = static_cast<int>(devices.size());
  for (const pjrt::Device* const device : devices) {
    placement.device_assignment.push_back(device->id());
  }
  return placement;
}

}  // namespace

Device::Device(int ordinal, std::string name, std::vector<pjrt::Device*> devices)
    : ordinal_(ordinal),
      name_(std::move(name)),
      pjrt_devices_(std::move(devices)),
      whole_(base::Sharding::replicated(pjrt_devices_.size())),
      placement_(placement_on(pjrt_devices_)),
      launches_("xla:" + std::to_string(ordinal)) {}

const base::Sharding* Device::boundary(const base::Sharding* sharding,
                                       const base::Shape& shape) const {
  const bool fits = !base::is_whole(sharding) && sharding->num_shards() == num_devices() &&
                    sharding->axes().size() <= shape.dims.size() && sharding->divides(shape);
  return fits ? sharding : whole_;
}

void Device::spread(std::vector<pjrt::Device*> devices) {
  forget_arguments(*this);
  launches_.wait_idle();
  const base::Sharding* const whole = base::Sharding::replicated(devices.size());
  arrays_.spread(devices, whole);
  placement_ = placement_on(devices);
  pjrt_devices_ = std::move(devices);
  whole_ = whole;
}

void Device::close(const std::exception_ptr& error) {
  shared_memories_.end_all();
  uncompiled_.fail_all(error);
  launches_.close();
  forget_arguments(*this);
  arrays_.release_all(error);
}

}  // namespace torch_xla::runtime

// What a device is from its making on.
#include "runtime/device.h"

#include <limits>
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

Device::Device(int ordinal, std::string name, const std::vector<pjrt::Device*>& devices)
    : ordinal_(ordinal), name_(std::move(name)), launches_("xla:" + std::to_string(ordinal)) {
  stand_for(devices);
}

void Device::stand_for(const std::vector<pjrt::Device*>& devices) {
  pjrt_devices_.clear();
  places_.clear();
  for (std::size_t place = 0; place < devices.size(); ++place) {
    if (!devices[place]->is_addressable()) continue;
    pjrt_devices_.push_back(devices[place]);
    places_.push_back(place);
  }
  num_devices_ = devices.size();
  whole_ = base::Sharding::replicated(num_devices_);
  placement_ = placement_on(devices);
}

std::int32_t Device::next_launch_id() {
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  return num_launches_.fetch_add(1, std::memory_order_relaxed) % kMost + 1;
}

const base::Sharding* Device::boundary(const base::Sharding* sharding,
                                       const base::Shape& shape) const {
  const bool fits = !base::is_whole(sharding) && sharding->num_shards() == num_devices() &&
                    sharding->axes().size() <= shape.dims.size() && sharding->divides(shape);
  return fits ? sharding : whole_;
}

void Device::spread(const std::vector<pjrt::Device*>& devices) {
  forget_arguments(*this);
  launches_.wait_idle();
  arrays_.spread(devices, base::Sharding::replicated(devices.size()));
  stand_for(devices);
}

void Device::close(const std::exception_ptr& error) {
  shared_memories_.end_all();
  uncompiled_.fail_all(error);
  launches_.close();
  forget_arguments(*this);
  arrays_.release_all(error);
}

}  // namespace torch_xla::runtime

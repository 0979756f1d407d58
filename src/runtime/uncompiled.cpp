// Who gets to use a launch is decided by who takes it out of the device's list.
#include "runtime/uncompiled.h"

#include <utility>

#include "base/error.h"
#include "runtime/device.h"
#include "runtime/launch.h"

namespace torch_xla::runtime {

UncompiledLaunches& Uncompiled::all() const { return launch_->device->uncompiled(); }

Uncompiled::~Uncompiled() {
  if (launch_ == nullptr || !is_listed_) return;
  const std::lock_guard lock(all().mutex_);
  all().launches_.erase(launch_);
}

void Uncompiled::list() {
  if (std::exchange(is_listed_, true)) return;
  const std::lock_guard lock(all().mutex_);
  all().launches_.insert(launch_);
}

void Uncompiled::take() {
  if (!std::exchange(is_listed_, false)) return;
  const std::lock_guard lock(all().mutex_);
  base::check(all().launches_.erase(launch_) == 1, "the xla device was shut down");
}

void UncompiledLaunches::fail_all(const std::exception_ptr& error) {
  std::set<std::shared_ptr<Launch>> launches;
  {
    const std::lock_guard lock(mutex_);
    launches.swap(launches_);
  }
  for (const std::shared_ptr<Launch>& launch : launches) launch->fail(error);
}

}  // namespace torch_xla::runtime

// The barrier for programs in C++.
#include "aten/barrier.h"

#include "aten/device.h"
#include "aten/errors.h"
#include "runtime/executor.h"

namespace torch_xla::aten {

void sync(c10::Device device, bool wait) {
  translating([&] {
    base::check(device.is_xla(), "sync: device must be an xla device, got ", device.str());
    runtime::sync(device_of(device), wait);
  });
}

}  // namespace torch_xla::aten

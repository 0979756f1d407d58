// Which runtime device a torch device stands for, and the current one of this thread.
#pragma once

#include <c10/core/Device.h>

#include "runtime/device.h"

namespace torch_xla::aten {

// The device of `xla` (the current one) or `xla:N`. Creates the client on first use.
runtime::Device& device_of(c10::Device device);
runtime::Device& current_device();
// What the user wrote: PyTorch reads numbers above 127 as negative ones.
int number_of(c10::DeviceIndex index);
// Backward passes of the calling thread run in it, as they do on the CPU, and not in a thread of
// the device: recording waits for no device, and handing over costs two wake-ups per pass. Only the
// first call in a thread does this, so that a program may choose otherwise.
void keep_backward_in_this_thread();
// Thread-local, as for CUDA; 0 at first.
int current_device_index();
void set_current_device_index(int index);

}  // namespace torch_xla::aten

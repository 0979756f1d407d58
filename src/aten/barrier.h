// The barrier for programs in C++, as torch_xla.sync() is for those in Python. It is installed, as
// <torch_xla/aten/barrier.h>, so it includes headers of torch's alone.
#pragma once

#include <c10/core/Device.h>

namespace torch_xla::aten {

// Runs what is recorded for the xla device, as one program that computes all of its live tensors.
// Returns when it is launched; with `wait`, when every value is there. Throws a c10::Error if the
// program, or one before it, fails, and for a device that is not xla's.
void sync(c10::Device device, bool wait = false);

}  // namespace torch_xla::aten

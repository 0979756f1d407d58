// Collectives of the CPU's programs: calls in the middle of them, which exchange with other
// processes or threads (ops/collectives.cpp).
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>

#include "runtime/host_kernels.h"

namespace torch_xla::aten {

// Runs a call of a collective, the last of whose arguments is the group: all of it, or the part
// that the call names. The first part takes the tensor and waits for nobody whom the program could
// do without. The second writes the result; it belongs to the first whose second is still to come.
void run_collective(const runtime::HostCall& call, const c10::OperatorHandle& op,
                    torch::jit::Stack stack);

// What the device's programs have begun and will not finish any more.
void forget_exchanges_of(std::int64_t device);

}  // namespace torch_xla::aten

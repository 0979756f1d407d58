// Reads of a few small integers, as a library asks of its arguments ("is there any padding?"): for
// each new size a program of its own would be compiled, which takes longer than all its launches.
// They are computed on the host instead, by who knows how.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "graph/walk.h"
#include "runtime/transfer.h"

namespace torch_xla::runtime {

struct Plan;

// What the trace's roots are for these leaves, dense and row-major; nothing where it can't tell.
// Called without a lock. May throw, which is no answer either.
using HostEvaluation = std::vector<std::vector<std::byte>> (*)(const graph::Trace& trace,
                                                               std::span<const HostArray> leaves);
// Once, before anything is read.
void set_host_evaluation(HostEvaluation evaluation);

// True if it has given the plan of a read its values; else the plan is as it was, also when it
// throws, as an interrupted wait does.
bool compute_on_host(Device& device, Plan& plan);

}  // namespace torch_xla::runtime

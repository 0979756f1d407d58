// Process groups whose members are processes of one host exchange tensors through memory that they
// share.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace torch_xla::aten {

// Lets the group's collectives of CPU tensors go through memory where that is possible, and leaves
// messages from one member to another with the backend that the group has. All members call it at
// the same time, and find the same.
void meet_in_host_memory(c10d::ProcessGroup& process_group);

}  // namespace torch_xla::aten

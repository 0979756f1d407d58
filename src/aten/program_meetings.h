// Where replicas meet that launch one program together (runtime/replica_programs.h).
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace torch_xla::aten {

// Tells the other processes of the job who is in this one's group of that name.
void say_members(c10d::Store& partitions, const std::string& group,
                 const std::vector<std::int64_t>& members, std::int64_t rank);

// Once, when the library is loaded.
void install_program_meetings();

}  // namespace torch_xla::aten

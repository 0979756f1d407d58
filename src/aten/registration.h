// What the dispatcher is told when the library is loaded.
#pragma once

#include <string>
#include <vector>

namespace torch_xla::aten {

// Lowerings that this torch cannot use, each with the reason: names it does not know, parameters
// that do not fit its schema. Empty when registry and torch agree; a test asserts it.
std::vector<std::string> registration_problems();
// The operators that the recording kernel serves.
std::vector<std::string> lowered_operators();
// Those that programs call on the host where they can (see ops/host_call.h).
std::vector<std::string> host_operators();

}  // namespace torch_xla::aten

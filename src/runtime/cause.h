// Why the calling thread runs what was recorded, in words for PT_XLA_DEBUG: "end of a step of the
// data loader". The innermost scope holds; without one, the executor says what called it.
#pragma once

#include <string>

namespace torch_xla::runtime {

// What runs: everything that is live, at a barrier or at the end of a group of eager operations;
// what a read needs; or one graph of torch.compile.
enum class RunKind { kBarrier, kEager, kRead, kGraph };

// Empty when there is no scope. The reference is valid until the next call of `set_cause` here.
const std::string& cause();
// Returns what held before.
std::string set_cause(std::string cause);

}  // namespace torch_xla::runtime

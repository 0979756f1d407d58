// What is recorded and what was compiled, for those who want to look: texts, keys and the
// compiler's estimates of memory. Nothing here runs a program.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "graph/node.h"
#include "runtime/device.h"

namespace torch_xla::runtime {

// What a read of `values` would run, as "text", "dot", "stablehlo" or "hlo" (XLA's own text, for
// which the program is compiled).
std::string pending_graph(Device& device, std::span<const graph::Value> values,
                          std::string_view format);
// The same for everything that a barrier would compute.
std::string pending_graph(Device& device, std::string_view format);
// Equal for values whose programs are equal.
std::string pending_graph_key(Device& device, std::span<const graph::Value> values);

// The compiler's estimate of what the program of the next barrier takes, in bytes: `argument`,
// `output`, `alias` (of the arguments, reused for outputs), `temp`, `generated_code`, `peak` (0 if
// the plugin does not say). Compiles the program, which the barrier then finds.
std::map<std::string, std::int64_t> estimate_memory(Device& device);
// The same for a read of `values`, whose program it does not keep for the read.
std::map<std::string, std::int64_t> estimate_memory(Device& device,
                                                    std::span<const graph::Value> values);

// Of the program that this thread ran last, by a barrier or a read; empty at first. Equal for one
// executable.
std::string last_program_key();
// What its executable says of its memory in bytes, by name ("temp_size_in_bytes"); empty if there
// is no program or it was dropped.
std::map<std::string, std::int64_t> last_program_memory();

}  // namespace torch_xla::runtime

// XLA's own text for a program, which only the compiler knows to write.
#pragma once

#include <string>

namespace torch_xla::runtime {

// The HLO module that the plugin makes of a StableHLO program, before or after it optimizes.
// Compiles the program to have it written. Throws Error if the plugin writes none.
std::string hlo_text(const std::string& stablehlo, bool is_optimized);

}  // namespace torch_xla::runtime

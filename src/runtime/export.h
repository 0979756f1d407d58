// Recorded values as a program that stands for itself, to be kept in a file and run elsewhere.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "graph/node.h"
#include "runtime/device.h"

namespace torch_xla::runtime {

struct ExportedProgram {
  // A StableHLO module. Its parameters are the inputs in the order given, used or not, then
  // `captured`; all numbers are constants. It names no kernel of this process or platform.
  std::string text;
  // Arrays that the values are computed from and that are no inputs.
  std::vector<graph::DataPtr> captured;
};

// Computes nothing. An array given twice as an input is read from its first place.
ExportedProgram export_program(Device& device, std::span<const graph::Value> values,
                               std::span<const graph::DataPtr> inputs);

}  // namespace torch_xla::runtime

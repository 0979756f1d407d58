// Marks around operations that belong together: between the marks of its inputs and of its outputs,
// a composite is one operation with a name, whose meaning the marked operations are. Only exported
// programs have composites; elsewhere marks are nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/walk.h"
#include "hlo/ops.h"

namespace torch_xla::ops {

// Reads lines "name=kind:value" of kinds i, f, b and s.
hlo::Attributes parse_attributes(std::string_view text);

// All numbers are of steps of the trace, in ascending order where the marks' positions do not say
// another.
struct Composite {
  std::string name;  // "vendor.op"
  hlo::Attributes attributes;
  std::vector<std::uint32_t> inputs;   // its marks, by position
  std::vector<std::uint32_t> outputs;  // likewise
  std::vector<std::uint32_t> body;     // what is computed between them
  std::vector<std::uint32_t> leaves;   // of the trace, which the body reads beside the inputs
};

// Empty when nothing is marked.
std::vector<Composite> find_composites(const graph::Trace& trace);

// The steps that the trace's roots need, operands first, when each composite is one step that needs
// its input marks and stands where its output marks are.
std::vector<std::uint32_t> contracted_order(const graph::Trace& trace,
                                            const std::vector<Composite>& composites);

}  // namespace torch_xla::ops

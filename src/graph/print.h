// The lazy graph as text, for people: one line per call, and a drawing for Graphviz.
#pragma once

#include <string>

#include "graph/walk.h"

namespace torch_xla::graph {

// An argument as the call has it: "%3" for an operand, "[2, 3]" for sizes, "0.5" for a number; "*"
// for one that travels with the node, except in a trace's text where it is compiled in at first.
std::string to_string(const Attribute& argument);
std::string to_string(const base::Scalar& scalar);
// The name of argument `index` of `op` as its schema has it, or "argument 2".
std::string argument_name(const Op& op, std::size_t index);

// Opens with "IR {". Per leaf a line with `xla::device_data`, then one per call in order:
//   %2 = f32[2,3] aten::add.Tensor(self=%0, other=%1, alpha=1), location=train.py:12, ROOT=0
std::string to_text(const Trace& trace);
// The same as a digraph in the language of Graphviz.
std::string to_dot(const Trace& trace);

}  // namespace torch_xla::graph

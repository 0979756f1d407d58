// Output types of a call that the memo does not know yet. They come from PyTorch's compiled Meta
// kernel, which brings its checks along, else from the lowering run on abstract values; the strides
// of the latter follow PyTorch's rule for elementwise operators. A Meta kernel written in Python is
// asked last: for strides of other operators' results where operands are not row-major, and for the
// words of errors (counted as `PythonMetaKernel`; it needs the interpreter). What the CPU's kernel
// would refuse is refused then too (dtype_refusals.h).
#pragma once

#include <ATen/core/stack.h>

#include <vector>

#include "aten/operator.h"
#include "graph/entry.h"

namespace torch_xla::aten {

// One per result of the lowering; null for an undefined tensor. `entry` has args, operands, slots.
std::vector<const graph::TensorType*> infer_outputs(const Operator& op, const graph::Entry& entry,
                                                    const torch::jit::Stack& stack);

}  // namespace torch_xla::aten

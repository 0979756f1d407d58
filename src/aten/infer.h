// Output types of a call that the memo does not know yet. They come from PyTorch's compiled Meta
// kernel, else from the lowering run on abstract values, else from a Meta kernel written in Python
// (counted as `PythonMetaKernel`; it needs the interpreter). Errors are PyTorch's own.
#pragma once

#include <ATen/core/stack.h>

#include <vector>

#include "aten/operator.h"
#include "graph/entry.h"

namespace torch_xla::aten {

// One per result of the lowering; null for an undefined tensor. `entry` has args, operands, slots.
std::vector<const graph::TensorType*> infer_outputs(const Operator& op, const graph::Entry& entry,
                                                    const torch::jit::Stack& stack);

// Calls the operator with every xla tensor of the stack replaced by a meta tensor of the same type
// and leaves the results on the returned stack.
torch::jit::Stack call_on_meta(const c10::OperatorHandle& handle, std::size_t num_arguments,
                               const torch::jit::Stack& stack);

}  // namespace torch_xla::aten

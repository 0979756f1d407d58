// Dtypes that PyTorch's kernel for the CPU refuses, and a lowering would take, are refused at the
// call, in PyTorch's words: its kernel is asked, on tiny operands, when a call is new to the memo.
// What is taken all the same stands in operator_rules.cpp (docs/errors.md tells of it).
#pragma once

#include <ATen/core/stack.h>

#include "aten/operator.h"
#include "graph/entry.h"

namespace torch_xla::aten {

// Throws what the CPU's kernel throws about the dtypes of this call. Errors about anything else,
// and calls that cannot be tried, count as taken. The kernel is asked once for an operator, its
// operands' dtypes and its other arguments, whatever the sizes.
void check_dtypes(const Operator& op, const graph::Entry& entry, const torch::jit::Stack& stack);

}  // namespace torch_xla::aten

// Operators that StableHLO cannot express, as calls of PyTorch's own CPU kernels in the middle of a
// program, on the program's memory: the graph is not cut, and nothing is waited for. The call names
// the operator and carries its constants; src/aten/aten_call_kernel.cpp runs it. Which operators
// there are is said in inexpressible.cpp.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "ops/registry.h"

namespace torch_xla::ops {

// The custom call behind every such operator, and how it carries argument `i` of the schema, which
// is absent where it is None:
//   "t<i>"  indices into the call's operands: a tensor, a list of them (-1: None), or a number
//   "p<i>"  beside "t<i>": the order of dimensions in which the kernel is to read the tensor
//   "d<i>"  beside "t<i>": the sizes that the kernel is to see, before that order
//   "n<i>"  numbers, three words for each: dtype, and the bits of the real and imaginary part
//   "s<i>"  a text
// "results" are the positions of the results that are wanted, where that is not all of them;
// "sizes" are those that the kernel gives the first of them, where the program keeps others.
inline constexpr const char* kAtenCall = "torch_xla.aten";
inline constexpr const char* kAtenCallOperator = "op";
inline constexpr const char* kAtenCallResults = "results";
inline constexpr const char* kAtenCallSizes = "sizes";
// Of a collective (collectives.cpp): what the members of its group compare before they meet, a line
// for each collective in the program, and the number of its own.
inline constexpr const char* kAtenCallAgreement = "agreement";
inline constexpr const char* kAtenCallNumber = "number";
// Of a collective of which the call is one of two parts.
inline constexpr const char* kAtenCallPart = "part";
inline constexpr const char* kStart = "start";
inline constexpr const char* kFinish = "finish";
// Larger tensors are exchanged by one call, in pieces.
inline constexpr std::int64_t kMostBytesStarted = std::int64_t{32} << 20;
inline constexpr std::size_t kWordsPerNumber = 3;

// Of a product of few long sums, the kernel cuts the sums rather than the result: in blocks of the
// result it would prepare one of the matrices for each.
inline bool is_of_long_sums(std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  constexpr std::int64_t kShortSide = 128;
  constexpr std::int64_t kLongSums = 16;
  const std::int64_t side = std::max(rows, columns);
  return side <= kShortSide && depth >= kLongSums * side;
}

// The results of aten::`name` on these arguments, all of them or those at `positions`; `results`
// are their types. What is in `args` beyond the schema's arguments only has to be there before.
hlo::Values call_on_host(const std::string& name, hlo::Builder& builder,
                         std::span<const graph::Attribute* const> args, const Frame& frame,
                         const std::vector<Shape>& results, const Dims& positions = {},
                         const hlo::Attributes& more = {});

}  // namespace torch_xla::ops

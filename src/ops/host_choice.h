// Calls that StableHLO can express, but that XLA's CPU backend makes slower code of than PyTorch's
// kernels are: programs for the CPU call the kernel instead (aten_call.h), and other platforms
// never do. benchmarks/kernels.py measures both. (Convolutions have calls of their own, since their
// gradients are calls too: convolution_call.cpp.)
#pragma once

#include "ops/registry.h"

namespace torch_xla::ops {

// Whether PyTorch's kernel gives the results of a call: kHostInFloat32, that of operands of half
// precision which are float32 before it, and results that are rounded after it. Integers are before
// it what the result is.
enum class HostChoice { kXla, kHost, kHostInFloat32 };
HostChoice host_choice(const Target& target, const std::string& name,
                       std::span<const graph::Attribute* const> args, const Frame& frame,
                       bool reads_second_result);

// The product of matrices [n, k] and [k, m] as `mm` would be computed, in the dtype of
// accumulation: for lowerings whose operator PyTorch has no kernel of.
Value chosen_product(const Context& context, Value lhs, Value rhs);
// The sum of all elements as `sum` would be computed.
Value chosen_sum(const Context& context, Value operand);

// Batch normalisation of half precision by its own moments, all of it over every dimension but the
// second: the output, and the mean and the reciprocal deviation of each channel in float32. Nothing
// where PyTorch's kernel would not be faster.
struct NormalizedBatch {
  Value output;
  Value mean;
  Value invstd;
};
std::optional<NormalizedBatch> called_batch_norm(const Context& context, Value input,
                                                 const std::optional<Value>& weight,
                                                 const std::optional<Value>& bias, double eps);

}  // namespace torch_xla::ops

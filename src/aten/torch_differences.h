// Where the supported versions of torch differ for C++. Each difference is named by what differs,
// and found by what the headers hold, not by a version, where they tell it: docs/dev/new_torch.md.
#pragma once

#include <torch/version.h>

// What PyTorch runs in float32 under autocast beside its list AT_FORALL_FP32.
#if __has_include(<ATen/ops/linalg_matrix_sqrth.h>)
#define TORCH_XLA_FORALL_UNLISTED_FP32(_) _(linalg_matrix_sqrth)
#else
#define TORCH_XLA_FORALL_UNLISTED_FP32(_)
#endif

// Of integers a limit beyond what the dtype holds, on its own side, limits nothing in newer ones.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
inline constexpr bool kLimitsMayLieBeyondIntegers = true;
#else
inline constexpr bool kLimitsMayLieBeyondIntegers = false;
#endif

// Where an operator takes no bools newer ones say that it is not implemented, which no header
// tells.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
inline constexpr bool kBoolsAreNotImplemented = true;
#else
inline constexpr bool kBoolsAreNotImplemented = false;
#endif

// Where the supported versions of torch differ for C++. Each difference is named by what differs,
// and found by what the headers hold, not by a version: docs/dev/new_torch.md.
#pragma once

// What PyTorch runs in float32 under autocast beside its list AT_FORALL_FP32.
#if __has_include(<ATen/ops/linalg_matrix_sqrth.h>)
#define TORCH_XLA_FORALL_UNLISTED_FP32(_) _(linalg_matrix_sqrth)
#else
#define TORCH_XLA_FORALL_UNLISTED_FP32(_)
#endif

// `torch.autocast("xla")`: which operators run in the lower precision, in float32, or in the widest
// type among their arguments. The lists and the casts are PyTorch's, those of its CUDA device; what
// no list names runs in the types it is given. Casts happen above autograd, so that what an
// operator saves for its gradient has the lower precision too.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include "aten/torch_differences.h"

namespace torch_xla::aten {
namespace {

// The lists spell PyTorch's types without their namespace, in each version other ones.
using namespace at;

at::Tensor refuse_binary_cross_entropy(const at::Tensor&, const at::Tensor&,
                                       const std::optional<at::Tensor>&, std::int64_t) {
  TORCH_CHECK(false,
              "binary_cross_entropy and BCELoss are unsafe to autocast: the logarithm of a "
              "probability in lower precision overflows. Use binary_cross_entropy_with_logits or "
              "BCEWithLogitsLoss, which take the logits and are safe");
}

// The lists hand each entry to a macro: its name and overload, here completed by device and policy.
#define TORCH_XLA_LOWER_PRECISION(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, lower_precision_fp)
#define TORCH_XLA_FP32(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, fp32)
#define TORCH_XLA_FP32_DTYPE(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, fp32_set_opt_dtype)
#define TORCH_XLA_APPEND_DTYPE(...) \
  KERNEL_DIFFERENT_REDISPATCH_SIGNATURE(c10::DeviceType::XLA, __VA_ARGS__)
#define TORCH_XLA_PROMOTE(...) KERNEL(c10::DeviceType::XLA, __VA_ARGS__, promote)

TORCH_LIBRARY_IMPL(aten, AutocastXLA, m) {
  AT_FORALL_LOWER_PRECISION_FP(TORCH_XLA_LOWER_PRECISION)
  AT_FORALL_FP32(TORCH_XLA_FP32)
  TORCH_XLA_FORALL_UNLISTED_FP32(TORCH_XLA_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(TORCH_XLA_FP32_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(TORCH_XLA_APPEND_DTYPE)
  AT_FORALL_PROMOTE(TORCH_XLA_PROMOTE)
  m.impl("binary_cross_entropy", &refuse_binary_cross_entropy);
}

TORCH_LIBRARY_IMPL(_, AutocastXLA, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

#undef TORCH_XLA_LOWER_PRECISION
#undef TORCH_XLA_FP32
#undef TORCH_XLA_FP32_DTYPE
#undef TORCH_XLA_APPEND_DTYPE
#undef TORCH_XLA_PROMOTE

}  // namespace
}  // namespace torch_xla::aten

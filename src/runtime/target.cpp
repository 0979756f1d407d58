// The settings that stand in programs' texts.
#include "runtime/target.h"

#include "base/cpu_features.h"
#include "base/settings.h"
#include "runtime/client.h"
#include "runtime/platform_options.h"

namespace torch_xla::runtime {

ops::Target target_of(const Client& client) {
  static const bool has_bfloat16 = base::has_cpu_feature("avx512_bf16");
  static const bool has_float16 = base::has_cpu_feature("avx512_fp16");
  return {.platform = client.platform(),
          .has_host_kernels = client.has_host_kernels(),
          .has_bfloat16_products = client.has_host_kernels() && has_bfloat16,
          .has_float16_products = client.has_host_kernels() && has_float16,
          .has_locations = base::settings().hlo_debug(),
          .precision = mat_mul_precision()};
}

ops::Target exported_target() {
  return {.has_locations = base::settings().hlo_debug(),
          .is_exported = true,
          .precision = mat_mul_precision()};
}

}  // namespace torch_xla::runtime

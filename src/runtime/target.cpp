// The settings that stand in programs' texts.
#include "runtime/target.h"

#include "base/cpu_features.h"
#include "base/settings.h"
#include "runtime/client.h"
#include "runtime/platform_options.h"

namespace torch_xla::runtime {

ops::Target target_of(const Client& client, const ProgramSpec& spec) {
  static const bool has_bfloat16 = base::has_cpu_feature("avx512_bf16");
  static const bool has_float16 = base::has_cpu_feature("avx512_fp16");
  // The partitioner gives a call that it does not know all of its operands, on each device: where
  // StableHLO has the words, it does better. What has no words for is called all the same.
  const bool has_host_kernels = client.has_host_kernels() && spec.placement.num_partitions == 1;
  return {.platform = client.platform(),
          .has_host_kernels = has_host_kernels,
          .has_bfloat16_products = has_host_kernels && has_bfloat16,
          .has_float16_products = has_host_kernels && has_float16,
          .has_locations = base::settings().hlo_debug(),
          .replica_groups = spec.replica_groups.empty() ? nullptr : &spec.replica_groups,
          .partitioner = partitioner(client.platform()),
          .precision = mat_mul_precision()};
}

ops::Target exported_target() {
  return {.has_locations = base::settings().hlo_debug(),
          .is_exported = true,
          .precision = mat_mul_precision()};
}

}  // namespace torch_xla::runtime

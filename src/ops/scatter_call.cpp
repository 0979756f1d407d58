// Writes by index as calls of a kernel of ours on the host (src/aten/scatter_kernel.cpp): XLA's CPU
// backend writes one element after the other, on one thread.
#include <algorithm>

#include "ops/indexing.h"

namespace torch_xla::ops {
namespace {

// Below this, what is written is written before a call has begun.
constexpr std::int64_t kLeastUpdates = 4096;
// The call copies what it does not write, where a program may write in place.
constexpr std::int64_t kMostPerUpdate = 16;

bool is_for_call(const std::string& name, DType dtype, bool has_slices) {
  if (name != "torch_xla.scatter_add") return !name.empty();
  const bool is_half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kInt32 ||
         dtype == DType::kInt64 || (is_half && has_slices);
}

}  // namespace

std::optional<Value> called_scatter(const Context& context, Value self, std::int64_t dim,
                                    Value index, Value src, const Combination& combination) {
  const bool has_slices = index.rank() < self.rank();
  if (!context.has_host_kernels || !is_for_call(combination.call, self.dtype(), has_slices)) {
    return std::nullopt;
  }
  const std::int64_t updates = std::max(index.num_elements(), src.num_elements());
  if (updates < kLeastUpdates || updates < self.num_elements() / kMostPerUpdate) {
    return std::nullopt;
  }
  hlo::CustomCall call;
  call.call_target_name = combination.call;
  call.results = {self.type()};
  call.backend_config = {{"dim", dim}};
  return hlo::custom_call({self, index, src}, call)[0];
}

}  // namespace torch_xla::ops

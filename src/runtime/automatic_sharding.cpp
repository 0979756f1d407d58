// The choice of a dimension.
#include "runtime/automatic_sharding.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace torch_xla::runtime {
namespace {

// Smaller arrays cost more to put together than they save.
constexpr std::int64_t kFewestElements = 1024;

// What it points to is never freed: threads read it at any time.
std::atomic<const std::vector<const base::Sharding*>*> by_dimension_of_all{nullptr};

}  // namespace

void split_automatically(std::vector<const base::Sharding*> by_dimension) {
  by_dimension_of_all.store(new std::vector<const base::Sharding*>(std::move(by_dimension)));
}

const base::Sharding* automatic_sharding(const base::Shape& shape) {
  const auto* const by_dimension = by_dimension_of_all.load(std::memory_order_acquire);
  if (by_dimension == nullptr || base::num_elements(shape.dims) < kFewestElements) return nullptr;
  const base::Sharding* best = nullptr;
  std::int64_t best_size = 0;
  for (std::size_t d = 0; d < shape.dims.size() && d < by_dimension->size(); ++d) {
    const base::Sharding* const sharding = (*by_dimension)[d];
    if (shape.dims[d] <= best_size || !sharding->divides(shape)) continue;
    best = sharding;
    best_size = shape.dims[d];
  }
  return best;
}

}  // namespace torch_xla::runtime

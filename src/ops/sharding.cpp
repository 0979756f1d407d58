// How a value within a program lies on a mesh. The operator carries a sharding's text, which the
// process's table knows (base/sharding.h).
#include "base/sharding.h"

#include <cstddef>

#include "hlo/manual.h"
#include "ops/registry.h"

namespace torch_xla::ops {

namespace {

// Where parts are not of one size, results are whole (`Device::boundary`), and XLA's partitioner
// takes a part of one element for the whole in what is made of such a value. These are whole
// throughout.
const base::Sharding& partitionable(const base::Sharding& sharding, const Shape& shape) {
  if (sharding.axes().size() > shape.dims.size() || sharding.divides(shape)) return sharding;
  const Dims local = sharding.local_shape(shape).dims;
  for (std::size_t d = 0; d < sharding.axes().size(); ++d) {
    if (!sharding.axes()[d].empty() && local[d] <= 1) {
      return *base::Sharding::make(sharding.mesh(), {});
    }
  }
  return sharding;
}

}  // namespace

void register_sharding(Registry& m) {
  m.impl("xla:_sharding_constraint", [](Context& context, Value self, std::string sharding) {
    // A program that leaves the process is for one device.
    if (context.is_exported) return self;
    const base::Sharding& asked = *base::Sharding::find(sharding);
    return hlo::sharding_constraint(self, partitionable(asked, self.type()));
  });
  m.impl("xla:_full_to_shard", [](Value self, std::string sharding) {
    return hlo::full_to_shard(self, *base::Sharding::find(sharding));
  });
  m.impl("xla:_shard_to_full", [](Value self, std::string sharding, Dims full_shape) {
    return hlo::shard_to_full(self, *base::Sharding::find(sharding), full_shape);
  });
}

}  // namespace torch_xla::ops

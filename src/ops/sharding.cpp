// How a value within a program lies on a mesh. The operator carries a sharding's text, which the
// process's table knows (base/sharding.h).
#include "base/sharding.h"

#include "hlo/manual.h"
#include "ops/registry.h"

namespace torch_xla::ops {

void register_sharding(Registry& m) {
  m.impl("xla:_sharding_constraint", [](Context& context, Value self, std::string sharding) {
    // A program that leaves the process is for one device.
    if (context.is_exported) return self;
    return hlo::sharding_constraint(self, *base::Sharding::find(sharding));
  });
  m.impl("xla:_full_to_shard", [](Value self, std::string sharding) {
    return hlo::full_to_shard(self, *base::Sharding::find(sharding));
  });
  m.impl("xla:_shard_to_full", [](Value self, std::string sharding, Dims full_shape) {
    return hlo::shard_to_full(self, *base::Sharding::find(sharding), full_shape);
  });
}

}  // namespace torch_xla::ops

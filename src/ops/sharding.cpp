// How a value within a program lies on a mesh. The operator carries a sharding's text, which the
// process's table knows (base/sharding.h).
#include "base/sharding.h"

#include "ops/registry.h"

namespace torch_xla::ops {

void register_sharding(Registry& m) {
  m.impl("xla:_sharding_constraint", [](Context& context, Value self, std::string sharding) {
    // A program that leaves the process is for one device.
    if (context.is_exported) return self;
    return hlo::sharding_constraint(self, *base::Sharding::find(sharding));
  });
}

}  // namespace torch_xla::ops

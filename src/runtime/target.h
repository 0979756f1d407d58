// What this process has programs lowered for.
#pragma once

#include "ops/target.h"

namespace torch_xla::runtime {

class Client;

// Programs that the client runs, on one device or partitioned. Valid as long as it is.
ops::Target target_of(const Client& client, bool is_partitioned = false);
// Programs that are written down, for whoever may run them.
ops::Target exported_target();

}  // namespace torch_xla::runtime

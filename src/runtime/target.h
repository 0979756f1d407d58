// What this process has programs lowered for.
#pragma once

#include "ops/target.h"
#include "runtime/program_spec.h"

namespace torch_xla::runtime {

class Client;

// The program that the client runs, on one device or partitioned, or in replicas. Valid as long as
// both are.
ops::Target target_of(const Client& client, const ProgramSpec& spec);
// Programs that are written down, for whoever may run them.
ops::Target exported_target();

}  // namespace torch_xla::runtime

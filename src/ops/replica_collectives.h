// Collectives in StableHLO's own words, for platforms whose programs exchange by themselves.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/entry.h"
#include "graph/walk.h"
#include "ops/registry.h"

namespace torch_xla::ops {

// What the operator gives for its first argument and those between it and the group, whose members
// are a row of these (`ReplicaGroups`). Throws base::Error of an exchange that programs of one text
// can't make.
using ReplicaRows = std::vector<Dims>;
Value exchange_among(const ReplicaRows& rows, const std::string& op, Value input,
                     const std::vector<graph::Attribute>& between);

}  // namespace torch_xla::ops

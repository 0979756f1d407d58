// How values lie on a mesh, in the words of GSPMD, XLA's partitioner before Shardy: for plugins
// that know no Shardy (ops_sharding.cpp).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/sharding.h"
#include "hlo/builder.h"

namespace torch_xla::hlo::gspmd {

// The attribute "mhlo.sharding" of a value with so many dimensions:
// `"{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}"`, with its quotes.
std::string sharding_attribute(const base::Sharding& sharding, std::int64_t rank);

Value sharding_constraint(Value operand, const base::Sharding& sharding);
// As in partitioned.h.
Value whole_along(Value operand, const Dims& dims);
// A computation of each device by itself, of its parts of the operands, which lie by `in`; the
// results lie by `out`.
Values manual_computation(const Values& operands, std::span<const Type> parts,
                          std::span<const Type> results, const base::Sharding& in,
                          const base::Sharding& out, const Region& body);

}  // namespace torch_xla::hlo::gspmd

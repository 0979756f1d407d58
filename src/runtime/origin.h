// How what a launch that could not be started was to give is computed after all: from the graph and
// the leaves that the launch had, by a read, without what else was in the launch. Nothing of this
// runs while all is well.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "graph/recipe.h"
#include "runtime/array.h"

namespace torch_xla::runtime {

// Of failed arrays. Immutable.
struct Origin {
  graph::Recipe recipe;
  std::vector<graph::DataPtr> leaves;
  // How many such origins its leaves have behind each other.
  std::size_t depth = 0;
};

// Null where it can't be computed a second time: members of a group would wait for others, alone it
// may lie otherwise on several devices, and what fails for long, as each step does that is recorded
// on a failed one, must not keep them all.
OriginPtr make_origin(const Device& device, graph::Recipe recipe,
                      std::vector<graph::DataPtr> leaves);
// Of the one value, whose graph it is.
OriginPtr make_origin(const Device& device, graph::Trace trace);

// Computes failed arrays (`Array::can_be_revived`) in one program, and first what that reads of the
// like. Throws base::Error, as reads do, if it fails again; then they stay failed.
void revive(Device& device, std::span<Array* const> arrays);

}  // namespace torch_xla::runtime

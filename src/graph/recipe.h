// A graph without its nodes and leaves: what is kept of one that has been handed to a launch, so
// that it can be recorded again without having kept any memory alive.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/walk.h"

namespace torch_xla::graph {

struct Recipe {
  // By step, in the trace's order; sources and numbers lie behind each other.
  std::vector<const Entry*> entries;
  std::vector<Source> sources;
  std::vector<std::uint64_t> numbers;

  bool is_empty() const { return entries.empty(); }
};

// Takes the trace's sources and numbers.
Recipe recipe_of(Trace&& trace);
// New nodes for what the roots need, and their values in order. `leaves` are as many as the trace
// had. Takes no lock: nobody else has the nodes yet.
std::vector<Value> record_again(const Recipe& recipe, std::span<const DataPtr> leaves,
                                std::span<const Source> roots);

}  // namespace torch_xla::graph

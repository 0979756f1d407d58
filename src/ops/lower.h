// From a walked graph to the text of a StableHLO module, and from a call's argument types to its
// results' types: the two ways in which the registry's lowerings are run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/shape.h"
#include "base/sharding.h"
#include "graph/entry.h"
#include "graph/walk.h"
#include "ops/target.h"

namespace torch_xla::ops {

// An output that may take over the memory of an input.
struct Donation {
  std::uint32_t root = 0;  // index into the trace's roots
  std::uint32_t leaf = 0;  // index into the trace's leaves
  friend bool operator==(const Donation&, const Donation&) = default;
};

// What a trace's numbers are in a program.
struct Numbers {
  // One per number of the trace: data, or a constant of the program. Empty: as the trace has it.
  std::vector<bool> is_data = {};
  // One per number of the trace: the first of those that are known to be equal to it, of one type
  // and data if it is. Empty: none is known to be.
  std::vector<std::uint32_t> same_as = {};
};

// How parameters and results lie on the devices of a program that is partitioned over more than
// one. Without an entry for each, all are whole on every device.
struct Partition {
  std::size_t num_devices = 1;
  std::span<const base::Sharding* const> leaves = {};
  std::span<const base::Sharding* const> roots = {};
};

struct Bounds;

// A module whose function `main` takes, in order: one parameter per leaf of the trace; if there are
// any, one f64 vector of all numbers that are data and floats; likewise one s64 vector of all
// others (a uint64 as its bits). It returns one result per root.
struct Program {
  std::string text;
  // Which of the trace's numbers are in the vectors. Empty: there is no such parameter.
  std::vector<std::uint32_t> floats;
  std::vector<std::uint32_t> ints;
  // Of a program with bounds: the dimensions of its parameters for leaves, and of its results.
  std::vector<base::Dims> leaves;
  std::vector<base::Dims> roots;
};

// Throws base::Error naming the operator that cannot be lowered. Never recursive in the graph's
// depth. The nodes' operands may have been dropped since the walk. With `bounds`, the program is
// for all sizes up to these (ops/bounded.h), whose values are data like the trace's numbers and
// counted behind them; throws where no rule says how.
Program lower(const graph::Trace& trace, const Target& target,
              std::span<const Donation> donations = {}, const Numbers& numbers = {},
              const Partition& partition = {}, const Bounds* bounds = nullptr);

// The types of the results of a call whose entry has everything but its outputs; nullopt stands for
// an undefined tensor.
std::vector<std::optional<base::Shape>> infer(const graph::Entry& partial,
                                              std::string_view platform);

// True for an error of `infer` that only StableHLO's rules saw, so that it is not worded for users
// of PyTorch.
bool is_constraint_error(const base::Error& error);

}  // namespace torch_xla::ops

// What becomes of tensors when a program could not be started: what it was to change is again what
// it was before, and its other results fail, until they are read and can be computed (`origin.h`).
// Nothing of this runs while all is well.
// docs/design/execution.md tells the rules and their reasons.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "graph/alias.h"
#include "graph/walk.h"
#include "runtime/array.h"

namespace torch_xla::runtime {

class Device;
struct Plan;

// What an alias stood for before a barrier made it stand for `result`.
struct Replaced {
  static constexpr std::uint32_t kNoLeaf = std::numeric_limits<std::uint32_t>::max();
  std::uint64_t alias;              // its number
  Array* result;                    // of the barrier's plan
  std::uint32_t leaf = kNoLeaf;     // where the program reads it, if it does
  graph::DataPtr before = nullptr;  // until the program is compiled: then the leaf alone is kept
};

// By step of the trace, the leaf that failed and that it depends on, or kNoLeaf. Empty when no leaf
// has failed.
std::vector<std::uint32_t> find_failed(const graph::Trace& trace);
// The same, for a root of the trace.
std::uint32_t failed_leaf(const graph::Trace& trace, const graph::Source& root,
                          const std::vector<std::uint32_t>& failed_of_steps);

// Makes the value a failed array, or returns the one it is. Under the recording lock.
ArrayPtr fail_value(Device& device, const graph::Value& value, const std::exception_ptr& error);

// Every alias whose value depends on an array that failed with `error` stands for its last array
// from before, or without one for a failed array, which is computed if it is read again. For
// whoever is about to throw the error, not under the recording lock.
void restore_values(Device& device, const std::exception_ptr& error);

// Makes everything as it was before the plan, which could not be compiled; who waits for its
// results gets `error`. The trace stays.
void undo(Device& device, Plan& plan, const std::exception_ptr& error);

// Launches what computes the values, or returns why it can't be compiled and has done nothing.
using TryToRun = std::function<std::exception_ptr(const std::vector<graph::Value>&)>;
// Of values whose program can't be compiled, by `error`: runs those that can be, in as few programs
// as it takes, and fails the others. Values that share nothing but arrays are independent of each
// other; of those that depend on each other the first ones are tried first.
void isolate(Device& device, const std::vector<graph::Value>& values,
             const std::exception_ptr& error, const TryToRun& run);

}  // namespace torch_xla::runtime

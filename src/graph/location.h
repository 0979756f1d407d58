// The lines of the user's program that nodes and arrays come from, as small numbers. Nodes carry
// one only while someone wants to know (XLA_IR_DEBUG and the like): recording asks one atomic flag.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "base/user_code.h"

namespace torch_xla::graph {

// 0: unknown.
using Location = std::uint32_t;

struct SourceLine {
  base::Frame frame;
  std::string scope;  // names that the user gave to what surrounds the line: "encoder/layer0"
  friend bool operator==(const SourceLine& a, const SourceLine& b) {
    return a.frame.line == b.frame.line && a.frame.file == b.frame.file &&
           a.frame.function == b.frame.function && a.scope == b.scope;
  }
};

// The number that stands for the line; equal lines have one. Kept until the process ends.
// Thread-safe, holds no lock that another is taken under.
Location intern(SourceLine line);
// What a number stands for; an empty line for 0.
const SourceLine& source_line(Location location);
// "train.py:12", or empty for 0.
std::string to_string(Location location);
// Where the calling thread is in the user's program. Hold no lock.
Location current_location();

// Whether nodes are to carry their line.
inline std::atomic<bool> locations_are_wanted{false};

// Called before an operation is recorded, without a lock: notes where this thread is, for the nodes
// that it makes from now on.
void note_location_slowly();
inline void note_location() {
  if (locations_are_wanted.load(std::memory_order_relaxed)) [[unlikely]]
    note_location_slowly();
}
// What was noted last in this thread.
Location noted_location();

// The name of what the calling thread records from now on, as the user's annotations say; part of
// the lines that are noted. Empty at first.
void set_scope(std::string scope);
const std::string& scope();

}  // namespace torch_xla::graph

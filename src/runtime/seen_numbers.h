// What was seen of the numbers of one graph whenever it came: which of them change, and which have
// always been equal. A program has those that do not change as constants, and those that are equal
// as one: an optimizer's learning rate, which each parameter's update carries.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/hash.h"
#include "graph/walk.h"

namespace torch_xla::runtime {

class SeenNumbers;
using SeenNumbersPtr = std::shared_ptr<const SeenNumbers>;

// Of a process that is one of several, numbers are data, 0 and 1 too, and integers equal to none:
// they may come of the replica's own number, and others have others. Offsets and exponents seldom
// do, and cost more as data, which they are where replicas run one program.
enum class NumbersOf : std::uint8_t { kOneProcess, kReplica, kReplicasOfOneProgram };

// Immutable. Traces given to one object must have one relaxed key.
class SeenNumbers {
 public:
  // Equal are numbers of one type and mode with the same bits in one argument of calls of one
  // operator: those of others are equal by chance. Random keys are equal to none.
  explicit SeenNumbers(const graph::Trace& trace, NumbersOf of = NumbersOf::kOneProcess);

  // What holds now that the trace came, too; null if that is what this says. Equalities only ever
  // go. Numbers that part do so by their values, and if some of these part again, all of them do.
  SeenNumbersPtr with(const graph::Trace& trace) const;

  // Of each number: whether it is data: not one to be compiled in at first, or seen to change.
  const std::vector<bool>& is_data() const { return is_data_; }
  // Of each number: the first of those that it has always been equal to.
  const std::vector<std::uint32_t>& same_as() const { return same_as_; }

  // The key of a graph whose equal numbers are one; `key` itself where no numbers are equal.
  base::Hash128 key_with(const base::Hash128& key) const;

 private:
  bool holds(const graph::Trace& trace) const;
  void split(const graph::Trace& trace);
  void finish();

  std::vector<std::uint64_t> first_;
  std::vector<bool> is_data_;
  std::vector<std::uint32_t> same_as_;
  std::vector<bool> has_split_;
  int num_splits_ = 0;
  bool has_equal_ = false;
  base::Hash128 equalities_;
};

}  // namespace torch_xla::runtime

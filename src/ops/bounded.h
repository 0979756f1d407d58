// Programs for all sizes up to a bound. Some integers of a graph (graph/sizes.h) are variables: the
// program is given their values as data, and what has such a size is as large as the bound, with
// its elements at the beginning of each dimension; those behind them may be anything. For each
// operator that meets such a size a rule says what keeps them from what is behind; where there is
// none, the graph has no such program.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/walk.h"
#include "ops/registry.h"

namespace torch_xla::ops {

struct Bounds {
  // Of each of the graph's integers, in the order of `graph::Sizes`: which variable it is, or -1.
  std::vector<std::int32_t> variables;
  // Of each variable: what it is at most.
  std::vector<std::int64_t> bounds;
};

// The dimensions of an array, an argument's integers: which variables they are, or -1.
using Variables = std::vector<std::int32_t>;

// A call in such a program.
struct BoundedCall {
  graph::Entry entry;  // with bounds in the place of variables
  std::vector<Variables> operands;
  std::vector<Variables> outputs;
  std::vector<Variables> args;
  // Whether there is any variable in it.
  bool is_bounded = false;
};

// What a rule may use beside the call.
struct BoundedFrame {
  Context& context;
  std::vector<Value> operands;
  std::span<const std::optional<Value>> slots;
  std::span<const std::uint64_t> slot_bits;
  std::span<const Value> variables;  // 0-dim, int64
  bool reads_second_result = false;
};

class BoundedTrace {
 public:
  BoundedTrace(const graph::Trace& trace, const Bounds& bounds);

  // Of the leaf's memory, and of the root's.
  base::Dims leaf_dims(std::size_t leaf) const;
  base::Dims root_dims(std::size_t root) const;
  const BoundedCall& call(std::size_t step) const { return calls_[step]; }
  // About how much there is to compute: multiplications of matrix products and convolutions,
  // elements of all else.
  double work() const;

 private:
  Variables take(std::size_t count);
  Variables variables_of(const graph::Source& source) const;
  base::Dims with_bounds(base::Dims dims, const Variables& variables) const;
  void add_call(const graph::Trace::Step& step);

  const graph::Trace& trace_;
  const Bounds& bounds_;
  std::size_t next_ = 0;
  std::vector<Variables> leaves_;
  std::vector<BoundedCall> calls_;
};

// The results of a call with variables in it. Throws base::Error of kind kUnimplemented where no
// rule says how.
std::vector<Value> emit_bounded(const BoundedCall& call, BoundedFrame frame);

}  // namespace torch_xla::ops

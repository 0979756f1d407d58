// NaN that compilers find while compiling, a mean of nothing or 0 / 0, which they then lose
// (docs/dev/known_nan.md): StableHLO's folding takes the greater of NaN and a number for the
// number, and XLA's CPU backend writes no exponential of it.
#pragma once

#include <initializer_list>
#include <vector>

#include "hlo/builder.h"

namespace torch_xla::hlo {

// Stands for the program that this thread writes, from its first operation on. Outside of one the
// functions below change nothing.
class KnownNanScope {
 public:
  // Whether the program is for XLA's CPU backend.
  explicit KnownNanScope(bool is_for_cpu);
  ~KnownNanScope();
  KnownNanScope(const KnownNanScope&) = delete;
  KnownNanScope& operator=(const KnownNanScope&) = delete;

  bool is_for_cpu() const { return is_for_cpu_; }
  // Whether the compiler may find that no data decide the value.
  bool is_constant(const Value& value);

 private:
  bool may_become_one(const Builder& builder) const;

  const bool is_for_cpu_;
  KnownNanScope* const outer_;
  std::vector<bool> are_constant_;  // by the values' ids
};

// `result`, a function of `operand` that is made of exponentials, where that is a number, else NaN.
Value past_nan(const Value& result, const Value& operand);
// The first operand of a maximum or minimum, or of a function that has some, so that it is not
// folded; itself where one of the others depends on data.
Value unfolded(const Value& operand, std::initializer_list<Value> others = {});
// The same for angles, those of complex logarithms among them: of 0 and 0, once the compiler's
// backend knows them, NaN is made.
Value angled(const Value& operand, std::initializer_list<Value> others = {});

}  // namespace torch_xla::hlo

// Functions made of exponentials, of which XLA's CPU backend writes no result where LLVM knows that
// the operand is NaN: on the way it converts to an integer, which LLVM leaves open for NaN, so the
// whole kernel may go and the result's memory stay as it was (docs/dev/known_nan.md).
#pragma once

#include "hlo/builder.h"

namespace torch_xla::hlo {

// While it lives, programs of this thread are, or are not, for that backend.
class KnownNanScope {
 public:
  explicit KnownNanScope(bool is_left_out);
  ~KnownNanScope();
  KnownNanScope(const KnownNanScope&) = delete;
  KnownNanScope& operator=(const KnownNanScope&) = delete;

 private:
  const bool before_;
};

// `result`, such a function of `operand`, where that is a number, else NaN.
Value past_nan(const Value& result, const Value& operand);

}  // namespace torch_xla::hlo

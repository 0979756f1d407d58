// The one source of random numbers. A call's key is a 0-dim uint64 that the generator never gives
// twice and that is well mixed already; element i of an array is a hash of the key and i. This
// costs a dozen integer instructions per element, which XLA fuses into whatever uses the numbers
// and compiles as quickly as any arithmetic: on a CPU a dropout mask takes a third of the time of
// ThreeFry and a hundredth of that of Philox, which XLA writes out in full.
#pragma once

#include "ops/registry.h"

namespace torch_xla::ops {

// Uniform bits: an array of uint32, or uint64.
Value random_bits32(Value key, const Dims& dims);
Value random_bits64(Value key, const Dims& dims);

// A key whose numbers have nothing to do with those of `key` or of another `stream`: for
// distributions that need several numbers per element. `stream` may be data (0-dim uint64).
Value derived_key(Value key, std::uint64_t stream);
Value derived_key(Value key, Value stream);

// The dtype in which random numbers for `dtype` are made: float64 for the double ones and float32
// for all others.
DType random_dtype(DType dtype);

// `dtype` is float32 or float64 in all of these.
//
// In [0, 1), multiples of 2^-digits with at most as many digits as the dtype has (24, 53).
Value random_uniform(Value key, DType dtype, const Dims& dims, int digits);
Value random_uniform(Value key, DType dtype, const Dims& dims);
// In (0, 1), without both ends.
Value random_open_uniform(Value key, DType dtype, const Dims& dims);
Value random_normal(Value key, DType dtype, const Dims& dims);
Value random_exponential(Value key, DType dtype, const Dims& dims);

// While it lives, on this thread, an array of the sizes of `ranks`, int64, takes the numbers of
// these elements in the place of its own order: it has room behind its elements, and these shall
// have the numbers that they have without it. An array of other sizes throws base::Error of kind
// kUnimplemented.
class NumberedElements {
 public:
  explicit NumberedElements(Value ranks);
  ~NumberedElements();
  NumberedElements(const NumberedElements&) = delete;
  NumberedElements& operator=(const NumberedElements&) = delete;

 private:
  const Value ranks_;
};

// The families' parts in files of their own.
void register_random_sampling(Registry& m);
void register_random_rejection(Registry& m);

}  // namespace torch_xla::ops

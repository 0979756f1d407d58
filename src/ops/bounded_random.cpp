// Random numbers of as many elements as are data: each element has the number that it has in a
// program of its size, which is a hash of its place in their order.
#include "ops/bounded_emission.h"
#include "ops/random_bits.h"

namespace torch_xla::ops {
namespace {

// One number for each element of the result.
Results numbers(Emission& e) {
  const NumberedElements numbered(e.ranks(e.output_dims(), e.output_variables()));
  return e.pointwise();
}

}  // namespace

const Rules& random_rules() {
  static const Rules table = {
      {"uniform", numbers},
      {"normal_", numbers},
      {"normal_functional", numbers},
      {"normal.Tensor_float", numbers},
      {"normal.float_Tensor", numbers},
      {"normal.Tensor_Tensor", numbers},
      {"exponential", numbers},
      {"cauchy", numbers},
      {"log_normal", numbers},
      {"geometric", numbers},
      {"bernoulli", numbers},
      {"bernoulli.p", numbers},
      {"bernoulli_.float", numbers},
      {"bernoulli.Tensor", numbers},
      {"random", numbers},
      {"random.from", numbers},
      {"random.to", numbers},
      {"native_dropout", numbers},
  };
  return table;
}

}  // namespace torch_xla::ops

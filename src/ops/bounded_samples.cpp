// Batches of as many samples as are data, of images and the like: what computes each sample by
// itself, and batch normalization.
#include <array>
#include <string_view>

#include "ops/bounded_emission.h"
#include "ops/promotion.h"
#include "ops/trace_emitter.h"

namespace torch_xla::ops {
namespace {

// No dimension but the first is a variable.
bool is_of_samples(const Variables& variables) {
  return variables.empty() || !has_variable({variables.begin() + 1, variables.end()});
}

void require_samples(Emission& e) {
  for (std::size_t i = 0; i < e.num_operands(); ++i) e.require(is_of_samples(e.variables(i)));
  for (std::size_t i = 0; i < e.num_outputs(); ++i) {
    e.require(is_of_samples(e.output_variables(i)));
  }
}

// (input, ...): parameters have no samples.
Results each_sample(Emission& e) {
  e.require_fixed();
  require_samples(e);
  for (std::size_t i = 1; i < e.num_operands(); ++i) e.require(e.is_fixed(i));
  return e.ordinary();
}

// What is summed over samples gets zeros; places that are written lie within them.
Results each_sample_backward(Emission& e) {
  e.require_fixed();
  require_samples(e);
  e.hide_all();
  return e.ordinary();
}

// The number of samples is an argument too.
template <std::size_t samples_arg>
Results group_norm(Emission& e) {
  e.require_fixed({samples_arg});
  require_samples(e);
  e.hide_all();
  return e.ordinary();
}

// (input, weight, bias, ...), and (grad_out, input, weight, ...).
template <std::size_t input_arg>
Results batch_norm(Emission& e) {
  e.require_fixed();
  const std::size_t input = e.place(input_arg);
  for (std::size_t i = 0; i < e.num_operands(); ++i) {
    e.require(e.is_fixed(i) ||
              (e.variables(i) == e.variables(input) && e.variables(i)[1] == kNoVariable));
  }
  const DType dtype = e.operand(input).dtype();
  // Halves have kernels of the host, which know of no room.
  e.require(dtype == DType::kFloat32 || dtype == DType::kFloat64);
  e.hide_all();
  const std::int64_t rank = e.operand(input).rank();
  const Batch batch{e.are_elements(e.operand(input).dims(), e.variables(input)),
                    e.count(input, dtype, all_but(1, rank))};
  Context context = e.context();
  context.batch = &batch;
  return emit_call(e.entry(), context, e.frame(), /*reads_second_result=*/true);
}

}  // namespace

const Rules& sample_rules() {
  static const Rules table = {
      {"convolution", each_sample},
      {"max_pool2d_with_indices", each_sample},
      {"max_pool3d_with_indices", each_sample},
      {"avg_pool2d", each_sample},
      {"avg_pool3d", each_sample},
      {"_adaptive_avg_pool2d", each_sample},
      {"adaptive_max_pool2d", each_sample},
      {"convolution_backward", each_sample_backward},
      {"max_pool2d_with_indices_backward", each_sample_backward},
      {"max_pool3d_with_indices_backward", each_sample_backward},
      {"avg_pool2d_backward", each_sample_backward},
      {"avg_pool3d_backward", each_sample_backward},
      {"_adaptive_avg_pool2d_backward", each_sample_backward},
      {"adaptive_max_pool2d_backward", each_sample_backward},
      {"native_group_norm", group_norm<3>},
      {"native_group_norm_backward", group_norm<5>},
      {"native_batch_norm", batch_norm<0>},
      {"native_batch_norm_backward", batch_norm<1>},
  };
  return table;
}

}  // namespace torch_xla::ops

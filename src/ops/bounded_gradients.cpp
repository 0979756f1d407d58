// Gradients of calls with sizes that are data: where what arrives is zero behind the elements, so
// is what it adds to.
#include <algorithm>

#include "hlo/in_place.h"
#include "ops/at.h"
#include "ops/bounded_emission.h"
#include "ops/promotion.h"

namespace torch_xla::ops {
namespace {

// (self, grad_output, weight, output_mask)
Results linear_backward(Emission& e) {
  e.require_fixed();
  const Variables& self = e.variables(e.place(0));
  e.require(!self.empty() && self.back() == kNoVariable && e.is_fixed(e.place(2)));
  e.hide_all();
  return e.ordinary();
}

// (grad_out, input, normalized_shape, statistics of rows ..., weight, ...)
Results row_norm_backward(Emission& e) {
  e.require_fixed();
  const std::size_t num_last = std::get<Dims>(e.arg(2)).size();
  const Variables& input = e.variables(e.place(1));
  for (std::size_t i = 0; i < e.num_operands(); ++i) {
    const Variables& variables = e.variables(i);
    e.require(e.is_fixed(i) || variables.size() == input.size());
    for (std::size_t dim = 0; dim < variables.size() && !e.is_fixed(i); ++dim) {
      e.require(variables[dim] == (dim + num_last < input.size() ? input[dim] : kNoVariable));
    }
  }
  e.hide_all();
  return e.ordinary();
}

// (grad_output, indices, num_weights, padding_idx, scale_grad_by_freq)
Results embedding_backward(Emission& e) {
  e.require_fixed();
  e.require(!std::get<graph::Number>(e.arg(4)).constant.to<bool>() &&
            e.variables(e.place(0)).back() == kNoVariable);
  e.hide_all();
  return e.ordinary();
}

// (grad_output, output, dim, input_dtype)
Results softmax_backward(Emission& e) {
  e.require_fixed();
  const std::int64_t dim = e.dim_of_first(2);
  e.require(e.variables(e.place(0)) == e.variables(e.place(1)));
  for (const std::size_t place : {e.place(0), e.place(1)}) e.hide(place, e.zero(place), dim);
  return e.ordinary();
}

// (grad_output, input_sizes, dim, start, ...): `grad` written at its place among zeros.
Results part_backward(Emission& e, Value grad, std::size_t dim) {
  const Dims& dims = e.output_dims();
  const Value size = e.extent(e.output_variables()[dim], dims[dim]);
  const Value given = e.integer_value(3);
  const Value is_from_end = hlo::lt(given, e.number(0));
  const Value start = hlo::select(is_from_end, hlo::add(given, size), given);
  // There is room behind the elements: what is written is not moved.
  Dims with_room = dims;
  with_room[dim] += grad.dim(static_cast<std::int64_t>(dim));
  const Value zeros = hlo::full(e.builder(), {grad.dtype(), with_room}, 0);
  const Value written = hlo::update_slice(zeros, grad, e.starts(dims.size(), dim, start));
  return {e.resize(written, dim, dims[dim])};
}

std::size_t dim_of_part(Emission& e) {
  return at(wrap_dim(e.integer(2), static_cast<std::int64_t>(e.output_dims().size())));
}

// (grad_output, input_sizes, dim, index)
Results select_backward(Emission& e) {
  e.require_fixed({1, 3});
  const std::size_t dim = dim_of_part(e);
  e.hide_all();
  Dims dims = e.output_dims();
  dims[dim] = 1;
  return part_backward(e, hlo::reshape(e.operand(0), dims), dim);
}

// (grad_output, input_sizes, dim, start, end, step)
Results slice_backward(Emission& e) {
  e.require_fixed({1, 3, 4});
  e.require(e.integer(5) == 1);
  e.hide_all();
  return part_backward(e, e.operand(0), dim_of_part(e));
}

}  // namespace

const Rules& gradient_rules() {
  static const Rules table = {
      {"linear_backward", linear_backward},
      {"native_layer_norm_backward", row_norm_backward},
      {"_fused_rms_norm_backward", row_norm_backward},
      {"embedding_dense_backward", embedding_backward},
      {"_softmax_backward_data", softmax_backward},
      {"_log_softmax_backward_data", softmax_backward},
      {"select_backward", select_backward},
      {"slice_backward", slice_backward},
  };
  return table;
}

}  // namespace torch_xla::ops

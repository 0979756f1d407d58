// Scaled dot-product attention and linear layers: operators that torch would take apart into views,
// products and sums, kept whole because recording one operator is cheaper than recording ten.
// Scores and weights are computed in float32 for float16 and bfloat16.
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "hlo/partitioned.h"
#include "ops/expression.h"
#include "ops/host_choice.h"
#include "ops/linear_algebra.h"
#include "ops/reduce.h"
#include "ops/registry.h"

namespace torch_xla::ops {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using MaybeValue = std::optional<Value>;

struct AttentionOptions {
  MaybeValue mask;  // bool: true takes part; floating: added to the scores
  bool is_causal;
  std::optional<double> scale;
};

void check_attention(Value query, Value key, Value value, double dropout_p) {
  base::check(query.rank() == 4 && key.rank() == 4 && value.rank() == 4,
              "_scaled_dot_product_flash_attention_for_cpu: Accept only 4 dims inputs shape of "
              "{B, H, T, K}");
  base::check(dropout_p == 0.0,
              "_scaled_dot_product_flash_attention_for_cpu: Currently do not support dropout > 0");
  base::check(query.dtype() == key.dtype() && query.dtype() == value.dtype(),
              "_scaled_dot_product_flash_attention_for_cpu: Q/K/V should have the same data type");
  base::check(query.dim(3) == key.dim(3) && key.dim(2) == value.dim(2),
              "_scaled_dot_product_flash_attention_for_cpu: Q/K/V should have the same head size");
}

double scale_of(const AttentionOptions& options, Value query) {
  return options.scale.value_or(1.0 / std::sqrt(static_cast<double>(query.dim(3))));
}

// [B, H, L, S]: scale * query key^T, with -inf where a pair takes no part.
Value attention_scores(Value query, Value key, const AttentionOptions& options) {
  Value scores = contract(query, key, {{0, 1}, {0, 1}, {3}, {3}}) * scale_of(options, query);
  if (options.is_causal) {
    const Value takes_part = row_compared_to_column(scores.builder(), scores.dim(2), scores.dim(3),
                                                    hlo::ComparisonDirection::kGe);
    scores =
        hlo::select(broadcast_to(takes_part, scores.dims()), scores, full_like(scores, -kInfinity));
  }
  if (!options.mask.has_value()) return scores;
  const Value mask = broadcast_to(*options.mask, scores.dims());
  if (mask.dtype() == DType::kBool) {
    return hlo::select(mask, scores, full_like(scores, -kInfinity));
  }
  return scores + convert(mask, scores.dtype());
}

struct Weights {
  Value weights;    // softmax of the scores over the last dimension; 0 where all are -inf
  Value logsumexp;  // [B, H, L]
};

// The forward and the backward emit the same values, which XLA then computes once.
Weights attention_weights(Value query, Value key, const AttentionOptions& options) {
  const Value scores = attention_scores(query, key, options);
  const Dims last = {3};
  const Value peak = reduce_max(scores, last);
  const Value is_empty = equal(peak, -kInfinity);
  const Value shift = where(is_empty, 0.0, peak);
  const Value powers = hlo::exponential(scores - spread(shift, scores.dims(), last));
  const Value total = reduce_sum(powers, last);
  const Value divisor = where(is_empty, 1.0, total);
  return {powers / spread(divisor, scores.dims(), last), shift + hlo::log(total)};
}

std::vector<Value> attention(Value query, Value key, Value value, double dropout_p, bool is_causal,
                             const MaybeValue& attn_mask, std::optional<double> scale) {
  check_attention(query, key, value, dropout_p);
  const Weights w = attention_weights(query, key, {attn_mask, is_causal, scale});
  const Value output =
      contract(convert(w.weights, value.dtype()), value, {{0, 1}, {0, 1}, {3}, {2}});
  return {convert(output, query.dtype()), w.logsumexp};
}

std::vector<Value> attention_backward(Value grad_out, Value query, Value key, Value value, Value,
                                      Value, double dropout_p, bool is_causal,
                                      const MaybeValue& attn_mask, std::optional<double> scale) {
  check_attention(query, key, value, dropout_p);
  const AttentionOptions options = {attn_mask, is_causal, scale};
  const DType dtype = query.dtype();
  const Value weights = attention_weights(query, key, options).weights;
  const Value grad_weights = contract(grad_out, value, {{0, 1}, {0, 1}, {3}, {3}});
  const Value weighted = grad_weights * weights;
  const Value total = spread(reduce_sum(weighted, {3}), weights.dims(), {3});
  const Value grad_scores = convert((weighted - weights * total) * scale_of(options, query), dtype);
  return {convert(contract(grad_scores, key, {{0, 1}, {0, 1}, {3}, {2}}), dtype),
          convert(contract(grad_scores, query, {{0, 1}, {0, 1}, {2}, {2}}), dtype),
          convert(contract(convert(weights, dtype), grad_out, {{0, 1}, {0, 1}, {2}, {2}}), dtype)};
}

// [..., k] as [n, k].
Value as_matrix(Value value) {
  if (value.rank() == 2) return value;
  const std::int64_t columns = value.dim(value.rank() - 1);
  std::int64_t rows = 1;
  for (std::int64_t i = 0; i + 1 < value.rank(); ++i) rows *= value.dim(i);
  return hlo::reshape(value, {rows, columns});
}

void check_linear(Value input, Value weight) {
  base::check(input.rank() >= 1 && weight.rank() >= 1,
              "both arguments to linear need to be at least 1D, but they are ", input.rank(),
              "D and ", weight.rank(), "D");
  base::check(weight.rank() <= 2, "t() expects a tensor with <= 2 dimensions, but self is ",
              weight.rank(), "D");
  base::check(input.dtype() == weight.dtype(), "mat1 and mat2 must have the same dtype, but got ",
              scalar_type_name(input.dtype()), " and ", scalar_type_name(weight.dtype()));
  check_implemented(input.dtype() != DType::kBool, "addmm_impl_cpu_", input.dtype());
  const std::int64_t columns = weight.dim(weight.rank() - 1);
  if (input.dim(input.rank() - 1) == columns) return;
  if (weight.rank() == 1 || input.rank() == 1) {
    const Value matrix = weight.rank() == 1 ? as_matrix(input) : weight;
    const Value vector = weight.rank() == 1 ? weight : input;
    base::check(false, "size mismatch, got input (", matrix.dim(0), "), mat (", matrix.dim(0), "x",
                matrix.dim(1), "), vec (", vector.dim(0), ")");
  }
  const Value matrix = as_matrix(input);
  base::check(false, "mat1 and mat2 shapes cannot be multiplied (", matrix.dim(0), "x",
              matrix.dim(1), " and ", columns, "x", weight.dim(0), ")");
}

// The rows of [..., k]: as a matrix, but in a program that is partitioned. There each dimension may
// be split, and those that are merged could be along the first alone.
Value as_rows(Value value) {
  return hlo::is_partitioned() && value.rank() > 2 ? value : as_matrix(value);
}

// Of each dimension but the last.
Dims row_dims(Value rows) {
  Dims dims(static_cast<std::size_t>(rows.rank()) - 1);
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

// input weight^T + bias, over the last dimension; the sum is rounded once.
Value linear(Value input, Value weight, const MaybeValue& bias) {
  check_linear(input, weight);
  Dims dims = leading_dims(input.dims(), 1);
  if (weight.rank() == 2) dims.push_back(weight.dim(0));
  const Value rows = as_rows(input);
  Value product = contract(rows, weight, {{}, {}, {rows.rank() - 1}, {weight.rank() - 1}});
  if (bias.has_value()) {
    base::check(bias->dtype() == input.dtype(), "self and mat2 must have the same dtype, but got ",
                scalar_type_name(bias->dtype()), " and ", scalar_type_name(weight.dtype()));
    // A vector is added to the rows of the matrix; other shapes are seen against the result's.
    if (bias->rank() > 1 || weight.rank() == 1) product = hlo::reshape(product, dims);
    product = product + broadcast_to(convert(*bias, product.dtype()), product.dims());
  }
  return convert(hlo::reshape(product, dims), input.dtype());
}

// The gradients of `linear` for its three arguments, each only if its flag is set.
std::vector<Value> linear_backward(Context& context, Value self, Value grad_output, Value weight,
                                   const std::vector<bool>& output_mask) {
  const bool is_vector = weight.rank() == 1;
  const Value input = as_rows(self);
  Dims with_column = leading_dims(input.dims(), 1);
  with_column.push_back(1);
  const Value grad = is_vector ? hlo::reshape(grad_output, with_column) : as_rows(grad_output);
  const Value matrix = as_matrix(weight);
  const Dims rows = row_dims(input);
  std::vector<Value> grads(3);
  if (output_mask[0]) {
    const Value factor = hlo::conj(matrix);
    const Value product = hlo::is_partitioned()
                              ? contract(grad, factor, {{}, {}, {grad.rank() - 1}, {0}})
                              : chosen_product(context, grad, factor);
    grads[0] = convert(hlo::reshape(product, self.dims()), self.dtype());
  }
  if (output_mask[1]) {
    const Value factor = hlo::conj(input);
    const Value product = hlo::is_partitioned()
                              ? contract(grad, factor, {{}, {}, rows, rows})
                              : chosen_product(context, matrix_transpose(grad), factor);
    grads[1] = convert(hlo::reshape(product, weight.dims()), weight.dtype());
  }
  if (output_mask[2]) {
    const Value sum = reduce_sum(convert(grad, accumulate_dtype(grad.dtype())), rows);
    const Value bias = is_vector ? hlo::reshape(sum, {}) : sum;
    grads[2] = convert(bias, grad.dtype());
  }
  return grads;
}

}  // namespace

void register_attention(Registry& m) {
  m.impl("_scaled_dot_product_flash_attention_for_cpu", attention);
  m.impl("_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward);
  m.impl("linear", linear);
  m.impl("linear_backward", linear_backward);
}

}  // namespace torch_xla::ops

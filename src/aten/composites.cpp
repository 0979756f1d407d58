// Composite operators that are kept whole: torch would take `linear` and
// `scaled_dot_product_attention` apart into a dozen calls, each of them recorded. What stays whole
// is what the whole operator's derivative can serve, which the kernels for the autograd key decide;
// the rest goes the way it goes on other devices.
#include "aten/registration.h"

#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/_chunk_cat_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/_fused_rms_norm_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/_fused_rms_norm_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_ops.h>
#include <ATen/ops/linear_backward_ops.h>
#include <ATen/ops/linear_native.h>
#include <ATen/ops/linear_ops.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include "aten/out_kernel.h"
#include "aten/record.h"
#include "aten/tensor.h"

namespace torch_xla::aten {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

bool has_tangent(const at::Tensor& tensor) {
  return tensor.defined() && tensor._fw_grad(/*level=*/0).defined();
}

bool requires_grad(const OptionalTensor& tensor) {
  return tensor.has_value() && tensor->defined() && tensor->requires_grad();
}

// Autograd's kernel of the whole operator stands behind every autograd key that has no composite
// one; this key is of that kind.
constexpr c10::DispatchKeySet kWholeKeys({c10::DispatchKey::AutogradNestedTensor,
                                          c10::DispatchKey::XLA});

at::Tensor linear(c10::DispatchKeySet, const at::Tensor& input, const at::Tensor& weight,
                  const OptionalTensor& bias) {
  const bool has_bias = bias.has_value() && bias->defined();
  const bool is_ours = as_xla(input) != nullptr && as_xla(weight) != nullptr &&
                       (!has_bias || as_xla(*bias) != nullptr);
  // The whole operator's derivative has itself none of complex numbers.
  const bool has_derivative = weight.dim() == 2 && !input.is_complex() && !weight.is_complex() &&
                              !has_tangent(input) && !has_tangent(weight) &&
                              (!has_bias || (!has_tangent(*bias) && bias->dim() <= 1));
  // It keeps both, so that neither could be written before the backward pass, needed or not.
  const bool keeps_one =
      at::GradMode::is_enabled() && input.requires_grad() != weight.requires_grad();
  if (!is_ours || !has_derivative || keeps_one) return at::native::linear(input, weight, bias);
  return at::_ops::linear::redispatch(kWholeKeys, input, weight, bias);
}

// Torch's derivative of the whole takes each result to depend on each argument: a constant gradient
// would require one. So it is taken apart where a gradient is wanted.
std::tuple<at::Tensor, at::Tensor, at::Tensor> linear_backward(c10::DispatchKeySet keys,
                                                               const at::Tensor& self,
                                                               const at::Tensor& grad_output,
                                                               const at::Tensor& weight,
                                                               std::array<bool, 3> output_mask) {
  const bool is_differentiated =
      at::GradMode::is_enabled() &&
      (self.requires_grad() || grad_output.requires_grad() || weight.requires_grad());
  if (!is_differentiated) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return at::_ops::linear_backward::redispatch(keys & c10::after_autograd_keyset, self,
                                                 grad_output, weight, output_mask);
  }
  const at::Tensor rows = grad_output.reshape({-1, weight.size(0)});
  std::tuple<at::Tensor, at::Tensor, at::Tensor> grads;
  if (output_mask[0]) std::get<0>(grads) = grad_output.matmul(weight);
  if (output_mask[1]) {
    std::get<1>(grads) = rows.t().matmul(self.reshape({-1, weight.size(1)}));
  }
  if (output_mask[2]) std::get<2>(grads) = rows.sum(0);
  return grads;
}

// Where a derivative is wanted, it is that of what PyTorch on the CPU takes it apart into.
std::tuple<at::Tensor, at::Tensor> fused_rms_norm(c10::DispatchKeySet keys, const at::Tensor& input,
                                                  at::IntArrayRef normalized_shape,
                                                  const OptionalTensor& weight,
                                                  std::optional<double> eps) {
  const bool has_weight = weight.has_value() && weight->defined();
  const bool is_ours = as_xla(input) != nullptr && (!has_weight || as_xla(*weight) != nullptr);
  const bool has_dtypes =
      input.is_floating_point() && (!has_weight || weight->scalar_type() == input.scalar_type());
  const bool is_differentiated =
      has_tangent(input) || (has_weight && has_tangent(*weight)) ||
      (at::GradMode::is_enabled() && (input.requires_grad() || requires_grad(weight)));
  if (!is_ours || !has_dtypes || is_differentiated) {
    return at::compositeimplicitautograd::_fused_rms_norm(input, normalized_shape, weight, eps);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return at::_ops::_fused_rms_norm::redispatch(keys & c10::after_autograd_keyset, input,
                                               normalized_shape, weight, eps);
}

bool can_stay_whole(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    const OptionalTensor& mask, double dropout_p, bool is_causal) {
  if (!at::globalContext().userEnabledFlashSDP() || dropout_p != 0.0) return false;
  const bool has_mask = mask.has_value() && mask->defined();
  if (has_mask && (is_causal || requires_grad(mask) || as_xla(*mask) == nullptr)) return false;
  for (const at::Tensor& tensor : {query, key, value}) {
    if (as_xla(tensor) == nullptr || tensor.dim() != 4 || has_tangent(tensor)) return false;
    if (!tensor.is_floating_point() || tensor.scalar_type() != query.scalar_type()) return false;
    if (tensor.size(0) != query.size(0) || tensor.size(1) != query.size(1)) return false;
  }
  if (query.size(3) != key.size(3) || key.size(2) != value.size(2)) return false;
  if (!has_mask) return true;
  const bool is_typed =
      mask->scalar_type() == at::kBool || mask->scalar_type() == query.scalar_type();
  const std::vector<std::int64_t> scores = {query.size(0), query.size(1), query.size(2),
                                            key.size(2)};
  return is_typed && mask->dim() <= 4 && at::is_expandable_to(mask->sizes(), scores);
}

// Whether PyTorch on the CPU takes its flash kernel, whose result lies as the query does; else the
// result of its products is contiguous.
bool lies_as_query(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value) {
  return std::ranges::all_of(
      std::initializer_list<const at::Tensor*>{&query, &key, &value},
      [](const at::Tensor* tensor) { return tensor->stride(3) == 1 && tensor->size(2) > 0; });
}

// What is added to the scores, as PyTorch on the CPU makes it of a mask of booleans, which the
// operator's kernel does not take.
OptionalTensor added_mask(const OptionalTensor& mask, const at::Tensor& query) {
  if (!mask.has_value() || !mask->defined() || mask->scalar_type() != at::kBool) return mask;
  const at::Tensor zeros = at::zeros(mask->sizes(), query.options());
  return zeros.masked_fill(mask->logical_not(), -std::numeric_limits<double>::infinity());
}

at::Tensor scaled_dot_product_attention(const at::Tensor& query, const at::Tensor& key,
                                        const at::Tensor& value, const OptionalTensor& attn_mask,
                                        double dropout_p, bool is_causal,
                                        std::optional<double> scale, bool enable_gqa) {
  if (!can_stay_whole(query, key, value, attn_mask, dropout_p, is_causal)) {
    return at::native::scaled_dot_product_attention(query, key, value, attn_mask, dropout_p,
                                                    is_causal, scale, enable_gqa);
  }
  return std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
      lies_as_query(query, key, value) ? query
                                       : query.__dispatch_contiguous(at::MemoryFormat::Contiguous),
      key, value, dropout_p, is_causal, added_mask(attn_mask, query), scale));
}

// Torch has no derivative of the backward: where one is wanted, the gradient is taken of the
// decomposed operator.
std::tuple<at::Tensor, at::Tensor, at::Tensor> attention_backward(
    c10::DispatchKeySet keys, const at::Tensor& grad_out, const at::Tensor& query,
    const at::Tensor& key, const at::Tensor& value, const at::Tensor& out,
    const at::Tensor& logsumexp, double dropout_p, bool is_causal, const OptionalTensor& attn_mask,
    std::optional<double> scale) {
  const bool is_differentiated =
      at::GradMode::is_enabled() && (requires_grad(grad_out) || requires_grad(query) ||
                                     requires_grad(key) || requires_grad(value));
  if (!is_differentiated) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return at::_ops::_scaled_dot_product_flash_attention_for_cpu_backward::redispatch(
        keys & c10::after_autograd_keyset, grad_out, query, key, value, out, logsumexp, dropout_p,
        is_causal, attn_mask, scale);
  }
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& tensor : {query, key, value}) {
    inputs.push_back(tensor.requires_grad() ? tensor : tensor.detach().requires_grad_());
  }
  const bool has_mask = attn_mask.has_value() && attn_mask->defined();
  const at::Tensor result = at::native::scaled_dot_product_attention(
      inputs[0], inputs[1], inputs[2], has_mask ? attn_mask : std::nullopt, dropout_p, is_causal,
      scale, /*enable_gqa=*/false);
  const auto grads = torch::autograd::grad({result}, inputs, {grad_out}, /*retain_graph=*/true,
                                           /*create_graph=*/true);
  return {grads[0], grads[1], grads[2]};
}

// Torch writes through `_unsafe_view` of `out`, which shares no memory here.
torch::CppFunction kron_out() {
  const auto kron = c10::Dispatcher::singleton().findSchemaOrThrow("aten::kron", "");
  const auto out = c10::Dispatcher::singleton().findSchemaOrThrow("aten::kron", "out");
  return torch::CppFunction::makeFromBoxedKernel(c10::BoxedKernel::makeFromFunctor(
      std::make_unique<OutKernel>(out, kron, std::vector<std::size_t>{2})));
}

// Torch reads the size of a dimension that it has not looked for.
void check_chunks(at::TensorList tensors, std::int64_t dim) {
  const std::int64_t least = std::max<std::int64_t>(dim, 0) + 1;
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK_INDEX(tensor.dim() >= least, "_chunk_cat expects tensors of at least ", least,
                      " dimensions, got ", tensor.dim());
  }
}

at::Tensor chunk_cat(at::TensorList tensors, std::int64_t dim, std::int64_t num_chunks) {
  check_chunks(tensors, dim);
  return at::compositeexplicitautograd::_chunk_cat(tensors, dim, num_chunks);
}

at::Tensor& chunk_cat_out(at::TensorList tensors, std::int64_t dim, std::int64_t num_chunks,
                          at::Tensor& out) {
  check_chunks(tensors, dim);
  return at::compositeexplicitautograd::_chunk_cat_outf(tensors, dim, num_chunks, out);
}

}  // namespace

void register_composites(torch::Library& m) {
  m.impl("_chunk_cat", chunk_cat);
  m.impl("_chunk_cat.out", chunk_cat_out);
  m.impl("kron.out", kron_out());
  m.impl("scaled_dot_product_attention", scaled_dot_product_attention);
}

void register_composites_autograd(torch::Library& m) {
  m.impl("kron.out", kron_out());
  m.impl("_fused_rms_norm", fused_rms_norm);
  m.impl("linear", linear);
  m.impl("linear_backward", linear_backward);
  m.impl("scaled_dot_product_attention", scaled_dot_product_attention);
  m.impl("_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward);
}

}  // namespace torch_xla::aten

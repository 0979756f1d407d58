// A layer of an LSTM in one direction, and its gradients, by oneDNN's kernels as PyTorch calls
// them, for float32 without projections. What they keep for the derivative is known to them alone,
// in size too, so that the gradients begin with the layer once more. src/ops/recurrence.cpp emits
// the calls.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/mkldnn_rnn_layer_backward.h>
#include <ATen/ops/zeros.h>

#include <tuple>

#include "aten/host_tensor.h"

namespace torch_xla::aten {
namespace {

using runtime::HostCall;

constexpr std::int64_t kLstm = 2;  // as PyTorch numbers cells

// [input, weight_ih, weight_hh, bias_ih?, bias_hh?, hx, cx, others...]
struct Layer {
  at::Tensor input, weight_ih, weight_hh, bias_ih, bias_hh, hx, cx;
  bool has_biases;
  bool is_reversed;
  std::size_t next = 0;  // of the call's inputs

  explicit Layer(const HostCall& call)
      : has_biases(call.integer("has_biases") != 0), is_reversed(call.integer("reverse") != 0) {
    for (at::Tensor* tensor : {&input, &weight_ih, &weight_hh}) *tensor = take(call);
    for (at::Tensor* bias : {&bias_ih, &bias_hh}) {
      *bias = has_biases ? take(call) : at::zeros({weight_hh.size(0)}, weight_hh.options());
    }
    for (at::Tensor* state : {&hx, &cx}) *state = take(call);
  }

  at::Tensor take(const HostCall& call) { return tensor_over(call.input(next++)); }
  std::int64_t width() const { return hx.size(1); }

  // The output, the last states, and what the derivative needs if it is to be kept.
  auto run(bool keeps) const {
    const at::AutoGradMode grad_mode(keeps);
    return at::mkldnn_rnn_layer(input, weight_ih, weight_hh, bias_ih, bias_hh, hx, cx, is_reversed,
                                /*batch_sizes=*/{}, kLstm, width(), /*num_layers=*/1, has_biases,
                                /*bidirectional=*/false, /*batch_first=*/false, /*train=*/keeps);
  }
};

void write(const HostCall& call, std::initializer_list<at::Tensor> results) {
  std::size_t next = 0;
  for (const at::Tensor& result : results) {
    if (result.defined()) tensor_over(call.output(next++)).copy_(result);
  }
}

void lstm_layer(const HostCall& call) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto [output, hy, cy, kept] = Layer(call).run(/*keeps=*/false);
  write(call, {output, hy, cy});
}

// Behind the layer's tensors come the gradients of its results.
void lstm_layer_gradients(const HostCall& call) {
  const at::AutoDispatchBelowADInplaceOrView below;
  Layer layer(call);
  const at::Tensor of_output = layer.take(call);
  const at::Tensor of_hy = layer.take(call);
  const at::Tensor of_cy = layer.take(call);
  const auto [output, hy, cy, kept] = layer.run(/*keeps=*/true);
  const auto [of_input, of_weight_ih, of_weight_hh, of_bias_ih, of_bias_hh, of_hx, of_cx] =
      at::mkldnn_rnn_layer_backward(
          layer.input, layer.weight_ih, layer.weight_hh, layer.bias_ih, layer.bias_hh, layer.hx,
          layer.cx, output, hy, cy, of_output, of_hy, of_cy, layer.is_reversed, kLstm,
          layer.width(), /*num_layers=*/1, layer.has_biases, /*train=*/true,
          /*bidirectional=*/false, /*batch_sizes=*/{}, /*batch_first=*/false, kept);
  const auto if_has_biases = [&](const at::Tensor& bias) {
    return layer.has_biases ? bias : at::Tensor();
  };
  write(call, {of_input, of_weight_ih, of_weight_hh, if_has_biases(of_bias_ih),
               if_has_biases(of_bias_hh), of_hx, of_cx});
}

const bool registered = [] {
  runtime::add_host_kernel("torch_xla.lstm_layer", lstm_layer);
  runtime::add_host_kernel("torch_xla.lstm_layer_gradients", lstm_layer_gradients);
  return true;
}();

}  // namespace
}  // namespace torch_xla::aten

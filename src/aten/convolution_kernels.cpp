// PyTorch's own convolutions as host kernels: the three linear maps that a convolution and its
// gradients are made of, on the program's memory. src/ops/convolution_call.cpp emits the calls.
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include <algorithm>
#include <optional>

#include "aten/host_tensor.h"
#include "aten/parallel.h"
#include "runtime/host_kernels.h"

namespace torch_xla::aten {
namespace {

using runtime::HostCall;

at::IntArrayRef list(const HostCall& call, const char* name) {
  const std::span<const std::int64_t> values = call.integers(name);
  return {values.data(), values.size()};
}

// The kernels run below autograd, on threads that have no state of torch's.
struct Below {
  explicit Below(const HostCall& call) {
    if (is_small(call)) alone.emplace();
  }

  at::AutoDispatchBelowADInplaceOrView guard;
  std::optional<OneThread> alone;
};

bool all_are(at::IntArrayRef list, std::int64_t number) {
  return std::ranges::all_of(list, [=](std::int64_t x) { return x == number; });
}

// Whether each position is by itself: for each image a product of matrices.
bool is_product(const HostCall& call, const at::Tensor& weight) {
  return all_are(weight.sizes().slice(2), 1) && all_are(list(call, "stride"), 1) &&
         all_are(list(call, "padding"), 0) && call.integer("groups") == 1;
}

// A convolution's result would be copied.
void multiply(const at::Tensor& matrix, const at::Tensor& images, const at::Tensor& result) {
  const auto flattened = [](const at::Tensor& x) { return x.view({x.size(0), x.size(1), -1}); };
  at::Tensor out = flattened(result);
  at::bmm_out(out, matrix.unsqueeze(0).expand({images.size(0), -1, -1}), flattened(images));
}

// The sum over the images of output times input transposed.
void sum_products(const at::Tensor& outputs, const at::Tensor& inputs, const at::Tensor& result) {
  at::Tensor out = result.flatten(1);
  for (std::int64_t i = 0; i < outputs.size(0); ++i) {
    at::addmm_out(out, out, outputs[i].flatten(1), inputs[i].flatten(1).t(), /*beta=*/i > 0);
  }
}

// [input, weight] to output, or with a bias as a third operand.
void correlate(const HostCall& call) {
  const Below below(call);
  const at::Tensor input = tensor_over(call.input(0));
  const at::Tensor weight = tensor_over(call.input(1));
  if (call.num_inputs() == 2 && is_product(call, weight)) {
    return multiply(weight.flatten(1), input, tensor_over(call.output(0)));
  }
  const std::optional<at::Tensor> bias =
      call.num_inputs() > 2 ? std::optional(tensor_over(call.input(2))) : std::nullopt;
  const std::int64_t rank = input.dim() - 2;
  tensor_over(call.output(0))
      .copy_(at::convolution(input, weight, bias, list(call, "stride"), list(call, "padding"),
                             list(call, "dilation"), /*transposed=*/false,
                             std::vector<std::int64_t>(static_cast<std::size_t>(rank), 0),
                             call.integer("groups")));
}

at::Tensor gradient(const HostCall& call, const at::Tensor& grad, const at::Tensor& input,
                    const at::Tensor& weight, std::array<bool, 3> mask) {
  const auto rank = static_cast<std::size_t>(input.dim() - 2);
  const auto grads =
      at::convolution_backward(grad, input, weight, at::OptionalIntArrayRef(), list(call, "stride"),
                               list(call, "padding"), list(call, "dilation"), /*transposed=*/false,
                               std::vector<std::int64_t>(rank, 0), call.integer("groups"), mask);
  return mask[0] ? std::get<0>(grads) : std::get<1>(grads);
}

// [output, weight] to input: the adjoint of `correlate` in its input, whose values it does not
// need.
void adjoint_input(const HostCall& call) {
  const Below below(call);
  const at::Tensor grad = tensor_over(call.input(0));
  const at::Tensor weight = tensor_over(call.input(1));
  const at::Tensor result = tensor_over(call.output(0));
  if (is_product(call, weight)) return multiply(weight.flatten(1).t(), grad, result);
  result.copy_(gradient(call, grad, result, weight, {true, false, false}));
}

// [input, output] to weight: the adjoint in the weight. oneDNN has no kernel of it for float16 but
// its reference, which takes a hundred times as long as converting and computing in float32.
void adjoint_weight(const HostCall& call) {
  const Below below(call);
  const at::Tensor input = tensor_over(call.input(0));
  const at::Tensor grad = tensor_over(call.input(1));
  const at::Tensor result = tensor_over(call.output(0));
  if (is_product(call, result)) return sum_products(grad, input, result);
  const auto wide = [](const at::Tensor& x) {
    return x.scalar_type() == at::kHalf ? x.to(at::kFloat) : x;
  };
  result.copy_(gradient(call, wide(grad), wide(input), wide(result), {false, true, false}));
}

const bool registered = [] {
  runtime::add_host_kernel("torch_xla.correlate", correlate);
  runtime::add_host_kernel("torch_xla.correlate_adjoint_input", adjoint_input);
  runtime::add_host_kernel("torch_xla.correlate_adjoint_weight", adjoint_weight);
  return true;
}();

}  // namespace
}  // namespace torch_xla::aten

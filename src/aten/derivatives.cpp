// Operators whose derivative in PyTorch looks at values: it counts zeros, or selects by a mask. A
// look is a barrier in the middle of the backward pass, so these (`prod`, `cumprod`, `max`, `min`,
// `median`, `masked_fill`, `index_fill`, `index_put`) are composed, where a gradient is asked for,
// of operators whose derivatives do not look.
#include "aten/registration.h"

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/cumprod_backward_ops.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "aten/indexing.h"
#include "aten/strided.h"
#include "aten/tensor.h"

namespace torch_xla::aten {
namespace {

using Arguments = at::ArrayRef<c10::IValue>;

bool is_differentiated(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return false;
  const at::Tensor& tensor = value.toTensor();
  return (c10::GradMode::is_enabled() && tensor.requires_grad()) ||
         tensor._fw_grad(/*level=*/0).defined();
}

// Replaces the autograd kernel of an operator. `compose` gives the result out of other operators,
// or nothing where PyTorch's own derivative is as good.
class ComposedKernel final : public c10::OperatorKernel {
 public:
  using Compose = std::optional<at::Tensor> (*)(Arguments);
  ComposedKernel(std::size_t argument, Compose compose) : argument_(argument), compose_(compose) {}

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    const std::size_t count = handle.schema().arguments().size();
    const Arguments arguments = torch::jit::last(*stack, count);
    if (is_differentiated(arguments[argument_])) {
      if (std::optional<at::Tensor> result = compose_(arguments)) {
        torch::jit::drop(*stack, count);
        stack->emplace_back(*std::move(result));
        return;
      }
    }
    // One function serves all devices; the keys say which kernel it calls in turn.
    handle.getComputedKernelForDispatchKey(c10::DispatchKey::AutogradCPU)
        .callBoxed(handle, keys, stack);
  }

 private:
  std::size_t argument_;  // the one whose gradient PyTorch computes by looking
  Compose compose_;
};

// What the result is asked in, where it has a gradient.
std::optional<at::ScalarType> dtype_of(const at::Tensor& self, const c10::IValue& dtype) {
  const at::ScalarType result = dtype.isNone() ? self.scalar_type() : dtype.toScalarType();
  if (!at::isFloatingType(result) && !at::isComplexType(result)) return std::nullopt;
  return result;
}

// Half precision is multiplied up in float32.
at::Tensor widened(const at::Tensor& self, at::ScalarType dtype) {
  return self.to(c10::isReducedFloatingType(dtype) ? at::kFloat : dtype);
}

// The product along `dim`, which stays with size 1: halves times halves. Its gradient depends on
// the elements, be they none.
at::Tensor product(at::Tensor values, std::int64_t dim) {
  if (values.size(dim) == 0) return (values * values).sum(dim, /*keepdim=*/true) + 1;
  if (values.size(dim) == 1) {
    // By a 1 that depends on the element, so that the second gradient is 0 and not missing.
    const at::Tensor all = at::ones({}, values.options().dtype(at::kBool));
    return values * values.masked_fill(all, 1);
  }
  for (std::int64_t size = values.size(dim); size > 1; size = values.size(dim)) {
    const std::int64_t half = size / 2;
    at::Tensor next = values.narrow(dim, 0, half) * values.narrow(dim, half, half);
    if (size % 2 == 1) next = at::cat({next, values.narrow(dim, size - 1, 1)}, dim);
    values = next;
  }
  return values;
}

// `grad` times the product of the other elements: of all that are not zero over the element itself,
// unless another is zero. (PyTorch's derivative divides too, where no element is zero.)
at::Tensor product_gradient(const at::Tensor& grad, const at::Tensor& self, std::int64_t dim) {
  const at::ScalarType dtype = self.scalar_type();
  const at::Tensor values = widened(self, dtype);
  const at::Tensor is_zero = values.eq(0);
  const at::Tensor factors = at::where(is_zero, 1, values);
  const at::Tensor is_alone = is_zero.sum(dim, /*keepdim=*/true, at::kInt).eq(is_zero);
  const at::Tensor others = factors.prod(dim, /*keepdim=*/true) / factors * is_alone;
  return (widened(grad, dtype) * others.conj()).to(dtype);
}

// Of tensors that are neither transforms' nor dual.
class Product : public torch::autograd::Function<Product> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& self,
                            std::int64_t dim) {
    context->save_for_backward({self});
    context->saved_data["dim"] = dim;
    context->set_materialize_grads(false);  // of no gradient there is none, as in PyTorch's own
    return self.prod(dim, /*keepdim=*/true);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    if (!grads[0].defined()) return {{}, {}};
    const at::Tensor self = context->get_saved_variables()[0];
    const std::int64_t dim = context->saved_data["dim"].toInt();
    if (!c10::GradMode::is_enabled()) return {product_gradient(grads[0], self, dim), {}};
    // A gradient that is derived in turn, at zeros too, is the one of multiplications.
    const at::ScalarType dtype = self.scalar_type();
    const at::Tensor result = product(widened(self, dtype), dim).to(dtype);
    return {torch::autograd::grad({result}, {self}, {grads[0]}, /*retain_graph=*/true,
                                  /*create_graph=*/true)[0],
            {}};
  }
};

bool is_plain(const at::Tensor& self) {
  return as_xla(self) != nullptr && !self._fw_grad(/*level=*/0).defined();
}

// In `dtype`, with size 1 along `dim`.
at::Tensor differentiable_product(const at::Tensor& self, std::int64_t dim, at::ScalarType dtype) {
  if (is_plain(self)) return Product::apply(self.to(dtype), dim);
  return product(widened(self, dtype), dim).to(dtype);
}

std::optional<at::Tensor> prod(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const std::optional<at::ScalarType> dtype = dtype_of(self, arguments[1]);
  if (!dtype.has_value()) return std::nullopt;
  if (self.dim() == 0) return self.clone().to(*dtype);
  return differentiable_product(self.reshape({-1}), 0, *dtype).sum(0);
}

std::optional<at::Tensor> prod_along(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const std::optional<at::ScalarType> dtype = dtype_of(self, arguments[3]);
  if (!dtype.has_value()) return std::nullopt;
  const std::int64_t dim = c10::maybe_wrap_dim(arguments[1].toInt(), self.dim());
  // Neither a view nor the argument itself, as PyTorch's result is none.
  if (self.dim() == 0) return self.clone().to(*dtype);
  const at::Tensor result = differentiable_product(self, dim, *dtype);
  return arguments[2].toBool() ? result : result.sum(dim);
}

// One number of all, whose gradient is shared by those that are equal to it. Of tensors that are
// neither transforms' nor dual.
template <at::Tensor (*choose)(const at::Tensor&)>
class Chosen : public torch::autograd::Function<Chosen<choose>> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& self) {
    const at::Tensor result = choose(self);
    context->save_for_backward({self, result});
    context->set_materialize_grads(false);
    return result;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    if (!grads[0].defined()) return {{}};
    const torch::autograd::variable_list saved = context->get_saved_variables();
    const at::Tensor is_chosen = saved[0].eq(saved[1]) | (saved[0].isnan() & saved[1].isnan());
    return {at::where(is_chosen, grads[0] / is_chosen.sum(), 0)};
  }
};

template <at::Tensor (*choose)(const at::Tensor&)>
std::optional<at::Tensor> chosen(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (!is_plain(self)) return std::nullopt;
  return Chosen<choose>::apply(self);
}

// Each element takes what lies 1, then 2, then 4 ... before it.
at::Tensor scanned_product(at::Tensor values, std::int64_t dim) {
  const std::int64_t size = values.size(dim);
  for (std::int64_t shift = 1; shift < size; shift *= 2) {
    const std::int64_t rest = size - shift;
    values = at::cat({values.narrow(dim, 0, shift),
                      values.narrow(dim, shift, rest) * values.narrow(dim, 0, rest)},
                     dim);
  }
  return values;
}

// PyTorch's own derivative in reverse is an operator with a kernel.
std::optional<at::Tensor> cumprod(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const std::optional<at::ScalarType> dtype = dtype_of(self, arguments[2]);
  if (is_plain(self) || !dtype.has_value()) return std::nullopt;
  const std::int64_t dim = c10::maybe_wrap_dim(arguments[1].toInt(), self.dim());
  // A result that is the argument itself would be written with it.
  if (self.dim() == 0 || self.size(dim) <= 1) return self.clone().to(*dtype);
  return scanned_product(widened(self, *dtype), dim).to(*dtype);
}

// Autograd keeps what is multiplied, so that must not be what is written.
std::optional<at::Tensor> cumprod_of_copy(Arguments arguments) {
  const auto dtype = arguments[2].toOptional<at::ScalarType>();
  return at::cumprod(arguments[0].toTensor().clone(), arguments[1].toInt(), dtype);
}

// What comes before each element, times the products between it and each gradient behind, summed.
at::Tensor composed_cumprod_backward(const at::Tensor& grad, const at::Tensor& input,
                                     std::int64_t dim) {
  if (input.dim() == 0) return grad.clone();
  dim = c10::maybe_wrap_dim(dim, input.dim());
  const std::int64_t size = input.size(dim);
  if (size <= 1) return grad.clone();
  const at::ScalarType dtype = grad.scalar_type();
  const at::Tensor x = widened(input, dtype).conj().resolve_conj();
  const at::Tensor one = at::ones_like(x.narrow(dim, 0, 1));
  at::Tensor sums = widened(grad, dtype);
  at::Tensor factors = at::cat({x.narrow(dim, 1, size - 1), one}, dim);
  for (std::int64_t shift = 1; shift < size; shift *= 2) {
    const std::int64_t rest = size - shift;
    const auto combined = [&](const at::Tensor& first, const at::Tensor& values) {
      return at::cat({first, values.narrow(dim, rest, shift)}, dim);
    };
    const at::Tensor near = factors.narrow(dim, 0, rest);
    sums = combined(sums.narrow(dim, 0, rest) + near * sums.narrow(dim, shift, rest), sums);
    factors = combined(near * factors.narrow(dim, shift, rest), factors);
  }
  const at::Tensor before = at::cat({one, x.narrow(dim, 0, size - 1)}, dim);
  return (scanned_product(before, dim) * sums).to(dtype);
}

at::Tensor cumprod_backward(c10::DispatchKeySet keys, const at::Tensor& grad,
                            const at::Tensor& input, std::int64_t dim, const at::Tensor& output) {
  for (const at::Tensor& tensor : {grad, input, output}) {
    // Transforms' tensors would meet PyTorch's composite, which takes a step for each element.
    if (as_xla(tensor) == nullptr || is_differentiated(tensor)) {
      return composed_cumprod_backward(grad, input, dim);
    }
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return at::_ops::cumprod_backward::redispatch(keys & c10::after_autograd_keyset, grad, input, dim,
                                                output);
}

bool is_number_for(const at::Tensor& self, const at::Tensor& value) {
  return value.dim() == 0 && (self.is_complex() || !value.is_complex());
}

std::optional<at::Tensor> masked_fill(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& mask = arguments[1].toTensor();
  const at::Tensor& value = arguments[2].toTensor();
  if (mask.scalar_type() != at::kBool || !is_number_for(self, value)) return std::nullopt;
  return at::where(mask, value.to(self.scalar_type()), self);
}

std::optional<at::Tensor> index_fill(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& value = arguments[3].toTensor();
  if (!is_number_for(self, value)) return std::nullopt;
  const std::int64_t dim = c10::maybe_wrap_dim(arguments[1].toInt(), self.dim());
  // Where the index names the element, in a shape that broadcasts.
  at::DimVector sizes(static_cast<std::size_t>(self.dim()), 1);
  if (self.dim() > 0) sizes[static_cast<std::size_t>(dim)] = self.size(dim);
  const at::Tensor chosen = at::zeros(sizes, self.options().dtype(at::kBool))
                                .index_fill(dim, arguments[2].toTensor(), /*value=*/true);
  return at::where(chosen, value.to(self.options()), self);
}

std::optional<at::Tensor> index_put(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  return put_by_mask(self, arguments[1].to<Indices>(), arguments[2].toTensor(),
                     arguments[3].toBool());
}

// The in-place call by way of the other. What is not written has the gradient of the base, as after
// other writes.
template <ComposedKernel::Compose compose>
std::optional<at::Tensor> in_place(Arguments arguments) {
  at::Tensor self = arguments[0].toTensor();
  std::vector<c10::IValue> given(arguments.begin(), arguments.end());
  given[0] = seen_from_base(self);
  const std::optional<at::Tensor> result = compose(given);
  if (!result.has_value()) return std::nullopt;
  return self.copy_(*result);
}

std::optional<at::Tensor> index_put_in_place(Arguments arguments) {
  check_put(arguments[0].toTensor(), arguments[1].to<Indices>(), arguments[2].toTensor(),
            arguments[3].toBool());
  return in_place<index_put>(arguments);
}

void add(torch::Library& m, const char* name, std::size_t argument,
         ComposedKernel::Compose compose) {
  m.impl(name, torch::CppFunction::makeFromBoxedKernel(c10::BoxedKernel::makeFromFunctor(
                   std::make_unique<ComposedKernel>(argument, compose))));
}

}  // namespace

void register_derivatives(torch::Library& m) {
  add(m, "prod", 0, prod);
  add(m, "prod.dim_int", 0, prod_along);
  add(m, "max", 0, chosen<at::_ops::max::call>);
  add(m, "min", 0, chosen<at::_ops::min::call>);
  add(m, "median", 0, chosen<at::_ops::median::call>);
  add(m, "nanmedian", 0, chosen<at::_ops::nanmedian::call>);
  add(m, "cumprod", 0, cumprod);
  add(m, "cumprod_", 0, in_place<cumprod_of_copy>);
  m.impl("cumprod_backward", cumprod_backward);
  add(m, "masked_fill.Tensor", 2, masked_fill);
  add(m, "masked_fill_.Tensor", 2, in_place<masked_fill>);
  add(m, "index_fill.int_Tensor", 3, index_fill);
  add(m, "index_fill_.int_Tensor", 3, in_place<index_fill>);
  add(m, "index_put", 2, index_put);
  add(m, "index_put_", 2, index_put_in_place);
  add(m, "_index_put_impl_", 2, index_put_in_place);
}

}  // namespace torch_xla::aten

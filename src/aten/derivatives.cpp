// Compositions of `prod`, `cumprod`, `masked_fill`, `index_fill` and `index_put`.
#include "aten/derivatives.h"

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <c10/core/GradMode.h>

#include "aten/indexing.h"

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

// In the dtype that the result is asked in; half precision is multiplied up in float32.
struct Factors {
  at::Tensor values;
  at::ScalarType dtype;
};

std::optional<Factors> factors_of(const at::Tensor& self, const c10::IValue& dtype) {
  const at::ScalarType result = dtype.isNone() ? self.scalar_type() : dtype.toScalarType();
  if (!at::isFloatingType(result) && !at::isComplexType(result)) return std::nullopt;
  const bool is_half = result == at::kHalf || result == at::kBFloat16;
  return Factors{self.to(is_half ? at::kFloat : result), result};
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

std::optional<at::Tensor> prod(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const std::optional<Factors> factors = factors_of(self, arguments[1]);
  if (!factors.has_value()) return std::nullopt;
  if (self.dim() == 0) return factors->values.clone().to(factors->dtype);
  return product(factors->values.reshape({-1}), 0).sum(0).to(factors->dtype);
}

std::optional<at::Tensor> prod_along(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const std::optional<Factors> factors = factors_of(self, arguments[3]);
  if (!factors.has_value()) return std::nullopt;
  const std::int64_t dim = c10::maybe_wrap_dim(arguments[1].toInt(), self.dim());
  const at::Tensor result =
      self.dim() == 0 ? factors->values : product(factors->values, dim).to(factors->dtype);
  // Neither a view nor the argument itself, as PyTorch's result is none.
  if (self.dim() != 0 && !arguments[2].toBool()) return result.sum(dim);
  return result.is_same(self) ? result.clone() : result.to(factors->dtype);
}

// Each element takes what lies 1, then 2, then 4 ... before it.
std::optional<at::Tensor> cumprod_of(const at::Tensor& self, Arguments arguments) {
  const std::optional<Factors> factors = factors_of(self, arguments[2]);
  if (!factors.has_value()) return std::nullopt;
  const std::int64_t dim = c10::maybe_wrap_dim(arguments[1].toInt(), self.dim());
  at::Tensor values = factors->values;
  const std::int64_t size = self.dim() == 0 ? 1 : self.size(dim);
  for (std::int64_t shift = 1; shift < size; shift *= 2) {
    const std::int64_t rest = size - shift;
    values = at::cat({values.narrow(dim, 0, shift),
                      values.narrow(dim, shift, rest) * values.narrow(dim, 0, rest)},
                     dim);
  }
  // A result that is the argument itself would be written with it.
  return size <= 1 ? values.clone().to(factors->dtype) : values.to(factors->dtype);
}

std::optional<at::Tensor> cumprod(Arguments arguments) {
  return cumprod_of(arguments[0].toTensor(), arguments);
}

// Autograd keeps parts of what is multiplied, so that must not be what is written.
std::optional<at::Tensor> cumprod_of_copy(Arguments arguments) {
  return cumprod_of(arguments[0].toTensor().clone(), arguments);
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

// The in-place call by way of the other.
template <ComposedKernel::Compose compose>
std::optional<at::Tensor> in_place(Arguments arguments) {
  const std::optional<at::Tensor> result = compose(arguments);
  if (!result.has_value()) return std::nullopt;
  at::Tensor self = arguments[0].toTensor();
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
  add(m, "cumprod", 0, cumprod);
  add(m, "cumprod_", 0, in_place<cumprod_of_copy>);
  add(m, "masked_fill.Tensor", 2, masked_fill);
  add(m, "masked_fill_.Tensor", 2, in_place<masked_fill>);
  add(m, "index_fill.int_Tensor", 3, index_fill);
  add(m, "index_fill_.int_Tensor", 3, in_place<index_fill>);
  add(m, "index_put", 2, index_put);
  add(m, "index_put_", 2, index_put_in_place);
  add(m, "_index_put_impl_", 2, index_put_in_place);
}

}  // namespace torch_xla::aten

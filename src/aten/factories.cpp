// `out=` overloads of what makes numbers out of nothing: the tensor that is written says dtype and
// device, which the functional overloads take as arguments.
#include "aten/registration.h"
#include "aten/warning.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/logspace.h>

namespace torch_xla::aten {
namespace {

at::Tensor& eye(std::int64_t n, at::Tensor& out) {
  const at::Tensor result = at::eye(n, out.options());
  return out.resize_(result.sizes()).copy_(result);
}

at::Tensor& eye_of_columns(std::int64_t n, std::int64_t m, at::Tensor& out) {
  const at::Tensor result = at::eye(n, m, out.options());
  return out.resize_(result.sizes()).copy_(result);
}

// As many elements may lie in any shape.
at::Tensor& write_row(at::Tensor& out, const at::Tensor& row) {
  if (out.numel() != row.numel()) out.resize_(row.sizes());
  return out.copy_(row.view(out.sizes()));
}

at::Tensor& linspace(const at::Scalar& start, const at::Scalar& end, std::int64_t steps,
                     at::Tensor& out) {
  return write_row(out, at::linspace(start, end, steps, out.options()));
}

at::Tensor& logspace(const at::Scalar& start, const at::Scalar& end, std::int64_t steps,
                     double base, at::Tensor& out) {
  return write_row(out, at::logspace(start, end, steps, base, out.options()));
}

at::Tensor& arange(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                   at::Tensor& out) {
  const at::Tensor row = at::arange(start, end, step, out.options());
  if (out.numel() != row.numel() && out.numel() > 0) {
    warn(
        c10::str("The number of elements in the out tensor of shape ", out.sizes(), " is ",
                 out.numel(), " which does not match the computed number of elements ", row.numel(),
                 ". Note that this may occur as a result of rounding error. The out tensor will be "
                 "resized to a tensor of shape (",
                 row.numel(), ",)."));
  }
  return write_row(out, row);
}

}  // namespace

void register_factories(torch::Library& m) {
  m.impl("eye.out", eye);
  m.impl("eye.m_out", eye_of_columns);
  m.impl("linspace.out", linspace);
  m.impl("logspace.out", logspace);
  m.impl("arange.start_out", arange);
}

}  // namespace torch_xla::aten

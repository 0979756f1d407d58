// Wordings filled in, and casts.
#include "aten/out_arguments.h"

#include <c10/core/ScalarType.h>

#include <string>
#include <utility>

#include "aten/warning.h"

namespace torch_xla::aten {
namespace {

std::string with_dtypes(std::string_view wording, const at::Tensor& want, const at::Tensor& got) {
  std::string text(wording);
  const std::pair<std::string_view, std::string> names[] = {
      {"{Want}", c10::toString(want.scalar_type())},
      {"{Got}", c10::toString(got.scalar_type())},
      {"{want}", std::string(want.dtype().name())},
      {"{got}", std::string(got.dtype().name())}};
  for (const auto& [mark, name] : names) {
    for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark)) {
      text.replace(at, mark.size(), name);
    }
  }
  return text;
}

}  // namespace

// It draws in the out tensor's dtype.
void check_cast_of_bernoulli(at::ScalarType, at::ScalarType to) {
  TORCH_CHECK_NOT_IMPLEMENTED(!c10::isComplexType(to),
                              "\"bernoulli_tensor_cpu_self_\" not implemented for '", to, "'");
}

void check_cast_of_stack(at::ScalarType from, at::ScalarType to) {
  TORCH_CHECK_TYPE(c10::canCast(from, to),
                   "torch.cat(): input types can't be cast to the desired output type ", to);
}

void check_call_of_mean(at::ScalarType self, at::ScalarType out) {
  TORCH_CHECK(c10::canCast(self, out),
              "mean.dtype_out(): input types can't be cast to the desired output type ", out);
}

void check_out_dtype(const OutRule& rule, const c10::IValue& self, std::size_t k,
                     const at::Tensor& result, const at::Tensor& out) {
  if (k > 1) return;
  const std::string_view error = k == 0 ? rule.dtype_error : rule.second_dtype_error;
  if (rule.casts_complex && self.toTensor().is_complex()) {
    if (!out.is_complex() || out.scalar_type() == self.toTensor().scalar_type()) return;
  }
  TORCH_CHECK(error.empty() || result.scalar_type() == out.scalar_type(),
              with_dtypes(error, result, out));
}

void check_out(const c10::OperatorHandle& handle, const OutRule& rule, const at::Tensor& result,
               const at::Tensor& out) {
  // PyTorch generates these from the functional overload, and then wants its dtype.
  TORCH_CHECK(!handle.hasTag(at::Tag::generated) || result.scalar_type() == out.scalar_type(),
              with_dtypes(kExpectedOut, result, out));
  const at::ScalarType from = result.scalar_type();
  if (rule.check_cast != nullptr) {
    rule.check_cast(from, out.scalar_type());
  } else {
    TORCH_CHECK(c10::canCast(from, out.scalar_type()), "result type ", from,
                " can't be cast to the desired output type ", out.scalar_type());
  }
  if (rule.resizes_silently || out.sizes() == result.sizes() || out.numel() == 0) return;
  warn(c10::str("An output with one or more elements was resized since it had shape ", out.sizes(),
                ", which does not match the required output shape ", result.sizes(),
                ". This behavior is deprecated, and in a future PyTorch release outputs will "
                "not be resized unless they have zero elements. You can explicitly reuse an out "
                "tensor t by resizing it, inplace, to zero elements with t.resize_(0)."));
}

}  // namespace torch_xla::aten

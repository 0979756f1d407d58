// A table of the operators that want a dtype exactly, in their own words, and of those that do not
// warn when they resize.
#include "aten/out_arguments.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <string>

#include "base/error.h"

namespace torch_xla::aten {
namespace {

constexpr std::string_view kExpectedOut =
    "Expected out tensor to have dtype {want}, but got {got} instead";
constexpr std::string_view kFoundDtype = "Found dtype {Got} but expected {Want}";
constexpr std::string_view kScalarType = "expected scalar type {Want} but found {Got}";
constexpr std::string_view kScalarTypeOfScan = "expected scalar_type {Want} but found {Got}";
constexpr std::string_view kHistogram =
    "torch.histogram: input tensor and hist tensor should have the same dtype, but got input "
    "{want} and hist {got}";
constexpr std::string_view kSearch =
    "torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or "
    "Long(int64) "
    "depending on whether out_int32 flag is True, but we got output tensor's dtype {Got}";

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

constexpr OutRule with_second(OutRule rule, std::string_view second_dtype_error) {
  rule.second_dtype_error = second_dtype_error;
  return rule;
}

constexpr OutRule kRules[] = {
    {"_native_batch_norm_legit", kScalarType},
    {"abs", kFoundDtype, false, nullptr, /*casts_complex=*/true},
    {"addbmm", "self and mat2 must have the same dtype, but got {Got} and {Want}", true},
    {"bernoulli", "", true, check_cast_of_bernoulli},
    {"bucketize", kSearch},
    {"complex",
     "Expected object of scalar type {Want} but got scalar type {Got} for argument 'out'"},
    {"conj_physical", kFoundDtype},
    with_second({"cummax", kScalarTypeOfScan}, kScalarTypeOfScan),
    with_second({"cummin", kScalarTypeOfScan}, kScalarTypeOfScan),
    {"dot", "result dtype {Got} does not match input dtype {Want}"},
    with_second({"frexp", "torch.frexp() expects mantissa to have dtype {want} but got {got}"},
                "torch.frexp() expects exponent to have int dtype but got {got}"),
    {"histc", kHistogram},
    {"histogram", kHistogram},
    {"index_select", "index_select(): self and result must have the same scalar type"},
    with_second({"kthvalue", "output values must be of same type as input"},
                "output indices must be of scalar type Long"),
    {"linalg_solve_triangular", kScalarType},
    {"linear", kExpectedOut},
    {"log_sigmoid_forward", kScalarType, true},
    {"logcumsumexp", kScalarTypeOfScan},
    {"masked_select", "masked_select(): self and result must have the same scalar type"},
    with_second({"mode", "expected scalar type '{Want}' but got '{Got}' for values output"},
                "expected scalar type '{Want}' but got '{Got}' for indices output"),
    {"multinomial", "multinomial expects Long tensor out, got: {Got}", true},
    {"mean.dtype_out", "", false, nullptr, false, "", check_call_of_mean},
    {"mv", "addmv input tensors must have the same dtype, but got {Got}, {Want}, and {Want}"},
    {"nan_to_num", "nan_to_num: dtype of out: {Got} should be same as input: {Want}"},
    {"narrow_copy",
     "Expected self.dtype() == output.dtype() to be true, but got false.  (Could this error "
     "message be improved?  If so, please report an enhancement request to PyTorch.)",
     true},
    {"native_batch_norm", kScalarType},
    {"nonzero", "nonzero: Expected out tensor to have scalar type {Want} but got scalar type{Got}"},
    {"norm", kExpectedOut},
    {"ormqr",
     "torch.ormqr: Expected input and result to have the same dtype, but input has dtype{Want} and "
     "result has dtype {Got}"},
    {"searchsorted", kSearch},
    with_second({"sort", kExpectedOut}, kExpectedOut),
    {"stack", "", false, check_cast_of_stack},
    {"take",
     "take(): self and out expected to have the same dtype, but got self.dtype = {Want} and "
     "out.dtype = {Got}"},
    {"vdot", "result dtype {Got} does not match input dtype {Want}"},
    {"where", "Expected out type to be {Want} but got {Got}"},
};

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

const OutRule* find_out_rule(const c10::OperatorHandle& handle) {
  const std::string_view name =
      std::string_view(handle.schema().name()).substr(std::string_view("aten::").size());
  const std::string with_overload = base::str(name, ".", handle.schema().overload_name());
  const auto* const found = std::find_if(
      std::begin(kRules), std::end(kRules),
      [&](const OutRule& rule) { return rule.op == name || rule.op == with_overload; });
  return found == std::end(kRules) ? nullptr : found;
}

void check_out_dtype(const OutRule* rule, const c10::IValue& self, std::size_t k,
                     const at::Tensor& result, const at::Tensor& out) {
  if (rule == nullptr || k > 1) return;
  const std::string_view error = k == 0 ? rule->dtype_error : rule->second_dtype_error;
  if (rule->casts_complex && self.toTensor().is_complex()) {
    if (!out.is_complex() || out.scalar_type() == self.toTensor().scalar_type()) return;
  }
  TORCH_CHECK(error.empty() || result.scalar_type() == out.scalar_type(),
              with_dtypes(error, result, out));
}

void check_out(const c10::OperatorHandle& handle, const OutRule* rule, const at::Tensor& result,
               const at::Tensor& out) {
  // PyTorch generates these from the functional overload, and then wants its dtype.
  TORCH_CHECK(!handle.hasTag(at::Tag::generated) || result.scalar_type() == out.scalar_type(),
              with_dtypes(kExpectedOut, result, out));
  const at::ScalarType from = result.scalar_type();
  if (rule != nullptr && rule->check_cast != nullptr) {
    rule->check_cast(from, out.scalar_type());
  } else {
    TORCH_CHECK(c10::canCast(from, out.scalar_type()), "result type ", from,
                " can't be cast to the desired output type ", out.scalar_type());
  }
  const bool is_silent = rule != nullptr && rule->resizes_silently;
  if (is_silent || out.sizes() == result.sizes() || out.numel() == 0) return;
  TORCH_WARN("An output with one or more elements was resized since it had shape ", out.sizes(),
             ", which does not match the required output shape ", result.sizes(),
             ". This behavior is deprecated, and in a future PyTorch release outputs will "
             "not be resized unless they have zero elements. You can explicitly reuse an out "
             "tensor t by resizing it, inplace, to zero elements with t.resize_(0).");
}

}  // namespace torch_xla::aten

// A table of the operators that want a dtype exactly, in their own words, of those that do not warn
// when they resize, and of those that may not write to what they read.
#include "aten/out_arguments.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <string>

namespace torch_xla::aten {
namespace {

// {Want} and {Got} stand for names of dtypes such as Float, {want} and {got} for such as float.
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

// Of the first out tensor.
struct OutRule {
  std::string_view op;
  std::string_view dtype_error;  // empty: any dtype that the result's can be cast to
  bool resizes_silently = false;
};
constexpr OutRule kRules[] = {
    {"_native_batch_norm_legit", kScalarType},
    {"abs", kFoundDtype},
    {"addbmm", "self and mat2 must have the same dtype, but got {Got} and {Want}", true},
    {"bernoulli", "", true},
    {"bucketize", kSearch},
    {"complex",
     "Expected object of scalar type {Want} but got scalar type {Got} for argument 'out'"},
    {"conj_physical", kFoundDtype},
    {"cummax", kScalarTypeOfScan},
    {"cummin", kScalarTypeOfScan},
    {"dot", "result dtype {Got} does not match input dtype {Want}"},
    {"frexp", "torch.frexp() expects mantissa to have dtype {want} but got {got}"},
    {"histc", kHistogram},
    {"histogram", kHistogram},
    {"index_select", "index_select(): self and result must have the same scalar type"},
    {"kthvalue", "output values must be of same type as input"},
    {"linalg_solve_triangular", kScalarType},
    {"linear", kExpectedOut},
    {"log_sigmoid_forward", kScalarType, true},
    {"logcumsumexp", kScalarTypeOfScan},
    {"masked_select", "masked_select(): self and result must have the same scalar type"},
    {"mode", "expected scalar type '{Want}' but got '{Got}' for values output"},
    {"multinomial", "multinomial expects Long tensor out, got: {Got}", true},
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
    {"sort", kExpectedOut},
    {"take",
     "take(): self and out expected to have the same dtype, but got self.dtype = {Want} and "
     "out.dtype = {Got}"},
    {"vdot", "result dtype {Got} does not match input dtype {Want}"},
    {"where", "Expected out type to be {Want} but got {Got}"},
};

// See apart_of.
struct MemoryRule {
  std::string_view op;
  std::string_view tensors;
};
constexpr MemoryRule kMemory[] = {
    {"addbmm", "p-"},
    {"addmm", "p-"},
    {"addmv", "p-"},
    {"addr", "p"},
    {"baddbmm", "p-"},
    {"bernoulli", "p"},
    {"cat", "x"},
    {"conj_physical", "p"},
    {"cumprod", "p"},
    {"cumsum", "p"},
    {"fill", "p-"},
    {"floor_divide", "p"},
    {"gather", "xp"},
    {"index", "x"},
    {"index_add", "px"},
    {"index_copy", "px"},
    {"index_fill", "px-"},
    {"index_reduce", "px"},
    {"index_select", "x"},
    {"kron", "p"},
    {"kthvalue", "x"},
    {"linalg_cross", "x"},
    {"logcumsumexp", "p"},
    {"masked_fill", "pp-"},
    {"masked_scatter", "p-"},
    {"masked_select", "x"},
    {"max.dim_max", "n"},
    {"min.dim_min", "n"},
    {"mode", "n"},
    {"msort", "p"},
    {"mvlgamma", "-"},
    {"nonzero", "x"},
    {"normal", "p"},
    {"put", "px"},
    {"renorm", "p"},
    {"scatter", "px"},
    {"scatter_add", "px"},
    {"scatter_reduce", "px"},
    {"sort", "p"},
    {"stack", "x"},
    {"take", "x"},
    {"topk", "n"},
    {"triangular_solve", "p"},
};

template <typename Rule, std::size_t count>
const Rule* find_in(const Rule (&rules)[count], std::string_view name) {
  const auto* const found = std::find_if(std::begin(rules), std::end(rules),
                                         [&](const Rule& rule) { return rule.op == name; });
  return found == std::end(rules) ? nullptr : found;
}

const OutRule* find_rule(const c10::OperatorHandle& handle) {
  return find_in(
      kRules, std::string_view(handle.schema().name()).substr(std::string_view("aten::").size()));
}

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

// Of what the operator computes to the dtype of its out tensor.
void check_cast(std::string_view name, at::ScalarType from, at::ScalarType to) {
  // It draws in the out tensor's dtype.
  if (name == "aten::bernoulli") {
    TORCH_CHECK_NOT_IMPLEMENTED(!c10::isComplexType(to),
                                "\"bernoulli_tensor_cpu_self_\" not implemented for '", to, "'");
    return;
  }
  TORCH_CHECK_TYPE(name != "aten::stack" || c10::canCast(from, to),
                   "torch.cat(): input types can't be cast to the desired output type ", to);
  TORCH_CHECK(c10::canCast(from, to), "result type ", from,
              " can't be cast to the desired output type ", to);
}

}  // namespace

std::string_view apart_of(std::string_view name) {
  const MemoryRule* rule = find_in(kMemory, name);
  if (rule == nullptr) rule = find_in(kMemory, name.substr(0, name.find('.')));
  return rule == nullptr ? std::string_view() : rule->tensors;
}

void check_out_dtype(const c10::OperatorHandle& handle, std::size_t position,
                     const at::Tensor& result, const at::Tensor& out) {
  const OutRule* rule = find_rule(handle);
  const bool is_exact = rule != nullptr && !rule->dtype_error.empty() && position == 0;
  TORCH_CHECK(!is_exact || result.scalar_type() == out.scalar_type(),
              with_dtypes(rule->dtype_error, result, out));
}

void check_out(const c10::OperatorHandle& handle, const at::Tensor& result, const at::Tensor& out) {
  // PyTorch generates these from the functional overload, and then wants its dtype.
  TORCH_CHECK(!handle.hasTag(at::Tag::generated) || result.scalar_type() == out.scalar_type(),
              with_dtypes(kExpectedOut, result, out));
  const OutRule* rule = find_rule(handle);
  check_cast(handle.schema().name(), result.scalar_type(), out.scalar_type());
  const bool is_silent = rule != nullptr && rule->resizes_silently;
  if (is_silent || out.sizes() == result.sizes() || out.numel() == 0) return;
  TORCH_WARN("An output with one or more elements was resized since it had shape ", out.sizes(),
             ", which does not match the required output shape ", result.sizes(),
             ". This behavior is deprecated, and in a future PyTorch release outputs will "
             "not be resized unless they have zero elements. You can explicitly reuse an out "
             "tensor t by resizing it, inplace, to zero elements with t.resize_(0).");
}

}  // namespace torch_xla::aten

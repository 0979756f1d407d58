// The table of operators' rules.
#include "aten/operator_rules.h"

#include <algorithm>
#include <string>

#include "aten/argument_checks.h"
#include "aten/factor_checks.h"
#include "aten/out_arguments.h"
#include "base/error.h"

namespace torch_xla::aten {
namespace {

using enum Sharing;
using enum Moment;

constexpr bool kAsStored = true;

constexpr std::string_view kFoundDtype = "Found dtype {Got} but expected {Want}";
constexpr std::string_view kScalarType = "expected scalar type {Want} but found {Got}";
constexpr std::string_view kScalarTypeOfScan = "expected scalar_type {Want} but found {Got}";
constexpr std::string_view kHistogram =
    "torch.histogram: input tensor and hist tensor should have the same dtype, but got input "
    "{want} and hist {got}";
constexpr std::string_view kSearch =
    "torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or "
    "Long(int64) depending on whether out_int32 flag is True, but we got output tensor's dtype "
    "{Got}";

void check_bound(CallArguments given) { check_bounds(given, 1, 1); }
void check_ends(CallArguments given, std::size_t dtype) {
  check_fits_dtype(given, 0, dtype);
  check_fits_dtype(given, 1, dtype);
}
void check_slope(CallArguments given) { check_fits_floats(given, 1, 1); }
void check_factors_of_product(CallArguments given) { check_fits_computed(given, 3, 4); }
void check_each_alpha(CallArguments given) { check_each(given, check_alpha); }
void check_each_bound(CallArguments given) { check_each(given, check_bound); }
void check_each_product(CallArguments given) { check_each(given, check_factor); }
void check_each_quotient(CallArguments given) { check_each(given, check_factor_of_quotient); }
void check_each_weight(CallArguments given) { check_each(given, check_weight); }

// Where a layout is not kMetaKernel, the Meta kernel says other strides than the kernel for the CPU
// gives, or there is none.
constexpr OperatorRules kRules[] = {
    {.name = "_amp_foreach_non_finite_check_and_unscale", .takes_half = true},
    {.name = "_batch_norm_no_update", .layout = Layout::kChannels},
    {.name = "_batch_norm_with_update", .layout = Layout::kChannels},
    {.name = "_batch_norm_with_update_functional", .layout = Layout::kChannels},
    {.name = "_cholesky_solve_helper", .layout = Layout::kMetaKernel},
    {.name = "_fft_c2c", .layout = Layout::kTransform},
    {.name = "_fft_c2r", .layout = Layout::kTransformToReals},
    {.name = "_fft_r2c", .layout = Layout::kTransformOfReals},
    {.name = "_foreach_abs", .check_in_place = check_abs_in_place},
    {.name = "_foreach_add.List", .check = check_each_alpha},
    {.name = "_foreach_add.Tensor", .check = check_each_alpha},
    {.name = "_foreach_addcdiv", .check = check_each_quotient},
    {.name = "_foreach_addcmul", .check = check_each_product},
    {.name = "_foreach_clamp_max", .check = check_each_bound},
    {.name = "_foreach_clamp_min", .check = check_each_bound},
    {.name = "_foreach_lerp", .check = check_each_weight},
    {.name = "_foreach_maximum", .check = check_each_bound},
    {.name = "_foreach_minimum", .check = check_each_bound},
    {.name = "_foreach_pow.Scalar", .check = check_exponents},
    {.name = "_foreach_pow.ScalarList", .check = check_exponents},
    {.name = "_foreach_sub.List", .check = check_each_alpha},
    {.name = "_fused_rms_norm.default", .is_kept_whole = true},
    {.name = "_index_put_impl", .reads = {{kWhole}, {kAny}}},  // check_put has looked
    {.name = "_linalg_eigvals", .check_values = check_eigvals},
    {.name = "_linalg_solve_ex", .factors = {"torch.linalg.solve_ex", info_of_results}},
    {.name = "_native_batch_norm_legit",
     .out = {.dtype_error = kScalarType},
     .layout = Layout::kChannels},
    {.name = "_native_batch_norm_legit_functional", .layout = Layout::kChannels},
    {.name = "_native_batch_norm_legit_no_training", .layout = Layout::kChannels},
    {.name = "_upsample_bicubic2d_aa", .takes_half = true},
    {.name = "_upsample_bicubic2d_aa_backward", .takes_half = true},
    {.name = "_upsample_bilinear2d_aa", .takes_half = true},
    {.name = "_upsample_bilinear2d_aa_backward", .takes_half = true},
    {.name = "abs",
     .out = {.dtype_error = kFoundDtype, .casts_complex = true},
     .check_in_place = check_abs_in_place},
    {.name = "add.Tensor", .check = check_alpha},
    {.name = "addbmm",
     .reads = {{kWholeOrExpanded}, {kAny}},
     .out = {.dtype_error = "self and mat2 must have the same dtype, but got {Got} and {Want}",
             .resizes_silently = true},
     .check = check_factors_of_product},
    {.name = "addcdiv", .check = check_factor_of_quotient},
    {.name = "addcmul", .check = check_factor},
    {.name = "addmm",
     .reads = {{kWholeOrExpanded, kResized, kAsStored}, {kAny}},
     .check = check_factors_of_product},
    {.name = "addmm.dtype", .check = [](CallArguments given) { check_fits_computed(given, 4, 5); }},
    {.name = "addmv",
     .reads = {{kWholeOrExpanded}, {kAny}},
     .check = [](CallArguments given) { check_fits_self(given, 3, 4); }},
    {.name = "addr",
     .reads = {{kWholeOrExpanded, kGiven}, {kWhole, kGiven}},
     .check = check_factors_of_outer},
    {.name = "aminmax", .reads = {{kWhole}}},
    {.name = "arange.start_step", .check = check_steps},
    {.name = "avg_pool3d", .takes_half = true},
    {.name = "avg_pool3d_backward", .takes_half = true},
    {.name = "baddbmm",
     .reads = {{kWholeOrExpanded, kResized, kAsStored}, {kAny}},
     .check = check_factors_of_product},
    {.name = "baddbmm.dtype",
     .check = [](CallArguments given) { check_fits_computed(given, 4, 5); }},
    {.name = "batch_norm_backward", .layout = Layout::kChannels},
    {.name = "bernoulli",
     .reads = {{kWhole}},
     .out = {.resizes_silently = true, .check_cast = check_cast_of_bernoulli}},
    {.name = "binary_cross_entropy", .layout = Layout::kLikeSelf},
    {.name = "binary_cross_entropy_backward", .layout = Layout::kLikeSelf},
    {.name = "bucketize", .out = {.dtype_error = kSearch}},
    {.name = "cat", .reads = {{kNone}}},
    {.name = "cauchy", .check = check_cauchy},
    {.name = "ceil", .reads = {{kWhole, kGiven}}, .reads_of_integers = {{kWhole, kBoth}}},
    {.name = "celu", .check = check_slope},
    {.name = "channel_shuffle", .layout = Layout::kFirstChannels},
    {.name = "cholesky", .layout = Layout::kMetaKernel, .factors = {"cholesky", info_of_cholesky}},
    {.name = "cholesky_inverse",
     .layout = Layout::kMetaKernel,
     .factors = {"cholesky_inverse", info_of_factor}},
    {.name = "clamp.default", .check = [](CallArguments given) { check_bounds(given, 1, 2); }},
    {.name = "clamp_max.default", .check = check_bound},
    {.name = "clamp_min.default", .check = check_bound},
    {.name = "complex",
     .out = {.dtype_error = "Expected object of scalar type {Want} but got scalar type "
                            "{Got} for argument 'out'"}},
    {.name = "conj_physical",
     .reads = {{kWhole, kGiven}},
     .out = {.dtype_error = kFoundDtype},
     .check_in_place = check_conj},
    {.name = "constant_pad_nd", .check = [](CallArguments given) { check_fits_self(given, 2); }},
    {.name = "convolution", .layout = Layout::kChannels},
    {.name = "convolution_overrideable", .layout = Layout::kChannels},
    {.name = "copy", .reads = {{kWhole, kResized, kAsStored}}},
    {.name = "cummax",
     .out = {.dtype_error = kScalarTypeOfScan, .second_dtype_error = kScalarTypeOfScan}},
    {.name = "cummin",
     .out = {.dtype_error = kScalarTypeOfScan, .second_dtype_error = kScalarTypeOfScan}},
    {.name = "cumprod", .reads = {{kWhole}}},
    {.name = "cumprod_backward", .is_kept_whole = true},
    {.name = "cumsum", .reads = {{kWhole}}},
    {.name = "div.Scalar_mode", .check = check_divisor_of_mode},
    {.name = "div.Tensor_mode", .check = check_divisor_of_mode},
    {.name = "dot", .out = {.dtype_error = "result dtype {Got} does not match input dtype {Want}"}},
    {.name = "elu", .check = [](CallArguments given) { check_fits_floats(given, 1, 3); }},
    {.name = "empty_permuted", .layout = Layout::kMetaKernel},
    {.name = "exponential", .check = check_exponential},
    {.name = "fake_quantize_per_tensor_affine_cachemask", .check = check_zero_point},
    {.name = "fill", .reads = {{kWhole}, {kAny}}},
    {.name = "fill.Scalar", .check = [](CallArguments given) { check_fits_self(given, 1); }},
    {.name = "floor", .reads = {{kWhole, kGiven}}, .reads_of_integers = {{kWhole, kBoth}}},
    {.name = "floor_divide",
     .reads = {{kWhole, kGiven}},
     .layout = Layout::kPointwise,
     .check = check_divisor},
    {.name = "fmod", .check = check_divisor},
    {.name = "frexp",
     .out = {.dtype_error = "torch.frexp() expects mantissa to have dtype {want} but got {got}",
             .second_dtype_error =
                 "torch.frexp() expects exponent to have int dtype but got {got}"}},
    {.name = "full", .check = [](CallArguments given) { check_fits_dtype(given, 1, 2); }},
    {.name = "full_like", .check = [](CallArguments given) { check_fits_dtype(given, 1, 2); }},
    {.name = "gather", .reads = {{kNone}, {kWhole}}},
    {.name = "geometric", .check = check_geometric},
    {.name = "geqrf", .layout = Layout::kColumns},
    {.name = "grid_sampler_2d", .layout = Layout::kRows},
    {.name = "grid_sampler_2d_backward", .layout = Layout::kRows},
    {.name = "grid_sampler_3d", .layout = Layout::kRows},
    {.name = "grid_sampler_3d_backward", .layout = Layout::kRows},
    {.name = "hardshrink", .check = check_hardshrink},
    {.name = "hardswish_backward", .layout = Layout::kPointwise},
    {.name = "hardtanh", .check = check_hardtanh},
    {.name = "hardtanh_backward", .layout = Layout::kPointwise},
    {.name = "histc",
     .out = {.dtype_error = kHistogram},
     .check = check_histogram,
     .takes_integers = true},
    {.name = "histogram", .out = {.dtype_error = kHistogram}},
    {.name = "huber_loss_backward", .layout = Layout::kRows},
    {.name = "index", .reads = {{kNone, kGiven}}},
    {.name = "index_add",
     .reads = {{kWhole}, {kNone}},
     .check = [](CallArguments given) { check_fits_self(given, 4); },
     .meta_refuses_empty = true},
    {.name = "index_copy", .reads = {{kWhole}, {kNone}}},
    {.name = "index_fill", .reads = {{kWhole}, {kNone}, {kAny}}},
    {.name = "index_fill.int_Scalar", .check = check_index_fill},
    {.name = "index_reduce", .reads = {{kWhole}, {kNone}}},
    {.name = "index_select",
     .reads = {{kNone, kGiven}},
     .out = {.dtype_error = "index_select(): self and result must have the same scalar type"}},
    {.name = "kron", .reads = {{kWhole}}},
    {.name = "kthvalue",
     .reads = {{kNone, kGiven}},
     .out = {.dtype_error = "output values must be of same type as input",
             .second_dtype_error = "output indices must be of scalar type Long",
             .only_first_is_apart = true}},
    {.name = "ldexp", .reads = {{kWhole, kGiven}, {kAny}}},
    {.name = "leaky_relu", .check = check_slope},
    {.name = "lerp.Scalar", .check = check_weight},
    {.name = "linalg_cholesky_ex", .factors = {"linalg.cholesky_ex", info_of_results}},
    {.name = "linalg_cross", .reads = {{kNone}}},
    {.name = "linalg_eig", .layout = Layout::kSecondColumns},
    {.name = "linalg_householder_product", .layout = Layout::kMetaKernel},
    {.name = "linalg_inv_ex", .factors = {"linalg.inv_ex", info_of_results}},
    {.name = "linalg_ldl_factor_ex", .factors = {"torch.linalg.ldl_factor_ex", info_of_results}},
    {.name = "linalg_ldl_solve", .check_values = check_ldl_pivots},
    {.name = "linalg_lstsq", .layout = Layout::kSolution},
    {.name = "linalg_lu_factor_ex", .factors = {"torch.linalg.lu_factor_ex", info_of_results}},
    {.name = "linalg_solve_triangular",
     .reads = {{kAny}, {kWholeOrExpanded}},
     .out = {.dtype_error = kScalarType},
     .layout = Layout::kColumns},
    {.name = "linalg_vector_norm", .reads = {{kWholeOrExpanded, kGiven}}},
    {.name = "linear",
     .reads = {{kAny}, {kAny}, {kWholeOrExpanded}},
     .out = {.dtype_error = kExpectedOut}},
    {.name = "linear.default", .is_kept_whole = true},
    {.name = "linspace", .check = [](CallArguments given) { check_ends(given, 3); }},
    {.name = "log_normal", .check = check_log_normal},
    {.name = "log_sigmoid_forward", .out = {.dtype_error = kScalarType, .resizes_silently = true}},
    {.name = "logcumsumexp", .reads = {{kWhole}}, .out = {.dtype_error = kScalarTypeOfScan}},
    {.name = "logit", .check = check_logit},
    {.name = "logspace", .check = [](CallArguments given) { check_ends(given, 4); }},
    {.name = "masked_fill", .reads = {{kWhole}, {kWhole}, {kAny}}, .layout = Layout::kRows},
    {.name = "masked_fill.Scalar", .check = [](CallArguments given) { check_fits_self(given, 2); }},
    {.name = "masked_fill.Tensor", .check = check_masked_fill},
    {.name = "masked_scatter", .reads = {{kWhole}, {kAny}}},
    {.name = "masked_select",
     .reads = {{kNone, kGiven}},
     .out = {.dtype_error = "masked_select(): self and result must have the same scalar type"}},
    {.name = "max.dim_max", .reads = {{kNoneOrNumber}}},
    {.name = "max_unpool2d", .layout = Layout::kFirstChannels},
    {.name = "mean.dtype_out", .out = {.check_call = check_call_of_mean}},
    {.name = "min.dim_min", .reads = {{kNoneOrNumber}}},
    {.name = "mode",
     .reads = {{kNoneOrNumber}},
     .out = {.dtype_error = "expected scalar type '{Want}' but got '{Got}' for values output",
             .second_dtype_error =
                 "expected scalar type '{Want}' but got '{Got}' for indices output"}},
    {.name = "mse_loss_backward", .layout = Layout::kRows},
    {.name = "msort", .reads = {{kWhole}}},
    {.name = "multi_margin_loss", .check = check_margin, .takes_half = true},
    {.name = "multi_margin_loss_backward", .check = check_margin, .takes_half = true},
    {.name = "multilabel_margin_loss_backward", .takes_half = true},
    {.name = "multilabel_margin_loss_forward", .takes_half = true},
    {.name = "multinomial",
     .out = {.dtype_error = "multinomial expects Long tensor out, got: {Got}",
             .resizes_silently = true}},
    {.name = "mv",
     .out = {.dtype_error = "addmv input tensors must have the same dtype, but got {Got}, "
                            "{Want}, and {Want}"}},
    {.name = "mvlgamma", .reads = {{kAny}}, .layout = Layout::kRows},
    {.name = "nan_to_num",
     .reads = {{kWhole, kGiven}},
     .reads_of_integers = {{kWhole}},
     .out = {.dtype_error = "nan_to_num: dtype of out: {Got} should be same as input: {Want}"},
     .check_in_place = check_nan_to_num},
    {.name = "narrow_copy",
     .out =
         OutRule{
             .dtype_error =
                 "Expected self.dtype() == output.dtype() to be true, but got false.  (Could this "
                 "error message be improved?  If so, please report an enhancement request to "
                 "PyTorch.)",
             .resizes_silently = true},
     .check = check_narrow_copy},
    {.name = "native_batch_norm",
     .out = {.dtype_error = kScalarType},
     .layout = Layout::kChannels,
     .effects = {"running_mean", "running_var"}},
    {.name = "native_batch_norm_backward", .layout = Layout::kChannels},
    {.name = "native_channel_shuffle", .layout = Layout::kFirstChannels},
    {.name = "native_group_norm", .layout = Layout::kFirstChannels},
    {.name = "native_group_norm_backward", .layout = Layout::kChannels},
    {.name = "native_layer_norm_backward", .layout = Layout::kRows},
    {.name = "new_full", .check = [](CallArguments given) { check_fits_dtype(given, 2, 3); }},
    {.name = "nonzero",
     .reads = {{kNone, kGiven}},
     .out = {.dtype_error = "nonzero: Expected out tensor to have scalar type {Want} but "
                            "got scalar type{Got}"}},
    {.name = "nonzero_static", .layout = Layout::kRows},
    {.name = "norm", .out = {.dtype_error = kExpectedOut}},
    {.name = "norm.ScalarOpt_dim_dtype",
     .check = [](CallArguments given) { check_dtype_of_norm(given, 4); }},
    {.name = "norm.ScalarOpt_dtype",
     .check = [](CallArguments given) { check_dtype_of_norm(given, 2); }},
    {.name = "normal", .reads = {{kWhole}}, .check_in_place = check_normal},
    {.name = "ormqr",
     .out = {.dtype_error = "torch.ormqr: Expected input and result to have the same dtype, "
                            "but input has dtype{Want} and result has dtype {Got}"},
     .layout = Layout::kMetaKernel},
    {.name = "polar", .check = check_polar},
    {.name = "polygamma", .takes_half = true},
    {.name = "pow.Scalar", .check = check_exponent},
    {.name = "pow.Tensor_Scalar", .check = check_exponent},
    {.name = "put", .reads = {{kWhole}, {kNone}}},
    {.name = "random", .check = check_random_any},
    {.name = "random.from", .check = check_random_from},
    {.name = "random.to", .check = check_random_to},
    {.name = "reflection_pad2d", .layout = Layout::kChannels},
    {.name = "reflection_pad3d", .layout = Layout::kChannels},
    {.name = "remainder", .check = check_divisor},
    {.name = "renorm", .reads = {{kWhole}}},
    {.name = "replication_pad2d", .layout = Layout::kChannels},
    {.name = "replication_pad3d", .layout = Layout::kChannels},
    {.name = "round", .reads = {{kWhole, kGiven}}, .reads_of_integers = {{kWhole, kBoth}}},
    {.name = "round.decimals", .takes_half = true},
    {.name = "rsub.Tensor", .check = check_alpha},
    {.name = "scalar_tensor", .check = check_scalar_tensor},
    {.name = "scatter", .reads = {{kWhole}, {kNone, kBoth}}},
    {.name = "scatter.value", .check = [](CallArguments given) { check_fits_self(given, 3); }},
    {.name = "scatter.value_reduce",
     .check = [](CallArguments given) { check_fits_self(given, 3); }},
    {.name = "scatter_add", .reads = {{kWhole}, {kNone, kBoth}}},
    {.name = "scatter_reduce", .reads = {{kWhole}, {kNone, kBoth}}},
    {.name = "searchsorted", .out = {.dtype_error = kSearch}},
    {.name = "smooth_l1_loss_backward", .layout = Layout::kRows},
    {.name = "softplus", .check = [](CallArguments given) { check_fits_floats(given, 1, 2); }},
    {.name = "sort",
     .reads = {{kWhole}},
     .out = {.dtype_error = kExpectedOut,
             .second_dtype_error = kExpectedOut,
             .only_first_is_apart = true}},
    {.name = "stack", .reads = {{kNone}}, .out = {.check_cast = check_cast_of_stack}},
    {.name = "sub.Tensor", .check = check_alpha},
    {.name = "take",
     .reads = {{kNone, kGiven}},
     .out = {.dtype_error = "take(): self and out expected to have the same dtype, but got "
                            "self.dtype = {Want} and out.dtype = {Got}"}},
    {.name = "threshold", .check = [](CallArguments given) { check_fits_self(given, 1, 2); }},
    {.name = "topk", .reads = {{kNoneOrNumber}}},
    {.name = "triangular_solve", .reads = {{kWhole}, {kAny}}, .out = {.only_first_is_apart = true}},
    {.name = "tril", .check_in_place = check_triangle},
    {.name = "triu", .check_in_place = check_triangle},
    {.name = "trunc", .reads = {{kWhole, kGiven}}, .reads_of_integers = {{kWhole, kBoth}}},
    {.name = "uniform", .check = check_uniform},
    {.name = "vdot",
     .out = {.dtype_error = "result dtype {Got} does not match input dtype {Want}"}},
    {.name = "where", .out = {.dtype_error = "Expected out type to be {Want} but got {Got}"}},
};

constexpr bool is_before(const OperatorRules& a, const OperatorRules& b) { return a.name < b.name; }
static_assert(std::adjacent_find(std::begin(kRules), std::end(kRules),
                                 [](const auto& a, const auto& b) { return !is_before(a, b); }) ==
                  std::end(kRules),
              "one row for each name, in order");

const OperatorRules* find_row(std::string_view name) {
  const auto* const found = std::ranges::lower_bound(kRules, name, {}, &OperatorRules::name);
  return found != std::end(kRules) && found->name == name ? found : nullptr;
}

// An overload's own rules before the operator's.
void overlay(OperatorRules& rules, const OperatorRules& own) {
  rules.name = own.name;
  if (!own.reads.empty()) rules.reads = own.reads;
  if (!own.reads_of_integers.empty()) rules.reads_of_integers = own.reads_of_integers;
  if (own.out != OutRule()) rules.out = own.out;
  if (own.layout != Layout::kLikeOperands) rules.layout = own.layout;
  if (own.check != nullptr) rules.check = own.check;
  if (own.check_in_place != nullptr) rules.check_in_place = own.check_in_place;
  if (own.check_values != nullptr) rules.check_values = own.check_values;
  if (own.factors.api != nullptr) rules.factors = own.factors;
  if (!own.effects.front().empty()) rules.effects = own.effects;
  rules.is_kept_whole |= own.is_kept_whole;
  rules.meta_refuses_empty |= own.meta_refuses_empty;
  rules.takes_half |= own.takes_half;
  rules.takes_integers |= own.takes_integers;
}

}  // namespace

OperatorRules rules_of(std::string_view name) {
  OperatorRules rules;
  const std::size_t dot = name.find('.');
  if (const OperatorRules* row = find_row(name.substr(0, dot))) overlay(rules, *row);
  const std::string overload =
      dot == std::string_view::npos ? base::str(name, ".default") : std::string(name);
  if (const OperatorRules* row = find_row(overload)) overlay(rules, *row);
  return rules;
}

ArgumentCheck check_of_values(std::string_view name) {
  if (name.starts_with("aten::")) name.remove_prefix(6);
  const OperatorRules* const row = find_row(name.substr(0, name.find('.')));
  return row == nullptr ? nullptr : row->check_values;
}

std::vector<std::string_view> names_of_rules() {
  std::vector<std::string_view> names;
  for (const OperatorRules& row : kRules) names.push_back(row.name);
  return names;
}

}  // namespace torch_xla::aten

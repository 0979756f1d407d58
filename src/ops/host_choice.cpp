// One predicate per family, chosen by measuring.
#include "ops/host_choice.h"

#include <algorithm>
#include <array>
#include <optional>
#include <unordered_map>

#include "base/dtype.h"
#include "ops/aten_call.h"
#include "ops/linear_algebra.h"
#include "ops/pointwise.h"
#include "ops/promotion.h"
#include "ops/reduce.h"

namespace torch_xla::ops {
namespace {

constexpr std::int64_t kLeastElements = 4096;
// A function of one element costs little beside what XLA's fusion saves.
constexpr std::int64_t kLeastForFunctions = 32768;
// Of two numbers each; below this, XLA's threads are late.
constexpr std::int64_t kLeastProductsForXla = 1 << 25;
// What XLA takes some 20 ns for, each.
constexpr std::int64_t kLeastForSlowFunctions = 2048;
// What XLA takes a tenth of a microsecond for, each.
constexpr std::int64_t kLeastForSlowest = 512;
// Rows of half precision that the kernel multiplies sooner than the weight is made float32.
constexpr std::int64_t kMostRowsOfHalves = 8;
// Of float32 whose sum is one number.
constexpr std::int64_t kLeastForSums = 65536;
// From here on PyTorch's kernel compares numbers that lie side by side faster than XLA.
constexpr std::int64_t kLeastRow = 32;
// More than XLA's fusion of such a function with others saves.
constexpr std::int64_t kLeastForWideVectors = 1 << 18;
// Of float32.
constexpr std::int64_t kLeastForSoftmax = 1 << 17;

// The arguments of a call whose operands are all there.
class Call {
 public:
  Call(const Target& target, std::span<const graph::Attribute* const> args, const Frame& frame,
       bool reads_second_result)
      : target_(target), reads_second_result_(reads_second_result), args_(args), frame_(frame) {}

  // The tensors, in the schema's order.
  const Value& operand(std::size_t index) const { return frame_.operands[index]; }
  const Value& operand_from_last(std::size_t index) const {
    return frame_.operands[frame_.operands.size() - 1 - index];
  }
  DType dtype() const { return operand(0).dtype(); }
  // Of the first operand, which has elements.
  std::int64_t num_rows() const {
    const Value& value = operand(0);
    return value.rank() == 0 ? 1 : value.num_elements() / value.dim(value.rank() - 1);
  }
  // Argument `index` of the schema.
  Dims list(std::size_t index) const { return std::get<Dims>(*args_[index]); }
  std::int64_t integer(std::size_t index) const {
    return detail::number(*args_[index], frame_).to<std::int64_t>();
  }
  // A real number, unless it is data.
  std::optional<double> constant(std::size_t index) const {
    return constant_of(detail::promotable(*args_[index], frame_));
  }

  bool reads_second_result() const { return reads_second_result_; }

  bool is_empty() const {
    return std::ranges::any_of(frame_.operands,
                               [](const Value& v) { return v.num_elements() == 0; });
  }
  // Below this, what is computed is over before a call has begun, and XLA fuses it.
  bool is_large(std::int64_t least = kLeastElements) const {
    return std::ranges::any_of(frame_.operands,
                               [=](const Value& v) { return v.num_elements() >= least; });
  }
  // Of a half whose products the CPU has instructions for.
  bool has_half_products() const { return target_.has_products_of(dtype()); }
  bool is_double() const { return dtype() == DType::kFloat64; }
  bool is_wide() const { return dtype() == DType::kFloat32 || dtype() == DType::kFloat64; }
  bool is_half() const { return dtype() == DType::kFloat16 || dtype() == DType::kBFloat16; }

 private:
  const Target& target_;
  bool reads_second_result_;
  std::span<const graph::Attribute* const> args_;
  const Frame& frame_;
};

bool floating(const Call& call) { return call.is_wide() || call.is_half(); }
bool wide(const Call& call) { return call.is_wide(); }

// XLA's factor of a complex matrix is NaN before the place where it fails.
bool cholesky(const Call& call) { return call.is_wide() || base::is_complex(call.dtype()); }

// XLA takes the greatest value of windows faster, but not where it is, and it takes the gradient of
// every window that an element is in apart. Half precision is converted for each of these steps.
bool has_slow_gradient(const Call& call, std::size_t kernel) {
  const Dims sizes = call.list(kernel);
  const Dims strides = call.list(kernel + 1);
  std::int64_t positions = 1;  // in a window
  std::int64_t windows = 1;    // over an element
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    positions *= sizes[i];
    const std::int64_t stride =
        strides.empty() ? sizes[i] : strides[std::min(i, strides.size() - 1)];
    windows *= (sizes[i] + stride - 1) / stride;
  }
  if (call.is_half()) return positions >= 4;
  return call.is_wide() && (windows >= 4 || positions >= 8);
}

// The kernel gives the values with the places. Of halves XLA takes the values alone no faster.
bool max_pool(const Call& call) {
  return (call.reads_second_result() || call.is_half()) && has_slow_gradient(call, 1);
}
bool max_pool_gradient(const Call& call) { return has_slow_gradient(call, 2); }

// XLA spreads what each window gives, zeros between them, over all that the window covers.
bool average_pool_gradient(const Call& call) {
  return call.is_large() && has_slow_gradient(call, 2);
}

bool large(const Call& call) { return call.is_large() && (call.is_wide() || call.is_half()); }

// XLA copies a second matrix that it would read by columns, as `linear` does, and computes half
// precision in float32.
bool product(const Call& call) {
  return call.is_large() && (call.is_wide() || call.has_half_products());
}

// Of halves that the CPU has no instructions for.
bool is_product_of_halves(const Call& call) {
  return call.is_large() && call.is_half() && !call.has_half_products();
}

// XLA makes a weight of halves float32, and then copies it.
bool linear(const Call& call) {
  const bool is_of_few = call.num_rows() > 1 && call.num_rows() <= kMostRowsOfHalves;
  return product(call) || (is_product_of_halves(call) && is_of_few);
}
bool linear_in_float32(const Call& call) {
  return is_product_of_halves(call) && call.num_rows() > kMostRowsOfHalves;
}

// PyTorch's kernel multiplies blocks of bfloat16, but takes twice as long with its gradient, which
// reads the second result, and shares what XLA computes.
bool attention(const Call& call) {
  const bool is_forward_alone =
      call.dtype() == DType::kBFloat16 && call.is_large() && !call.reads_second_result();
  return product(call) || is_forward_alone;
}

// Of two matrices. Large ones of float32 XLA multiplies as fast, and has not to wake anybody for,
// but for those of few long sums, as the gradient of a narrow layer's weight.
bool matrix_product(const Call& call) {
  const Value& lhs = call.operand_from_last(1);
  const Value& rhs = call.operand_from_last(0);
  const bool is_read_by_columns = rhs.builder().transposition(rhs) != nullptr;
  const bool is_for_xla = call.dtype() == DType::kFloat32 && !is_read_by_columns &&
                          !is_of_long_sums(lhs.dim(0), rhs.dim(1), rhs.dim(0)) &&
                          lhs.dim(0) * rhs.num_elements() >= kLeastProductsForXla;
  return product(call) && !is_for_xla;
}

bool transform(const Call& call) { return call.is_large(); }

bool large_of_doubles(const Call& call) { return call.is_large() && call.is_double(); }

// Its fast sums and exponentials of rows are of float32, and what is around them is fused.
bool sum(const Call& call) {
  const bool is_slow = call.is_double() || call.is_half() || call.dtype() == DType::kInt64;
  return call.is_large() && is_slow;
}

// XLA adds what it has just multiplied in windows, four times as slowly as it adds what it reads.
bool sum_of_all(const Call& call) {
  return sum(call) || (call.is_wide() && call.is_large(kLeastForSums));
}

// Fusion saves little of several passes over what doesn't fit into a core's cache.
bool softmax(const Call& call) {
  return sum(call) || (call.is_wide() && call.is_large(kLeastForSoftmax));
}

bool large_of_halves(const Call& call) { return call.is_large() && call.is_half(); }

bool is_integer(const Call& call) {
  static constexpr std::array kIntegers = {DType::kInt8, DType::kUInt8, DType::kInt16,
                                           DType::kInt32, DType::kInt64};
  return std::ranges::find(kIntegers, call.dtype()) != kIntegers.end();
}
bool is_number(const Call& call) { return floating(call) || is_integer(call); }
bool large_number(const Call& call) { return call.is_large() && is_number(call); }

// Whether argument `index` is the last dimension.
bool is_of_rows(const Call& call, std::size_t index) {
  const std::int64_t rank = call.operand(0).rank();
  return rank == 0 || wrap_dim(call.integer(index), rank) == rank - 1;
}

// XLA compares one number after the other, and a few columns on one thread. PyTorch's kernel is
// slow where neither rows nor what lies side by side are long.
bool extremum(const Call& call) {
  if (!large_number(call)) return false;
  if (call.is_half()) return true;
  const std::int64_t rank = call.operand(0).rank();
  const bool is_of_all = std::ssize(wrap_dims(call.list(1), rank)) == rank;
  return is_of_all || call.operand(0).dim(rank - 1) >= kLeastRow;
}

// XLA scans rows in steps that double, each over all that there is.
// Of columns XLA takes some 20 launches of its own threads, which is little beside large ones.
bool scan(const Call& call) {
  const bool is_short = !call.is_large(kLeastForWideVectors);
  const bool has_kernel = is_number(call) || call.dtype() == DType::kBool;
  return call.is_large() && has_kernel && (is_short || is_of_rows(call, 1));
}
// Of columns there are kernels of ours (cumulative.cpp).
bool sums_of_rows(const Call& call) {
  return scan(call) && (!call.is_wide() || is_of_rows(call, 1));
}

// Here each step costs so much that no size is too small.
bool costly_scan(const Call& call) { return is_number(call) && is_of_rows(call, 1); }

// XLA's sort calls a comparison for each pair, of float64 by integers; columns it transposes.
bool sort(const Call& call) {
  return is_number(call) &&
         call.is_large(call.is_double() ? kLeastForSlowest : kLeastForSlowFunctions);
}

// XLA compares pairs of a number and its place, one after the other.
bool values_and_places(const Call& call) {
  return (call.reads_second_result() || !call.is_wide()) && large_number(call);
}

// XLA calls the C library for each element, or evaluates a formula of another slow function.
bool function(const Call& call) { return floating(call) && call.is_large(kLeastForFunctions); }
bool slow_function(const Call& call) {
  return floating(call) && call.is_large(kLeastForSlowFunctions);
}
bool function_of_integers(const Call& call) {
  return is_integer(call) && call.is_large(kLeastForFunctions);
}
bool slow_function_of_integers(const Call& call) {
  return is_integer(call) && call.is_large(kLeastForSlowFunctions);
}
bool slowest_function(const Call& call) {
  return floating(call) && call.is_large(kLeastForSlowest);
}

// Of a few exponents XLA multiplies, or takes a root.
bool power(const Call& call) {
  const std::optional<double> exponent = call.constant(1);
  return function(call) && !(exponent.has_value() && is_easy_exponent(*exponent, call.dtype()));
}

bool function_of_doubles(const Call& call) {
  return call.is_double() && call.is_large(kLeastForFunctions);
}
// A processor with instructions for products of bfloat16 has some to convert it, and wide vectors,
// which PyTorch's kernels use, and XLA does not.
bool function_of_bfloat16(const Call& call) {
  const bool is_fast = call.dtype() == DType::kBFloat16 && call.has_half_products();
  return function_of_doubles(call) || (is_fast && call.is_large(kLeastForWideVectors));
}

using Predicate = bool (*)(const Call&);
bool never(const Call&) { return false; }

// When PyTorch's kernel is called, and when the one of float32 in place of it.
struct Predicates {
  // NOLINTNEXTLINE(google-explicit-constructor): a row of the table is mostly one predicate.
  Predicates(Predicate own, Predicate of_float32 = never)
      : host(own), host_in_float32(of_float32) {}
  Predicate host;
  Predicate host_in_float32;
};

// By the names that the registry has.
const std::unordered_map<std::string_view, Predicates>& predicates() {
  static const std::unordered_map<std::string_view, Predicates> table = {
      {"mm", matrix_product},
      {"bmm", product},
      {"addmm", matrix_product},
      {"baddbmm", product},
      {"linear", {linear, linear_in_float32}},
      {"_euclidean_dist", product},
      {"_cdist_forward", large_of_doubles},
      {"_scaled_dot_product_flash_attention_for_cpu", attention},
      {"_scaled_dot_product_flash_attention_for_cpu_backward", product},
      {"mv", product},
      {"addmv", product},
      {"dot", product},

      {"linalg_cholesky_ex", cholesky},
      {"linalg_lu_factor_ex", wide},
      {"linalg_inv_ex", wide},
      {"linalg_qr", wide},
      {"linalg_lu_solve", wide},
      {"linalg_solve_triangular", wide},
      {"_linalg_solve_ex", wide},
      {"_linalg_det", wide},
      {"_linalg_slogdet", wide},

      {"max_pool2d_with_indices", max_pool},
      {"max_pool2d_with_indices_backward", max_pool_gradient},
      {"max_pool3d_with_indices", max_pool},
      {"max_pool3d_with_indices_backward", max_pool_gradient},
      {"adaptive_max_pool2d", floating},
      {"adaptive_max_pool2d_backward", floating},
      {"adaptive_max_pool3d", floating},
      {"adaptive_max_pool3d_backward", floating},
      {"avg_pool2d_backward", average_pool_gradient},
      {"grid_sampler_2d", floating},
      {"grid_sampler_2d_backward", floating},
      {"upsample_bilinear2d_backward", large_of_doubles},

      {"native_batch_norm_backward", large_of_halves},
      // There are kernels of ours for the others (normalization_call.cpp).
      {"native_group_norm", large_of_halves},
      {"native_group_norm_backward", large},
      {"native_layer_norm", large_of_halves},
      {"native_layer_norm_backward", large_of_halves},

      {"sum", sum_of_all},
      {"sum.dim_IntList", sum},
      {"mean", sum_of_all},
      {"mean.dim", sum},
      {"linalg_vector_norm", large},
      {"norm.Scalar", large},
      {"norm.ScalarOpt_dim", large},
      {"nansum", large},
      {"count_nonzero", large_number},
      {"prod", large},
      {"prod.dim_int", large},
      {"cumsum", sums_of_rows},
      {"cumprod", scan},
      {"cumprod_backward", large},
      {"cummax", costly_scan},
      {"cummin", costly_scan},
      {"logcumsumexp", is_number},
      {"logsumexp", large_of_halves},

      {"sort", sort},
      {"sort.stable", sort},
      {"topk", is_number},
      {"kthvalue", sort},
      {"median", sort},
      {"median.dim", sort},
      {"nanmedian", sort},
      {"nanmedian.dim", sort},
      {"mode", large_of_doubles},
      {"searchsorted.Tensor", large_number},
      {"bucketize.Tensor", large_number},

      {"max.dim", values_and_places},
      {"min.dim", values_and_places},
      {"argmax", large_number},
      {"argmin", large_number},
      {"max", large_number},
      {"min", large_number},
      {"aminmax", large_number},
      {"amax", extremum},
      {"amin", extremum},

      {"_softmax", softmax},
      {"_softmax_backward_data", softmax},
      {"_log_softmax", softmax},
      {"_log_softmax_backward_data", softmax},
      {"im2col", large_of_doubles},
      {"_fft_c2c", transform},
      {"_fft_c2r", transform},
      {"_fft_r2c", transform},

      {"acos", {slow_function, slow_function_of_integers}},
      {"asin", {slow_function, slow_function_of_integers}},
      {"atan", {function, function_of_integers}},
      {"atan2", {slow_function, slow_function_of_integers}},
      {"atanh", {slow_function, slow_function_of_integers}},
      {"binary_cross_entropy_with_logits", function},
      {"celu", function},
      {"cos", {function, function_of_integers}},
      {"div.Scalar_mode", function},
      {"div.Tensor_mode", function},
      {"elu", function},
      {"erfinv", slow_function},
      {"exp2", {function, function_of_integers}},
      {"floor_divide", slow_function},
      {"fmod.Scalar", slow_function},
      {"fmod.Tensor", slow_function},
      {"igamma", slow_function},
      {"igammac", slow_function},
      {"lgamma", {slow_function, slow_function_of_integers}},
      {"log1p", {function, function_of_integers}},
      {"pow.Tensor_Scalar", power},
      {"pow.Tensor_Tensor", function},
      {"remainder.Scalar", slow_function},
      {"remainder.Tensor", slow_function},
      {"sin", {function, function_of_integers}},
      {"softplus", slow_function},
      {"softplus_backward", function},
      {"tan", {function, function_of_integers}},
      {"special_bessel_j0", slow_function},
      {"special_bessel_j1", slow_function},
      {"special_bessel_y0", slow_function},
      {"special_bessel_y1", slow_function},
      {"special_ndtri", {slowest_function, slow_function_of_integers}},
      {"special_zeta", {slow_function, slow_function_of_integers}},
      {"special_zeta.other_scalar", {slow_function, slow_function_of_integers}},
      {"special_zeta.self_scalar", {slow_function, slow_function_of_integers}},
      {"special_chebyshev_polynomial_t", function},
      {"special_chebyshev_polynomial_t.n_scalar", function},
      {"special_chebyshev_polynomial_u", function},
      {"special_chebyshev_polynomial_u.n_scalar", function},
      {"special_chebyshev_polynomial_v", function},
      {"special_chebyshev_polynomial_v.n_scalar", function},
      {"special_chebyshev_polynomial_w", function},
      {"special_chebyshev_polynomial_w.n_scalar", function},
      {"special_hermite_polynomial_h", function},
      {"special_hermite_polynomial_h.n_scalar", function},
      {"special_hermite_polynomial_he", function},
      {"special_hermite_polynomial_he.n_scalar", function},
      {"special_laguerre_polynomial_l", function},
      {"special_laguerre_polynomial_l.n_scalar", function},
      {"special_legendre_polynomial_p", function},
      {"special_legendre_polynomial_p.n_scalar", function},
      {"special_shifted_chebyshev_polynomial_t", function},
      {"special_shifted_chebyshev_polynomial_t.n_scalar", function},
      {"special_shifted_chebyshev_polynomial_u", function},
      {"special_shifted_chebyshev_polynomial_u.n_scalar", function},
      {"special_shifted_chebyshev_polynomial_v", function},
      {"special_shifted_chebyshev_polynomial_v.n_scalar", function},
      {"special_shifted_chebyshev_polynomial_w", function},
      {"special_shifted_chebyshev_polynomial_w.n_scalar", function},
      {"digamma", function_of_doubles},
      {"erf", function_of_bfloat16},
      {"exp", function_of_bfloat16},
      {"gelu", function_of_bfloat16},
      {"gelu_backward", function_of_bfloat16},
      {"log", function_of_bfloat16},
      {"log10", function_of_doubles},
      {"log2", function_of_doubles},
      {"logit", function_of_doubles},
      {"rsqrt", function_of_doubles},
      {"sigmoid", function_of_bfloat16},
      {"silu", function_of_bfloat16},
      {"silu_backward", function_of_bfloat16},
      {"sinh", function_of_doubles},
      {"special_airy_ai", function_of_doubles},
      {"special_i1", function_of_doubles},
      {"special_i1e", function_of_doubles},
  };
  return table;
}

// What PyTorch's kernel gives where it is chosen over XLA for a call within an operator.
std::optional<Value> called_if_chosen(const Context& context, const std::string& name,
                                      const std::array<graph::Attribute, 2>& given,
                                      std::span<const Value> operands, const Shape& result) {
  const std::array args{&given[0], &given[1]};
  const Frame frame{operands, {}, {}, {}};
  if (host_choice(context, name, args, frame, false) == HostChoice::kXla) return std::nullopt;
  return call_on_host(name, context.builder, args, frame, {result})[0];
}

}  // namespace

HostChoice host_choice(const Target& target, const std::string& name,
                       std::span<const graph::Attribute* const> args, const Frame& frame,
                       bool reads_second_result) {
  if (!target.has_host_kernels || frame.operands.empty()) return HostChoice::kXla;
  const auto found = predicates().find(name);
  if (found == predicates().end()) return HostChoice::kXla;
  const Call call(target, args, frame, reads_second_result);
  if (call.is_empty()) return HostChoice::kXla;
  if (found->second.host(call)) return HostChoice::kHost;
  return found->second.host_in_float32(call) ? HostChoice::kHostInFloat32 : HostChoice::kXla;
}

Value chosen_product(const Context& context, Value lhs, Value rhs) {
  const std::optional<Value> called =
      called_if_chosen(context, "mm", {graph::Operand{0}, graph::Operand{1}}, std::array{lhs, rhs},
                       {lhs.dtype(), {lhs.dim(0), rhs.dim(1)}});
  return called.has_value() ? *called : contract(lhs, rhs, {{}, {}, {1}, {0}});
}

Value chosen_sum(const Context& context, Value operand) {
  // The second argument is the dtype, which is the operand's own.
  const std::optional<Value> called = called_if_chosen(context, "sum", {graph::Operand{0}, {}},
                                                       std::array{operand}, {operand.dtype(), {}});
  return called.has_value() ? *called : reduce_sum(operand, wrap_dims({}, operand.rank()));
}

std::optional<NormalizedBatch> called_batch_norm(const Context& context, Value input,
                                                 const std::optional<Value>& weight,
                                                 const std::optional<Value>& bias, double eps) {
  const bool is_half = input.dtype() == DType::kFloat16 || input.dtype() == DType::kBFloat16;
  if (!context.has_host_kernels || !is_half || input.num_elements() < kLeastElements) {
    return std::nullopt;
  }
  // Parameters in float32 make the kernel keep its moments in float32.
  const Shape channels{DType::kFloat32, {input.dim(1)}};
  const auto parameter = [&](const std::optional<Value>& given, int otherwise) {
    return given.has_value() ? convert(*given, channels.dtype)
                             : hlo::full(context.builder, channels, otherwise);
  };
  const graph::Attribute operands[] = {graph::Operand{0}, graph::Operand{1}, graph::Operand{2}};
  const graph::Attribute none;
  const graph::Attribute training = graph::Number{true, DType::kBool};
  const graph::Attribute momentum = graph::Number{0.0, DType::kFloat64};
  const graph::Attribute epsilon = graph::Number{eps, DType::kFloat64};
  const std::array args{&operands[0], &operands[1], &operands[2], &none,
                        &none,        &training,    &momentum,    &epsilon};
  const std::array values{input, parameter(weight, 1), parameter(bias, 0)};
  const hlo::Values results =
      call_on_host("native_batch_norm", context.builder, args, Frame{values, {}, {}, {}},
                   {input.type(), channels, channels});
  return NormalizedBatch{results[0], results[1], results[2]};
}

}  // namespace torch_xla::ops

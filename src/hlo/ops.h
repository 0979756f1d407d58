// Every StableHLO operation that lowerings use, as a function with the specification's name and
// arguments, and the operations of the CHLO dialect that plugins expand. Each checks the
// specification's constraints (throwing base::Error of kind kInvalidArgument that reads
// "stablehlo.<op>: what must hold, got what"), infers the result type and appends the operation to
// its operands' Builder. Nothing is broadcast or promoted: operand types must match exactly.
// Operations that would change nothing (a conversion to the same type, a reshape to the same sizes)
// give their operand back.
#pragma once

#include <array>
#include <complex>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/sharding.h"
#include "hlo/builder.h"

namespace torch_xla::hlo {

// ---- Constants (constants.cpp) ------------------------------------------------------------------
// Numbers are converted to the dtype as PyTorch does: integers wrap, floats round to nearest even,
// doubles outside an integer type's range saturate; float constants round-trip exactly.

// Row-major elements; their number must be the type's.
Value constant(Builder& builder, const Type& type, std::span<const double> elements);
Value constant(Builder& builder, const Type& type, std::span<const std::int64_t> elements);
Value constant(Builder& builder, const Type& type, std::span<const std::complex<double>> elements);
template <typename Number>
Value constant(Builder& builder, const Type& type, std::initializer_list<Number> elements) {
  using Element = std::conditional_t<std::is_integral_v<Number>, std::int64_t, double>;
  const std::vector<Element> copy(elements.begin(), elements.end());
  return constant(builder, type, std::span<const Element>(copy));
}

// One value everywhere.
Value full(Builder& builder, const Type& type, double value);
Value full(Builder& builder, const Type& type, std::int64_t value);
Value full(Builder& builder, const Type& type, int value);
Value full(Builder& builder, const Type& type, bool value);
Value full(Builder& builder, const Type& type, std::complex<double> value);

// A 0-d constant.
template <typename Number>
Value scalar(Builder& builder, DType dtype, Number value) {
  return full(builder, Type{dtype, {}}, value);
}
// A constant of the type of `like`.
template <typename Number>
Value full_like(const Value& like, Number value) {
  return full(like.builder(), like.type(), value);
}
// The least and the greatest value of a type: what max and min reductions start from. Infinities
// for floating types that have them.
Value lowest(Builder& builder, const Type& type);
Value highest(Builder& builder, const Type& type);

Value iota(Builder& builder, const Type& type, std::int64_t iota_dimension);

// ---- Elementwise (ops_elementwise.cpp) ----------------------------------------------------------
Value abs(Value operand);  // of complex: the real magnitude
Value cbrt(Value operand);
Value ceil(Value operand);
Value cosine(Value operand);
Value count_leading_zeros(Value operand);
Value exponential(Value operand);
Value exponential_minus_one(Value operand);
Value floor(Value operand);
Value imag(Value operand);
Value is_finite(Value operand);
Value log(Value operand);
Value log_plus_one(Value operand);
Value logistic(Value operand);
Value negate(Value operand);
Value not_(Value operand);
Value popcnt(Value operand);
Value real(Value operand);
Value round_nearest_afz(Value operand);
Value round_nearest_even(Value operand);
Value rsqrt(Value operand);
Value sign(Value operand);
Value sine(Value operand);
Value sqrt(Value operand);
Value tan(Value operand);
Value tanh(Value operand);

// On booleans `add` is or, `multiply` is and, `maximum` is or, `minimum` is and.
Value add(Value lhs, Value rhs);
Value and_(Value lhs, Value rhs);
Value atan2(Value lhs, Value rhs);
Value complex(Value lhs, Value rhs);
Value divide(Value lhs, Value rhs);  // integers: towards zero; by zero -1, or all bits set
Value maximum(Value lhs, Value rhs);
Value minimum(Value lhs, Value rhs);
Value multiply(Value lhs, Value rhs);
Value or_(Value lhs, Value rhs);
Value power(Value lhs, Value rhs);
Value remainder(Value lhs, Value rhs);  // the dividend's sign; of integers by zero the dividend
Value shift_left(Value lhs, Value rhs);
Value shift_right_arithmetic(Value lhs, Value rhs);
Value shift_right_logical(Value lhs, Value rhs);
Value subtract(Value lhs, Value rhs);
Value xor_(Value lhs, Value rhs);

enum class ComparisonDirection : std::uint8_t { kEq, kNe, kGe, kGt, kLe, kLt };
// The comparison type (float, signed, unsigned) follows from the operands' dtype; `total_order`
// puts -NaN < -inf < ... < -0 < +0 < ... < +inf < NaN, for floats only.
Value compare(Value lhs, Value rhs, ComparisonDirection direction, bool total_order = false);
Value eq(Value lhs, Value rhs);
Value ne(Value lhs, Value rhs);
Value ge(Value lhs, Value rhs);
Value gt(Value lhs, Value rhs);
Value le(Value lhs, Value rhs);
Value lt(Value lhs, Value rhs);

// `pred` is a bool tensor of the same sizes, or 0-d.
Value select(Value pred, Value on_true, Value on_false);
// `min` and `max` have the operand's type, or are 0-d of its dtype.
Value clamp(Value min, Value operand, Value max);

// To bool: "is not zero". From complex to a real type: the real part.
Value convert(Value operand, DType dtype);
// Between types of one width the sizes stay; to a narrower type a last dimension is added, to a
// wider one it is taken away.
Value bitcast_convert(Value operand, DType dtype);
Value reduce_precision(Value operand, int exponent_bits, int mantissa_bits);

// ---- CHLO elementwise (ops_chlo.cpp) ------------------------------------------------------------
Value acos(Value operand);
Value acosh(Value operand);
Value asin(Value operand);
Value asinh(Value operand);
Value atan(Value operand);
Value atanh(Value operand);
Value bessel_i1e(Value operand);
Value conj(Value operand);  // of a real type: the operand
Value cosh(Value operand);
Value digamma(Value operand);
Value erf(Value operand);
Value erf_inv(Value operand);
Value erfc(Value operand);
Value lgamma(Value operand);
Value next_after(Value x, Value y);
Value polygamma(Value n, Value x);
Value sinh(Value operand);
Value square(Value operand);
Value zeta(Value x, Value q);
// The k largest of the last dimension, descending, and their int32 indices.
std::pair<Value, Value> top_k(Value operand, std::int64_t k);

// ---- Shape (ops_shape.cpp) ----------------------------------------------------------------------
Value broadcast_in_dim(Value operand, const Dims& result_dims, const Dims& broadcast_dimensions);
Value reshape(Value operand, const Dims& result_dims);
Value transpose(Value operand, const Dims& permutation);
Value reverse(Value operand, const Dims& dimensions);
Value concatenate(const Values& inputs, std::int64_t dimension);
Value slice(Value operand, const Dims& start_indices, const Dims& limit_indices,
            const Dims& strides);
// One 0-d integer index per dimension, all of one type; clamped so that the slice lies inside.
Value dynamic_slice(Value operand, const Values& start_indices, const Dims& slice_sizes);
Value dynamic_update_slice(Value operand, Value update, const Values& start_indices);
// Negative edge padding takes elements away; `interior_padding` may be empty for none.
Value pad(Value operand, Value padding_value, const Dims& edge_padding_low,
          const Dims& edge_padding_high, const Dims& interior_padding = {});

struct GatherDimensionNumbers {
  Dims offset_dims = {};
  Dims collapsed_slice_dims = {};
  Dims operand_batching_dims = {};
  Dims start_indices_batching_dims = {};
  Dims start_index_map = {};
  std::int64_t index_vector_dim = 0;
};
Value gather(Value operand, Value start_indices, const GatherDimensionNumbers& dimension_numbers,
             const Dims& slice_sizes, bool indices_are_sorted = false);

struct ScatterDimensionNumbers {
  Dims update_window_dims = {};
  Dims inserted_window_dims = {};
  Dims input_batching_dims = {};
  Dims scatter_indices_batching_dims = {};
  Dims scatter_dims_to_operand_dims = {};
  std::int64_t index_vector_dim = 0;
};
// Combines the element that is there with an update: hlo::add fits.
using BinaryRegion = std::function<Value(Value, Value)>;
Value scatter(Value input, Value scatter_indices, Value update,
              const ScatterDimensionNumbers& dimension_numbers,
              const BinaryRegion& update_computation, bool indices_are_sorted = false,
              bool unique_indices = false);
// The body takes the inputs' elements, then the updates'. The inputs must be different values, and
// must not become one by common subexpression elimination either: XLA's CPU compiler then gives
// them one copy, and every result is the first one's. Scatter them one by one where that may be.
Values scatter(const Values& inputs, Value scatter_indices, const Values& updates,
               const ScatterDimensionNumbers& dimension_numbers, const Region& update_computation,
               bool indices_are_sorted = false, bool unique_indices = false);

// ---- Reductions and windows (ops_reduce.cpp) ----------------------------------------------------
// The body combines two 0-d values; `init_value` is 0-d and must be the body's identity.
Value reduce(Value input, Value init_value, const Dims& dimensions, const BinaryRegion& body);
// The body takes the accumulators, then the elements.
Values reduce(const Values& inputs, const Values& init_values, const Dims& dimensions,
              const Region& body);

// Pairs (low, high), one per dimension.
using Padding = std::vector<std::pair<std::int64_t, std::int64_t>>;

// Members other than `dimensions` may be empty: ones, and no padding.
struct Window {
  Dims dimensions = {};
  Dims strides = {};
  Dims base_dilations = {};
  Dims window_dilations = {};
  Padding padding = {};
};
Value reduce_window(Value input, Value init_value, const Window& window, const BinaryRegion& body);
Values reduce_window(const Values& inputs, const Values& init_values, const Window& window,
                     const Region& body);
// Puts each element of `source` where `select` (true: keep the first) chose in its window of
// `operand`, combining what meets with `scatter`. The window's dilations must be ones.
Value select_and_scatter(Value operand, Value source, Value init_value, const Window& window,
                         const BinaryRegion& select, const BinaryRegion& scatter);

// The comparator takes (lhs, rhs) of each input in turn and tells whether lhs comes first.
using Comparator = std::function<Value(std::span<const Value>)>;
Values sort(const Values& inputs, std::int64_t dimension, bool is_stable,
            const Comparator& comparator);
Value sort(Value input, std::int64_t dimension, bool is_stable, const BinaryRegion& comparator);

struct BatchNorm {
  Value output;
  Value mean;
  Value variance;
};
struct BatchNormGradient {
  Value grad_operand;
  Value grad_scale;
  Value grad_offset;
};
BatchNorm batch_norm_training(Value operand, Value scale, Value offset, double epsilon,
                              std::int64_t feature_index);
Value batch_norm_inference(Value operand, Value scale, Value offset, Value mean, Value variance,
                           double epsilon, std::int64_t feature_index);
BatchNormGradient batch_norm_grad(Value operand, Value scale, Value mean, Value variance,
                                  Value grad_output, double epsilon, std::int64_t feature_index);

// ---- Linear algebra and convolution (ops_linear.cpp) --------------------------------------------
struct DotDimensionNumbers {
  Dims lhs_batching_dimensions = {};
  Dims rhs_batching_dimensions = {};
  Dims lhs_contracting_dimensions = {};
  Dims rhs_contracting_dimensions = {};
};
// The result has the batch, then lhs's, then rhs's remaining dimensions. `result_dtype` (for wider
// accumulation) is the operands' when not given.
Value dot_general(Value lhs, Value rhs, const DotDimensionNumbers& dimension_numbers,
                  std::optional<DType> result_dtype = std::nullopt,
                  Precision precision = Precision::kDefault);

struct ConvolutionDimensionNumbers {
  std::int64_t input_batch_dimension = 0;
  std::int64_t input_feature_dimension = 1;
  Dims input_spatial_dimensions = {};
  std::int64_t kernel_output_feature_dimension = 0;
  std::int64_t kernel_input_feature_dimension = 1;
  Dims kernel_spatial_dimensions = {};
  std::int64_t output_batch_dimension = 0;
  std::int64_t output_feature_dimension = 1;
  Dims output_spatial_dimensions = {};

  // PyTorch's layout: batch, feature, space; kernels output feature, input feature, space.
  static ConvolutionDimensionNumbers channels_first(std::int64_t num_spatial_dimensions);
};
// Empty members mean ones, no padding, no reversal.
struct ConvolutionWindow {
  Dims strides = {};
  Padding padding = {};
  Dims lhs_dilation = {};
  Dims rhs_dilation = {};
  std::vector<bool> reversal = {};
};
Value convolution(Value lhs, Value rhs, const ConvolutionWindow& window,
                  const ConvolutionDimensionNumbers& dimension_numbers,
                  std::int64_t feature_group_count = 1, std::int64_t batch_group_count = 1,
                  std::optional<DType> result_dtype = std::nullopt,
                  Precision precision = Precision::kDefault);

Value cholesky(Value a, bool lower);
enum class TransposeA : std::uint8_t { kNoTranspose, kTranspose, kAdjoint };
Value triangular_solve(Value a, Value b, bool left_side, bool lower, bool unit_diagonal,
                       TransposeA transpose_a);
enum class FftType : std::uint8_t { kFft, kIfft, kRfft, kIrfft };
Value fft(Value operand, FftType fft_type, const Dims& fft_length);

// ---- Control flow, calls, RNG (ops_control.cpp) -------------------------------------------------
// The regions of while_, if_ and case_ may use values from outside; those of reductions, sorts and
// scatters may not.
Values while_(const Values& operand, const Comparator& cond, const Region& body);
Values if_(Value pred, const std::function<Values()>& true_branch,
           const std::function<Values()>& false_branch);
// An index outside the branches takes the last.
Values case_(Value index, const std::vector<std::function<Values()>>& branches);
Values optimization_barrier(const Values& operand);

enum class RngAlgorithm : std::uint8_t { kDefault, kThreeFry, kPhilox };
struct RngBits {
  Value output_state;
  Value output;
};
// `initial_state` is ui64[2] (ThreeFry), ui64[2] or ui64[3] (Philox); `type` is of integer dtype.
RngBits rng_bit_generator(Value initial_state, RngAlgorithm algorithm, const Type& type);

using Attribute = std::variant<bool, std::int32_t, std::int64_t, float, double, std::string,
                               std::vector<std::int64_t>, std::vector<double>>;
using Attributes = std::vector<std::pair<std::string, Attribute>>;

// The whole of result `output_index` shares the memory of operand `operand_index`.
struct OutputOperandAlias {
  std::int64_t output_index = 0;
  std::int64_t operand_index = 0;
};
struct CustomCall {
  std::string call_target_name = {};
  std::vector<Type> results = {};
  Attributes backend_config = {};        // for api_version 4 (FFI)
  std::string backend_config_text = {};  // for the versions before
  int api_version = 4;
  bool has_side_effect = false;
  Attributes frontend_attributes = {};  // texts that XLA carries along
  std::string sharding = {};            // of the result, in GSPMD's words; empty: none
  std::vector<OutputOperandAlias> output_operand_aliases = {};
  // Minor-to-major; empty for the default (row-major) everywhere.
  std::vector<Dims> operand_layouts = {};
  std::vector<Dims> result_layouts = {};
};
// A call with results none needs operands or side effects to have a Builder: `operands` may be
// empty only in the overload that names one.
Values custom_call(const Values& operands, const CustomCall& call);
Values custom_call(Builder& builder, const Values& operands, const CustomCall& call);

// A call of the function `main` of a module that was written elsewhere, whose functions become
// functions of this one. `results` must be the types that it returns; the plugin checks them.
Values call_module(Builder& builder, const Values& operands, const std::string& module,
                   const std::vector<Type>& results);

// An operation by `name` ("vendor.op") whose meaning is the module function `decomposition`, which
// must have been defined.
Values composite(const Values& operands, const std::string& name, const std::string& decomposition,
                 const Attributes& attributes = {}, int version = 0);

// ---- Collectives (ops_collective.cpp) -----------------------------------------------------------
struct Collective {
  std::vector<Dims> replica_groups = {};  // all of one size
  std::int64_t channel_id = 0;            // 0: none
  bool use_global_device_ids = false;
};
Values all_reduce(const Values& operands, const Collective& collective, const BinaryRegion& body);
Value all_gather(Value operand, std::int64_t all_gather_dim, const Collective& collective);
Value reduce_scatter(Value operand, std::int64_t scatter_dimension, const Collective& collective,
                     const BinaryRegion& body);
Value all_to_all(Value operand, std::int64_t split_dimension, std::int64_t concat_dimension,
                 std::int64_t split_count, const Collective& collective);
using SourceTargetPairs = std::vector<std::pair<std::int64_t, std::int64_t>>;
Value collective_permute(Value operand, const SourceTargetPairs& source_target_pairs,
                         std::int64_t channel_id = 0);
Value collective_broadcast(Value operand, const Collective& collective);
Value partition_id(Builder& builder);
Value replica_id(Builder& builder);

// ---- Partitioning (ops_sharding.cpp) ------------------------------------------------------------
// The attribute of a parameter or result with so many dimensions that says how it lies. The module
// gets the mesh.
std::string_view sharding_attribute_name();
std::string sharding_attribute(Builder& builder, const base::Sharding& sharding, std::int64_t rank);
Value sharding_constraint(Value operand, const base::Sharding& sharding);

}  // namespace torch_xla::hlo

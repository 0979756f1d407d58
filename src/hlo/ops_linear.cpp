// Matrix products, convolutions, factorisations and Fourier transforms.
#include <array>
#include <numeric>

#include "hlo/checks.h"
#include "hlo/text.h"
#include "hlo/window.h"

namespace torch_xla::hlo {
namespace {

void require_paired(std::string_view name, std::string_view what, const Value& lhs,
                    const Dims& lhs_dims, const Value& rhs, const Dims& rhs_dims) {
  require_size(name, what, rhs_dims.size(), static_cast<std::int64_t>(lhs_dims.size()));
  require_dimensions(name, what, lhs_dims, lhs.rank());
  require_dimensions(name, what, rhs_dims, rhs.rank());
  for (std::size_t i = 0; i < lhs_dims.size(); ++i) {
    require(lhs.dim(lhs_dims[i]) == rhs.dim(rhs_dims[i]), name, what,
            " must have equal sizes, got ", Show(lhs), " along ", Show(lhs_dims), " and ",
            Show(rhs), " along ", Show(rhs_dims));
  }
}

void append_free_dims(Dims& out, const Value& operand, const Dims& batching,
                      const Dims& contracting, std::string_view name) {
  for (const std::int64_t d : batching) {
    require(!contains(contracting, d), name, "dimension ", d,
            " cannot be batching and contracting");
  }
  for (std::int64_t i = 0; i < operand.rank(); ++i) {
    if (!contains(batching, i) && !contains(contracting, i)) out.push_back(operand.dim(i));
  }
}

Precision wanted_precision(const Builder& builder, Precision precision) {
  return precision == Precision::kDefault ? builder.default_precision() : precision;
}

}  // namespace

Value dot_general(Value lhs, Value rhs, const DotDimensionNumbers& dimension_numbers,
                  std::optional<DType> result_dtype, Precision precision) {
  static constexpr std::string_view kName = "stablehlo.dot_general";
  const DotDimensionNumbers& d = dimension_numbers;
  require_value(kName, lhs);
  require_value(kName, rhs);
  require(lhs.dtype() == rhs.dtype(), kName, "the operands must have one dtype, got ", Show(lhs),
          " and ", Show(rhs));
  require_paired(kName, "batching dimensions", lhs, d.lhs_batching_dimensions, rhs,
                 d.rhs_batching_dimensions);
  require_paired(kName, "contracting dimensions", lhs, d.lhs_contracting_dimensions, rhs,
                 d.rhs_contracting_dimensions);
  Type result{result_dtype.value_or(lhs.dtype()), {}};
  for (const std::int64_t b : d.lhs_batching_dimensions) result.dims.push_back(lhs.dim(b));
  append_free_dims(result.dims, lhs, d.lhs_batching_dimensions, d.lhs_contracting_dimensions,
                   kName);
  append_free_dims(result.dims, rhs, d.rhs_batching_dimensions, d.rhs_contracting_dimensions,
                   kName);
  std::string properties = "dot_dimension_numbers = #stablehlo.dot<";
  if (!d.lhs_batching_dimensions.empty()) {
    properties += "lhs_batching_dimensions = " + list(d.lhs_batching_dimensions) +
                  ", rhs_batching_dimensions = " + list(d.rhs_batching_dimensions) + ", ";
  }
  properties += "lhs_contracting_dimensions = " + list(d.lhs_contracting_dimensions) +
                ", rhs_contracting_dimensions = " + list(d.rhs_contracting_dimensions) + ">";
  properties += precision_property(wanted_precision(lhs.builder(), precision));
  const std::array operands{lhs, rhs};
  return lhs.builder().op(kName, operands, result, properties);
}

ConvolutionDimensionNumbers ConvolutionDimensionNumbers::channels_first(
    std::int64_t num_spatial_dimensions) {
  ConvolutionDimensionNumbers d;
  d.input_spatial_dimensions.resize(static_cast<std::size_t>(num_spatial_dimensions));
  std::iota(d.input_spatial_dimensions.begin(), d.input_spatial_dimensions.end(), 2);
  d.kernel_spatial_dimensions = d.input_spatial_dimensions;
  d.output_spatial_dimensions = d.input_spatial_dimensions;
  return d;
}

namespace {

// "[b, f, 0, 1]": what each dimension of an operand of a convolution is.
std::string layout_text(std::string_view name, std::int64_t batch, std::string_view batch_letter,
                        std::int64_t feature, std::string_view feature_letter,
                        const Dims& spatial) {
  const auto rank = static_cast<std::int64_t>(spatial.size()) + 2;
  Dims all{batch, feature};
  all.insert(all.end(), spatial.begin(), spatial.end());
  require_dimensions(name, "dimension numbers", all, rank);
  std::vector<std::string> letters(static_cast<std::size_t>(rank));
  letters[static_cast<std::size_t>(batch)] = batch_letter;
  letters[static_cast<std::size_t>(feature)] = feature_letter;
  for (std::size_t i = 0; i < spatial.size(); ++i) {
    letters[static_cast<std::size_t>(spatial[i])] = std::to_string(i);
  }
  std::string out = "[";
  for (const std::string& letter : letters) {
    if (out.size() > 1) out += ", ";
    out += letter;
  }
  return out + "]";
}

std::string dimension_numbers_text(std::string_view name, const ConvolutionDimensionNumbers& d) {
  return "#stablehlo.conv<" +
         layout_text(name, d.input_batch_dimension, "b", d.input_feature_dimension, "f",
                     d.input_spatial_dimensions) +
         "x" +
         layout_text(name, d.kernel_output_feature_dimension, "o", d.kernel_input_feature_dimension,
                     "i", d.kernel_spatial_dimensions) +
         "->" +
         layout_text(name, d.output_batch_dimension, "b", d.output_feature_dimension, "f",
                     d.output_spatial_dimensions) +
         ">";
}

void require_groups(std::string_view name, const Value& lhs, const Value& rhs,
                    const ConvolutionDimensionNumbers& d, std::int64_t feature_group_count,
                    std::int64_t batch_group_count) {
  const std::int64_t input_batch = lhs.dim(d.input_batch_dimension);
  const std::int64_t input_features = lhs.dim(d.input_feature_dimension);
  const std::int64_t kernel_inputs = rhs.dim(d.kernel_input_feature_dimension);
  const std::int64_t kernel_outputs = rhs.dim(d.kernel_output_feature_dimension);
  require(feature_group_count > 0 && batch_group_count > 0 &&
              (feature_group_count == 1 || batch_group_count == 1),
          name, "group counts must be positive, and one of them 1, got ", feature_group_count,
          " and ", batch_group_count);
  require(input_batch % batch_group_count == 0 && kernel_outputs % batch_group_count == 0 &&
              kernel_outputs % feature_group_count == 0,
          name, "batch and output features must divide into groups, got ", Show(lhs), " and ",
          Show(rhs), " in ", feature_group_count, " feature and ", batch_group_count,
          " batch groups");
  require(input_features == kernel_inputs * feature_group_count, name,
          "the input must have the kernel's features times the groups, got ", Show(lhs), " and ",
          Show(rhs), " in ", feature_group_count, " groups");
}

// The convolution's window over the input's spatial dimensions.
Window spatial_window(std::string_view name, const Value& rhs, const ConvolutionWindow& window,
                      const ConvolutionDimensionNumbers& d) {
  Window out{{}, window.strides, window.lhs_dilation, window.rhs_dilation, window.padding};
  for (const std::int64_t s : d.kernel_spatial_dimensions) out.dimensions.push_back(rhs.dim(s));
  // The specification has no kernel of size 0: there would be nothing to sum.
  return require_window(name, out, static_cast<std::int64_t>(d.kernel_spatial_dimensions.size()));
}

}  // namespace

Value convolution(Value lhs, Value rhs, const ConvolutionWindow& window,
                  const ConvolutionDimensionNumbers& dimension_numbers,
                  std::int64_t feature_group_count, std::int64_t batch_group_count,
                  std::optional<DType> result_dtype, Precision precision) {
  static constexpr std::string_view kName = "stablehlo.convolution";
  const ConvolutionDimensionNumbers& d = dimension_numbers;
  require_value(kName, lhs);
  require_value(kName, rhs);
  const std::size_t num_spatial = d.input_spatial_dimensions.size();
  const auto rank = static_cast<std::int64_t>(num_spatial) + 2;
  require(lhs.dtype() == rhs.dtype() && lhs.rank() == rank && rhs.rank() == rank &&
              d.kernel_spatial_dimensions.size() == num_spatial &&
              d.output_spatial_dimensions.size() == num_spatial,
          kName, "the operands must have one dtype and rank ", rank, ", got ", Show(lhs), " and ",
          Show(rhs));
  const std::string dimension_text = dimension_numbers_text(kName, d);
  require_groups(kName, lhs, rhs, d, feature_group_count, batch_group_count);
  const Window w = spatial_window(kName, rhs, window, d);
  std::vector<bool> reversal = window.reversal;
  if (reversal.empty()) reversal.assign(num_spatial, false);
  require_size(kName, "window reversal", reversal.size(), rank - 2);
  Dims spatial;
  for (const std::int64_t s : d.input_spatial_dimensions) spatial.push_back(lhs.dim(s));
  const Dims counts = window_counts(spatial, w);
  Type result{result_dtype.value_or(lhs.dtype()), Dims(static_cast<std::size_t>(rank))};
  const auto size_of = [&](std::int64_t dimension) -> std::int64_t& {
    return result.dims[static_cast<std::size_t>(dimension)];
  };
  size_of(d.output_batch_dimension) = lhs.dim(d.input_batch_dimension) / batch_group_count;
  size_of(d.output_feature_dimension) = rhs.dim(d.kernel_output_feature_dimension);
  for (std::size_t i = 0; i < num_spatial; ++i) size_of(d.output_spatial_dimensions[i]) = counts[i];
  const std::array operands{lhs, rhs};
  return lhs.builder().op(kName, operands, result,
                          "window_strides = " + array_attribute(w.strides) +
                              ", padding = " + matrix_attribute(w.padding) +
                              ", lhs_dilation = " + array_attribute(w.base_dilations) +
                              ", rhs_dilation = " + array_attribute(w.window_dilations) +
                              ", window_reversal = " + array_attribute(reversal) +
                              ", dimension_numbers = " + dimension_text +
                              ", feature_group_count = " + integer_attribute(feature_group_count) +
                              ", batch_group_count = " + integer_attribute(batch_group_count) +
                              precision_property(wanted_precision(lhs.builder(), precision)));
}

namespace {

void require_square(std::string_view name, const Value& a) {
  require_kind(name, a, kFloatsOrComplexes);
  require(a.rank() >= 2 && a.dim(a.rank() - 1) == a.dim(a.rank() - 2), name,
          "the matrices must be square, got ", Show(a));
}

}  // namespace

Value cholesky(Value a, bool lower) {
  static constexpr std::string_view kName = "stablehlo.cholesky";
  require_square(kName, a);
  return a.builder().op(kName, {&a, 1}, a.type(), "lower = " + std::string(boolean(lower)));
}

Value triangular_solve(Value a, Value b, bool left_side, bool lower, bool unit_diagonal,
                       TransposeA transpose_a) {
  static constexpr std::string_view kName = "stablehlo.triangular_solve";
  static constexpr std::array<std::string_view, 3> kTransposes = {"NO_TRANSPOSE", "TRANSPOSE",
                                                                  "ADJOINT"};
  require_square(kName, a);
  require_value(kName, b);
  bool fits = a.dtype() == b.dtype() && a.rank() == b.rank();
  for (std::int64_t i = 0; fits && i < a.rank() - 2; ++i) fits = a.dim(i) == b.dim(i);
  fits = fits && a.dim(a.rank() - 1) == b.dim(b.rank() - (left_side ? 2 : 1));
  require(fits, kName, "b must have a's dtype and batch and fit its matrices, got ", Show(a),
          " and ", Show(b));
  std::string properties = "left_side = ";
  properties += boolean(left_side);
  properties += ", lower = ";
  properties += boolean(lower);
  properties += ", unit_diagonal = ";
  properties += boolean(unit_diagonal);
  properties += ", transpose_a = #stablehlo<transpose ";
  properties += kTransposes[static_cast<std::size_t>(transpose_a)];
  properties += '>';
  const std::array operands{a, b};
  return a.builder().op(kName, operands, b.type(), properties);
}

Value fft(Value operand, FftType fft_type, const Dims& fft_length) {
  static constexpr std::string_view kName = "stablehlo.fft";
  static constexpr std::array<std::string_view, 4> kTypes = {"FFT", "IFFT", "RFFT", "IRFFT"};
  const bool takes_real = fft_type == FftType::kRfft;
  require_kind(kName, operand, takes_real ? kFloats : kComplexes);
  const std::size_t n = fft_length.size();
  require(n >= 1 && n <= 3 && static_cast<std::int64_t>(n) <= operand.rank(), kName,
          "fft_length must have 1 to 3 elements, and no more than the operand's rank, got ",
          Show(fft_length), " for ", Show(operand));
  Type result = operand.type();
  const std::size_t first = result.dims.size() - n;
  for (std::size_t i = 0; i < n; ++i) {
    const bool is_halved = fft_type == FftType::kIrfft && i + 1 == n;
    const std::int64_t expected =
        is_halved && fft_length[i] > 0 ? fft_length[i] / 2 + 1 : fft_length[i];
    require(operand.dims()[first + i] == expected, kName, "the last sizes must be fft_length ",
            Show(fft_length), " (halved in the last for IRFFT), got ", Show(operand));
  }
  if (takes_real) {
    require(operand.dtype() == DType::kFloat32 || operand.dtype() == DType::kFloat64, kName,
            "RFFT takes f32 or f64, got ", Show(operand));
    result.dtype = base::complex_dtype(operand.dtype());
    result.dims.back() = fft_length.back() > 0 ? fft_length.back() / 2 + 1 : 0;
  } else if (fft_type == FftType::kIrfft) {
    result.dtype = base::real_dtype(operand.dtype());
    result.dims.back() = fft_length.back();
  }
  std::string properties = "fft_type = #stablehlo<fft_type ";
  properties += kTypes[static_cast<std::size_t>(fft_type)];
  properties += ">, fft_length = " + array_attribute(fft_length);
  return operand.builder().op(kName, {&operand, 1}, result, properties);
}

}  // namespace torch_xla::hlo

// Operations that move elements: their result sizes are computed here exactly as the specification
// states them. Gathers and scatters are in ops_index.cpp.
#include <algorithm>
#include <array>

#include "hlo/checks.h"
#include "hlo/partitioned.h"
#include "hlo/text.h"

namespace torch_xla::hlo {
namespace {

bool is_identity(const Dims& permutation) {
  for (std::size_t i = 0; i < permutation.size(); ++i) {
    if (permutation[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

void require_start_indices(std::string_view name, const Value& operand,
                           const Values& start_indices) {
  require_value(name, operand);
  require_size(name, "start_indices", start_indices.size(), operand.rank());
  for (const Value& index : start_indices) {
    require_kind(name, index, kIntegers);
    require_scalar(name, "a start index", index, start_indices.front().dtype());
  }
}

}  // namespace

Value broadcast_in_dim(Value operand, const Dims& result_dims, const Dims& broadcast_dimensions) {
  static constexpr std::string_view kName = "stablehlo.broadcast_in_dim";
  require_value(kName, operand);
  require_size(kName, "broadcast_dimensions", broadcast_dimensions.size(), operand.rank());
  require_dimensions(kName, "broadcast_dimensions", broadcast_dimensions,
                     static_cast<std::int64_t>(result_dims.size()));
  for (std::size_t i = 0; i < broadcast_dimensions.size(); ++i) {
    const std::int64_t size = operand.dims()[i];
    require(size == 1 || size == result_dims[static_cast<std::size_t>(broadcast_dimensions[i])],
            kName, "an operand dimension must be 1 or the result's, got ", Show(operand), " to ",
            Show(result_dims), " along ", Show(broadcast_dimensions));
  }
  if (operand.dims() == result_dims && is_identity(broadcast_dimensions)) return unchanged(operand);
  Value result =
      operand.builder().op(kName, {&operand, 1}, Type{operand.dtype(), result_dims},
                           "broadcast_dimensions = " + array_attribute(broadcast_dimensions));
  result.is_nonzero = operand.is_nonzero;
  if (operand.num_elements() > 1 && std::ranges::is_sorted(broadcast_dimensions)) {
    operand.builder().set_broadcast(result, operand, broadcast_dimensions);
  }
  return result;
}

Value reshape(Value operand, const Dims& result_dims) {
  static constexpr std::string_view kName = "stablehlo.reshape";
  require_value(kName, operand);
  for (const std::int64_t d : result_dims) {
    require(d >= 0, kName, "sizes must not be negative, got ", Show(result_dims));
  }
  require(operand.num_elements() == base::num_elements(result_dims), kName,
          "the result must have as many elements as the operand, got ", Show(operand), " to ",
          Show(result_dims));
  if (operand.dims() == result_dims) return unchanged(operand);
  Builder& builder = operand.builder();
  // The partitioner can't split a dimension by one of those that were merged into it, but the
  // first: what is taken apart again must not have been one.
  const Value* const before = builder.reshaped(operand);
  if (is_partitioned() && before != nullptr) return reshape(*before, result_dims);
  const Value result = builder.op(kName, {&operand, 1}, {operand.dtype(), result_dims});
  builder.set_reshaped(result, operand);
  return result;
}

Value transpose(Value operand, const Dims& permutation) {
  static constexpr std::string_view kName = "stablehlo.transpose";
  require_value(kName, operand);
  require_size(kName, "permutation", permutation.size(), operand.rank());
  require_dimensions(kName, "permutation", permutation, operand.rank());
  if (is_identity(permutation)) return unchanged(operand);
  Type result{operand.dtype(), {}};
  result.dims.reserve(permutation.size());
  for (const std::int64_t p : permutation) result.dims.push_back(operand.dim(p));
  Builder& builder = operand.builder();
  const Value transposed =
      builder.op(kName, {&operand, 1}, result, "permutation = " + array_attribute(permutation));
  builder.set_transposition(transposed, operand, permutation);
  return transposed;
}

Value reverse(Value operand, const Dims& dimensions) {
  static constexpr std::string_view kName = "stablehlo.reverse";
  require_value(kName, operand);
  require_dimensions(kName, "dimensions", dimensions, operand.rank());
  if (dimensions.empty()) return unchanged(operand);
  return operand.builder().op(kName, {&operand, 1}, operand.type(),
                              "dimensions = " + array_attribute(dimensions));
}

Value concatenate(const Values& inputs, std::int64_t dimension) {
  static constexpr std::string_view kName = "stablehlo.concatenate";
  require_values(kName, inputs);
  const Value& first = inputs.front();
  require_dimension(kName, "dimension", dimension, first.rank());
  Type result = first.type();
  const auto along = static_cast<std::size_t>(dimension);
  result.dims[along] = 0;
  for (const Value& input : inputs) {
    bool fits = input.dtype() == first.dtype() && input.rank() == first.rank();
    for (std::size_t i = 0; fits && i < first.dims().size(); ++i) {
      fits = i == along || input.dims()[i] == first.dims()[i];
    }
    require(fits, kName, "inputs must agree but in dimension ", dimension, ", got ", Show(first),
            " and ", Show(input));
    result.dims[along] += input.dims()[along];
  }
  if (inputs.size() == 1) return unchanged(first);
  return first.builder().op(kName, inputs, result, "dimension = " + integer_attribute(dimension));
}

namespace {

// The partitioner makes one operation of a slice of padding, whose elements it gets wrong where
// there is padding at one end and a cut at the other.
Value apart_from_padding(Value operand) {
  if (!is_partitioned() || operand.builder().definition(operand.id()).name != "stablehlo.pad") {
    return operand;
  }
  return optimization_barrier({operand})[0];
}

}  // namespace

Value slice(Value operand, const Dims& start_indices, const Dims& limit_indices,
            const Dims& strides) {
  static constexpr std::string_view kName = "stablehlo.slice";
  require_value(kName, operand);
  require_size(kName, "start_indices", start_indices.size(), operand.rank());
  require_size(kName, "limit_indices", limit_indices.size(), operand.rank());
  require_size(kName, "strides", strides.size(), operand.rank());
  Type result{operand.dtype(), {}};
  result.dims.reserve(strides.size());
  for (std::size_t i = 0; i < strides.size(); ++i) {
    const std::int64_t start = start_indices[i];
    const std::int64_t limit = limit_indices[i];
    require(start >= 0 && start <= limit && limit <= operand.dims()[i] && strides[i] > 0, kName,
            "needs 0 <= start <= limit <= size and a positive stride, got ", start, ", ", limit,
            ", ", strides[i], " in dimension ", i, " of ", Show(operand));
    result.dims.push_back((limit - start + strides[i] - 1) / strides[i]);
  }
  // A slice of the operand's own sizes is the whole of it: every stride steps over single elements.
  if (result.dims == operand.dims()) return unchanged(operand);
  Builder& builder = operand.builder();
  const Value source = apart_from_padding(operand);
  const Value slice = builder.op(kName, {&source, 1}, result,
                                 "start_indices = " + array_attribute(start_indices) +
                                     ", limit_indices = " + array_attribute(limit_indices) +
                                     ", strides = " + array_attribute(strides));
  const auto is_one = [](std::int64_t stride) { return stride == 1; };
  if (std::all_of(strides.begin(), strides.end(), is_one)) {
    builder.set_slice_starts(slice, start_indices);
  }
  return slice;
}

Value dynamic_slice(Value operand, const Values& start_indices, const Dims& slice_sizes) {
  static constexpr std::string_view kName = "stablehlo.dynamic_slice";
  require_start_indices(kName, operand, start_indices);
  require_size(kName, "slice_sizes", slice_sizes.size(), operand.rank());
  for (std::size_t i = 0; i < slice_sizes.size(); ++i) {
    require(slice_sizes[i] >= 0 && slice_sizes[i] <= operand.dims()[i], kName,
            "slice_sizes must be in [0, size], got ", Show(slice_sizes), " of ", Show(operand));
  }
  if (slice_sizes == operand.dims()) return unchanged(operand);
  Values operands{operand};
  operands.insert(operands.end(), start_indices.begin(), start_indices.end());
  return operand.builder().op(kName, operands, Type{operand.dtype(), slice_sizes},
                              "slice_sizes = " + array_attribute(slice_sizes));
}

Value dynamic_update_slice(Value operand, Value update, const Values& start_indices) {
  static constexpr std::string_view kName = "stablehlo.dynamic_update_slice";
  require_start_indices(kName, operand, start_indices);
  require_value(kName, update);
  bool fits = update.dtype() == operand.dtype() && update.rank() == operand.rank();
  for (std::size_t i = 0; fits && i < operand.dims().size(); ++i) {
    fits = update.dims()[i] <= operand.dims()[i];
  }
  require(fits, kName, "the update must be of the operand's dtype and no larger, got ",
          Show(update), " into ", Show(operand));
  if (update.dims() == operand.dims()) return unchanged(update);
  Values operands{operand, update};
  operands.insert(operands.end(), start_indices.begin(), start_indices.end());
  return operand.builder().op(kName, operands, operand.type());
}

namespace {

// Where elements are taken away the partitioner gives wrong ones: they are padded, then cut.
Value pad_then_cut(Value operand, Value padding_value, const Dims& low, const Dims& high) {
  Dims before = low;
  Dims after = high;
  for (std::int64_t& size : before) size = std::max<std::int64_t>(size, 0);
  for (std::int64_t& size : after) size = std::max<std::int64_t>(size, 0);
  const Value padded = pad(operand, padding_value, before, after);
  Dims starts(low.size());
  Dims limits = padded.dims();
  for (std::size_t i = 0; i < low.size(); ++i) {
    starts[i] = before[i] - low[i];
    limits[i] -= after[i] - high[i];
  }
  return slice(padded, starts, limits, Dims(low.size(), 1));
}

// So it does where there is padding between elements: each gets a row, which is padded at its end.
Value pad_rows(Value operand, Value padding_value, const Dims& low, Dims high,
               const Dims& interior) {
  Dims rows;
  Dims row_ends;
  Dims merged;
  for (std::size_t i = 0; i < interior.size(); ++i) {
    const std::int64_t size = operand.dims()[i];
    rows.insert(rows.end(), {size, 1});
    row_ends.insert(row_ends.end(), {0, interior[i]});
    merged.push_back(size * (1 + interior[i]));
    if (size > 0) high[i] -= interior[i];
  }
  const Value padded = pad(reshape(operand, rows), padding_value, Dims(rows.size(), 0), row_ends);
  return pad(reshape(padded, merged), padding_value, low, high);
}

// The forms that the partitioner gets wrong, by those that it does not.
Value pad_partitioned(Value operand, Value padding_value, const Dims& low, const Dims& high,
                      const Dims& interior) {
  const auto is_positive = [](std::int64_t size) { return size > 0; };
  return std::ranges::any_of(interior, is_positive)
             ? pad_rows(operand, padding_value, low, high, interior)
             : pad_then_cut(operand, padding_value, low, high);
}

// At the edges alone, without a cut.
bool is_plain(const Dims& low, const Dims& high, const Dims& interior) {
  const auto is_negative = [](std::int64_t size) { return size < 0; };
  const auto is_zero = [](std::int64_t size) { return size == 0; };
  return std::ranges::none_of(low, is_negative) && std::ranges::none_of(high, is_negative) &&
         std::ranges::all_of(interior, is_zero);
}

}  // namespace

Value pad(Value operand, Value padding_value, const Dims& edge_padding_low,
          const Dims& edge_padding_high, const Dims& interior_padding) {
  static constexpr std::string_view kName = "stablehlo.pad";
  require_value(kName, operand);
  require_scalar(kName, "padding_value", padding_value, operand.dtype());
  require_size(kName, "edge_padding_low", edge_padding_low.size(), operand.rank());
  require_size(kName, "edge_padding_high", edge_padding_high.size(), operand.rank());
  const Dims interior =
      interior_padding.empty() ? Dims(operand.dims().size(), 0) : interior_padding;
  require_size(kName, "interior_padding", interior.size(), operand.rank());
  Type result = operand.type();
  bool is_padded = false;
  for (std::size_t i = 0; i < interior.size(); ++i) {
    const std::int64_t size = operand.dims()[i];
    require(interior[i] >= 0, kName, "interior_padding must not be negative, got ", Show(interior));
    result.dims[i] =
        edge_padding_low[i] + edge_padding_high[i] + size + (size > 0 ? size - 1 : 0) * interior[i];
    require(result.dims[i] >= 0, kName, "takes away more than there is in dimension ", i, " of ",
            Show(operand), " by low ", Show(edge_padding_low), ", high ", Show(edge_padding_high));
    is_padded = is_padded || edge_padding_low[i] != 0 || edge_padding_high[i] != 0 ||
                result.dims[i] != size;
  }
  if (!is_padded) return unchanged(operand);
  if (is_partitioned() && !is_plain(edge_padding_low, edge_padding_high, interior)) {
    return pad_partitioned(operand, padding_value, edge_padding_low, edge_padding_high, interior);
  }
  const std::array operands{operand, padding_value};
  return operand.builder().op(kName, operands, result,
                              "edge_padding_low = " + array_attribute(edge_padding_low) +
                                  ", edge_padding_high = " + array_attribute(edge_padding_high) +
                                  ", interior_padding = " + array_attribute(interior));
}

}  // namespace torch_xla::hlo

// Gather and scatter. Their dimension numbers are checked in full, since the plugin reports a
// mistake in them far from the lowering that made it.
#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

#include "hlo/checks.h"
#include "hlo/ops.h"
#include "hlo/partitioned.h"
#include "hlo/text.h"

namespace torch_xla::hlo {
namespace {

// The sizes of `indices` without the dimension that holds index vectors.
Dims batch_sizes(const Dims& indices, std::int64_t index_vector_dim) {
  Dims sizes;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (static_cast<std::int64_t>(i) != index_vector_dim) sizes.push_back(indices[i]);
  }
  return sizes;
}

// What gather and scatter have in common: indices into `operand`, with batching dimensions.
struct Indexing {
  std::string_view name;
  const Dims& operand_dims;
  const Value& indices;
  const Dims& removed_dims;  // collapsed or inserted
  const Dims& operand_batching_dims;
  const Dims& indices_batching_dims;
  const Dims& index_map;
  std::int64_t index_vector_dim;
};

void require_indexing(const Indexing& x) {
  const auto rank = static_cast<std::int64_t>(x.operand_dims.size());
  require_kind(x.name, x.indices, kIntegers);
  require(x.index_vector_dim >= 0 && x.index_vector_dim <= x.indices.rank(), x.name,
          "index_vector_dim must be in [0, ", x.indices.rank(), "], got ", x.index_vector_dim);
  require_dimensions(x.name, "collapsed or inserted dimensions", x.removed_dims, rank);
  require_sorted(x.name, "collapsed or inserted dimensions", x.removed_dims);
  require_dimensions(x.name, "operand batching dimensions", x.operand_batching_dims, rank);
  require_sorted(x.name, "operand batching dimensions", x.operand_batching_dims);
  require_dimensions(x.name, "index batching dimensions", x.indices_batching_dims,
                     x.indices.rank());
  require_dimensions(x.name, "the index map", x.index_map, rank);
  const std::int64_t vector_size =
      x.index_vector_dim < x.indices.rank() ? x.indices.dim(x.index_vector_dim) : 1;
  require_size(x.name, "the index map", x.index_map.size(), vector_size);
  require_size(x.name, "index batching dimensions", x.indices_batching_dims.size(),
               static_cast<std::int64_t>(x.operand_batching_dims.size()));
  for (std::size_t i = 0; i < x.operand_batching_dims.size(); ++i) {
    const std::int64_t d = x.operand_batching_dims[i];
    const std::int64_t b = x.indices_batching_dims[i];
    require(!contains(x.removed_dims, d) && !contains(x.index_map, d), x.name,
            "an operand batching dimension cannot be collapsed, inserted or indexed, got ", d);
    require(b != x.index_vector_dim, x.name, "index_vector_dim cannot be a batching dimension");
    require(x.operand_dims[static_cast<std::size_t>(d)] == x.indices.dim(b), x.name,
            "batching dimensions must have equal sizes, got ", Show(x.operand_dims), " and ",
            Show(x.indices), " in ", d, " and ", b);
  }
}

std::string dimension_property(std::string_view name, const Dims& dims) {
  if (dims.empty()) return "";
  return std::string(name) + " = " + list(dims) + ", ";
}

std::string index_vector_property(std::int64_t index_vector_dim) {
  std::string out = "index_vector_dim = ";
  append_integer(out, index_vector_dim);
  return out;
}

}  // namespace

Value gather(Value operand, Value start_indices, const GatherDimensionNumbers& dimension_numbers,
             const Dims& slice_sizes, bool indices_are_sorted) {
  static constexpr std::string_view kName = "stablehlo.gather";
  const GatherDimensionNumbers& d = dimension_numbers;
  require_value(kName, operand);
  require_value(kName, start_indices);
  require_indexing({kName, operand.dims(), start_indices, d.collapsed_slice_dims,
                    d.operand_batching_dims, d.start_indices_batching_dims, d.start_index_map,
                    d.index_vector_dim});
  require_size(kName, "slice_sizes", slice_sizes.size(), operand.rank());
  // Without indices nothing is read, be there anything or not.
  Dims slices = slice_sizes;
  if (start_indices.num_elements() == 0) {
    for (const Dims* dimensions : {&d.operand_batching_dims, &d.collapsed_slice_dims}) {
      for (const std::int64_t dimension : *dimensions) {
        std::int64_t& size = slices[static_cast<std::size_t>(dimension)];
        size = std::min(size, operand.dim(dimension));
      }
    }
  }
  Dims offset_sizes;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    const auto dimension = static_cast<std::int64_t>(i);
    require(slices[i] >= 0 && slices[i] <= operand.dims()[i], kName,
            "slice_sizes must be in [0, size], got ", Show(slices), " of ", Show(operand));
    if (contains(d.collapsed_slice_dims, dimension) ||
        contains(d.operand_batching_dims, dimension)) {
      require(slices[i] <= 1, kName, "a collapsed or batching dimension has slice size 1, got ",
              Show(slices));
    } else {
      offset_sizes.push_back(slices[i]);
    }
  }
  const Dims batch = batch_sizes(start_indices.dims(), d.index_vector_dim);
  const std::size_t rank = batch.size() + offset_sizes.size();
  require_size(kName, "offset_dims", d.offset_dims.size(),
               static_cast<std::int64_t>(offset_sizes.size()));
  require_dimensions(kName, "offset_dims", d.offset_dims, static_cast<std::int64_t>(rank));
  require_sorted(kName, "offset_dims", d.offset_dims);
  Type result{operand.dtype(), Dims(rank)};
  auto next_batch = batch.begin();
  auto next_offset = offset_sizes.begin();
  for (std::size_t i = 0; i < rank; ++i) {
    const bool is_offset = contains(d.offset_dims, static_cast<std::int64_t>(i));
    result.dims[i] = is_offset ? *next_offset++ : *next_batch++;
  }
  std::string properties = "dimension_numbers = #stablehlo.gather<";
  properties += dimension_property("offset_dims", d.offset_dims);
  properties += dimension_property("collapsed_slice_dims", d.collapsed_slice_dims);
  properties += dimension_property("operand_batching_dims", d.operand_batching_dims);
  properties += dimension_property("start_indices_batching_dims", d.start_indices_batching_dims);
  properties += dimension_property("start_index_map", d.start_index_map);
  properties += index_vector_property(d.index_vector_dim);
  properties += ">, slice_sizes = " + array_attribute(slices) + ", indices_are_sorted = ";
  properties += boolean(indices_are_sorted);
  const std::array operands{operand, start_indices};
  return operand.builder().op(kName, operands, result, properties);
}

namespace {

void require_updates(std::string_view name, const Value& input, const Value& indices,
                     const Value& update, const ScatterDimensionNumbers& d) {
  const Dims batch = batch_sizes(indices.dims(), d.index_vector_dim);
  Dims window;
  for (std::size_t i = 0; i < input.dims().size(); ++i) {
    const auto dimension = static_cast<std::int64_t>(i);
    if (contains(d.inserted_window_dims, dimension)) continue;
    if (contains(d.input_batching_dims, dimension)) continue;
    window.push_back(input.dims()[i]);
  }
  require_dimensions(name, "update_window_dims", d.update_window_dims, update.rank());
  require_sorted(name, "update_window_dims", d.update_window_dims);
  require_size(name, "update_window_dims", d.update_window_dims.size(),
               static_cast<std::int64_t>(window.size()));
  require(update.dtype() == input.dtype() && update.dims().size() == batch.size() + window.size(),
          name, "the update must be of the input's dtype and of rank ",
          batch.size() + window.size(), ", got ", Show(update), " into ", Show(input));
  auto next_batch = batch.begin();
  auto next_window = window.begin();
  for (std::size_t i = 0; i < update.dims().size(); ++i) {
    const bool is_window = contains(d.update_window_dims, static_cast<std::int64_t>(i));
    const bool fits =
        is_window ? update.dims()[i] <= *next_window++ : update.dims()[i] == *next_batch++;
    require(fits, name, "dimension ", i, " of the update ", Show(update),
            " does not fit the input ", Show(input), " and the indices ", Show(indices));
  }
}

std::string scatter_properties(const ScatterDimensionNumbers& d, bool indices_are_sorted,
                               bool unique_indices) {
  std::string properties = "scatter_dimension_numbers = #stablehlo.scatter<";
  properties += dimension_property("update_window_dims", d.update_window_dims);
  properties += dimension_property("inserted_window_dims", d.inserted_window_dims);
  properties += dimension_property("input_batching_dims", d.input_batching_dims);
  properties +=
      dimension_property("scatter_indices_batching_dims", d.scatter_indices_batching_dims);
  properties += dimension_property("scatter_dims_to_operand_dims", d.scatter_dims_to_operand_dims);
  properties += index_vector_property(d.index_vector_dim);
  properties += ">, indices_are_sorted = ";
  properties += boolean(indices_are_sorted);
  properties += ", unique_indices = ";
  properties += boolean(unique_indices);
  return properties;
}

// XLA's partitioner fills up indices that have no equal parts with numbers of 32 bits, and ends the
// process where the indices have others.
Value partitioner_indices(Value indices, const Value& input) {
  if (!is_partitioned() || indices.dtype() != DType::kInt64) return indices;
  const auto is_wide = [](std::int64_t size) {
    return size > std::numeric_limits<std::int32_t>::max();
  };
  return std::ranges::any_of(input.dims(), is_wide) ? indices : convert(indices, DType::kInt32);
}

// Where a device writes one index, XLA makes of a scatter a write that moves an index outside to
// the next place inside: a device that has a part of the input would write what belongs to another
// one.
bool is_one_write(const Value& indices, std::int64_t index_vector_dim) {
  std::int64_t count = 1;
  for (const std::int64_t size : batch_sizes(indices.dims(), index_vector_dim)) count *= size;
  return is_partitioned() && count <= num_partitions();
}

}  // namespace

Values scatter(const Values& inputs, Value scatter_indices, const Values& updates,
               const ScatterDimensionNumbers& dimension_numbers, const Region& update_computation,
               bool indices_are_sorted, bool unique_indices) {
  static constexpr std::string_view kName = "stablehlo.scatter";
  const ScatterDimensionNumbers& d = dimension_numbers;
  require_values(kName, inputs);
  require_values(kName, updates);
  require_value(kName, scatter_indices);
  require(inputs.size() == updates.size(), kName, "needs one update for each input, got ",
          updates.size(), " for ", inputs.size());
  require_indexing({kName, inputs[0].dims(), scatter_indices, d.inserted_window_dims,
                    d.input_batching_dims, d.scatter_indices_batching_dims,
                    d.scatter_dims_to_operand_dims, d.index_vector_dim});
  std::vector<Type> elements;
  std::vector<Type> results;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    require(inputs[i].dims() == inputs[0].dims() && updates[i].dims() == updates[0].dims(), kName,
            "all inputs, and all updates, must have the same sizes, got ", Show(inputs[i]), " and ",
            Show(inputs[0]));
    for (std::size_t j = 0; j < i; ++j) {
      require(inputs[i].id() != inputs[j].id(), kName, "the inputs must be different values, got ",
              Show(inputs[i]), " twice");
    }
    require_updates(kName, inputs[i], scatter_indices, updates[i], d);
    elements.push_back({inputs[i].dtype(), {}});
    results.push_back(inputs[i].type());
  }
  std::vector<Type> arguments = elements;
  arguments.insert(arguments.end(), elements.begin(), elements.end());
  Builder& builder = inputs[0].builder();
  const Builder::RegionText region = builder.region(arguments, update_computation);
  require_yields(kName, region.yielded, elements);
  const bool has_whole_inputs = is_one_write(scatter_indices, d.index_vector_dim);
  Values operands = inputs;
  if (has_whole_inputs) {
    for (Value& input : operands) input = whole_along(input, d.scatter_dims_to_operand_dims);
  }
  Value indices = partitioner_indices(scatter_indices, inputs[0]);
  if (has_whole_inputs) {
    // Nor are they filled up to equal parts.
    Dims all(indices.dims().size());
    std::iota(all.begin(), all.end(), 0);
    indices = whole_along(indices, all);
  }
  operands.push_back(indices);
  operands.insert(operands.end(), updates.begin(), updates.end());
  Values written =
      builder.op(kName, operands, results,
                 scatter_properties(d, indices_are_sorted, unique_indices), {&region.text, 1});
  if (has_whole_inputs) {
    for (Value& value : written) value = whole_along(value, d.scatter_dims_to_operand_dims);
  }
  return written;
}

Value scatter(Value input, Value scatter_indices, Value update,
              const ScatterDimensionNumbers& dimension_numbers,
              const BinaryRegion& update_computation, bool indices_are_sorted,
              bool unique_indices) {
  const Region body = [&](std::span<const Value> x) {
    return Values{update_computation(x[0], x[1])};
  };
  return scatter(Values{input}, scatter_indices, Values{update}, dimension_numbers, body,
                 indices_are_sorted, unique_indices)[0];
}

}  // namespace torch_xla::hlo

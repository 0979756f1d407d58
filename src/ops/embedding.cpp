// Embeddings: rows of a table by index, sums, means and maxima of bags of rows, and the gradients
// of both. Gradients are scatters of whole rows. Rows of the padding index get no gradient: their
// index is moved outside the table, where a scatter writes nothing.
#include <optional>
#include <tuple>

#include "base/error.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/views.h"

namespace torch_xla::ops {
namespace {

using base::check;

Value flattened(Value value) { return hlo::reshape(value, {value.num_elements()}); }

// One number for each row, repeated along the row.
Value along_rows(Value numbers, Value rows) {
  return hlo::broadcast_in_dim(convert(numbers, rows.dtype()), rows.dims(), {0});
}

// The indices with those equal to `padding_idx` moved to `outside`; a negative one pads nothing.
Value without_padding(Value targets, Value indices, std::int64_t padding_idx,
                      std::int64_t outside) {
  if (padding_idx < 0) return targets;
  const Value is_padding = hlo::eq(indices, full_like(indices, padding_idx));
  return hlo::select(is_padding, full_like(targets, outside), targets);
}

Value zeros(Value like, const Dims& dims, DType dtype) {
  return hlo::full(like.builder(), Shape{dtype, dims}, 0);
}

// How often each number below `size` occurs.
Value occurrences(Value indices, std::int64_t size) {
  const Value ones = hlo::full(indices.builder(), Shape{DType::kInt32, indices.dims()}, 1);
  return scatter_elements(zeros(indices, {size}, DType::kInt32), indices, ones, hlo::add);
}

// The sum over the rows of each index, in a table of `num_rows`.
Value add_rows(Value rows, Value indices, std::int64_t num_rows) {
  const Value table = zeros(rows, {num_rows, rows.dim(1)}, rows.dtype());
  return scatter_slices(table, 0, indices, rows, hlo::add);
}

// Rows that are to be added to a table, divided by how often their index occurs.
Value scaled_by_frequency(Value rows, Value indices, std::int64_t num_rows) {
  const Value counts = gather_elements(occurrences(indices, num_rows), indices);
  return hlo::divide(rows, along_rows(counts, rows));
}

Value embedding(Value weight, Value indices) {
  check(weight.rank() == 2, "'weight' must be 2-D");
  check_long_or_int(indices, 1, "indices", "embedding");
  return take_slices(weight, 0, indices);
}

Value embedding_dense_backward(Value grad, Value indices, std::int64_t num_weights,
                               std::int64_t padding_idx, bool scale_grad_by_freq) {
  check_long_or_int(indices, 2, "indices", "embedding_backward");
  const std::int64_t count = indices.num_elements();
  const std::int64_t width = grad.dims().back();
  check(grad.num_elements() == count * width, "shape '[", count, ", ", width,
        "]' is invalid for input of size ", grad.num_elements());
  const Value places = flattened(indices);
  Value rows = convert(hlo::reshape(grad, {count, width}), accumulate_dtype(grad.dtype()));
  if (scale_grad_by_freq) rows = scaled_by_frequency(rows, places, num_weights);
  const Value targets = without_padding(places, places, padding_idx, num_weights);
  return convert(add_rows(rows, targets, num_weights), grad.dtype());
}

// The rows at the indices, scaled down where their norm is above the maximum. An index that occurs
// twice writes the same row twice.
Value embedding_renorm(Value self, Value indices, double max_norm, double norm_type) {
  check(self.rank() == 2, "Expected 2-dimensional tensor, but got ", self.rank(),
        "-dimensional tensor for argument #1 'self' (while checking arguments for "
        "embedding_renorm_)");
  check_long_or_int(indices, 2, "indices", "embedding_renorm_");
  const Value places = flattened(indices);
  const DType dtype = accumulate_dtype(self.dtype());
  const Value rows = convert(take_slices(self, 0, places), dtype);
  const Value norms = vector_norm(rows, norm_type, {1});
  const Value limit = full_like(norms, max_norm);
  const Value scales = hlo::divide(limit, hlo::add(norms, full_like(norms, 1e-7)));
  const Value factors = hlo::select(hlo::gt(norms, limit), scales, full_like(norms, 1.0));
  const Value scaled = hlo::multiply(rows, along_rows(factors, rows));
  return scatter_slices(self, 0, places, convert(scaled, self.dtype()), replace);
}

enum BagMode : std::int64_t { kSum = 0, kMean = 1, kMax = 2 };

using BagResults = std::tuple<Value, Value, Value, Value>;

// The bag that each index belongs to: the last one that starts at it or before.
Value bags_of(Value indices, Value offsets, std::int64_t num_bags) {
  const Dims dims{indices.dim(0), num_bags};
  const Value position = hlo::iota(indices.builder(), Shape{offsets.dtype(), dims}, 0);
  const Value starts = hlo::broadcast_in_dim(slice_dim(offsets, 0, 0, num_bags), dims, {1});
  const Value started = reduce_sum(convert(hlo::le(starts, position), indices.dtype()), {1});
  return hlo::subtract(started, full_like(started, 1));
}

// Whether each index is the first of its bag, those at the padding index left out.
Value are_first(Value indices, Value bags, Value targets, std::int64_t num_bags) {
  const std::int64_t none = indices.dim(0);
  const Value position = hlo::iota(indices.builder(), indices.type(), 0);
  const Value first =
      scatter_slices(hlo::full(indices.builder(), Shape{indices.dtype(), {num_bags}}, none), 0,
                     targets, position, hlo::minimum);
  return hlo::eq(take_slices(first, 0, bags), position);
}

// The greatest of each bag by column (zero where a bag is empty), and the index of its row. What is
// not a number stays if it comes first and is passed over elsewhere, as PyTorch's comparisons have
// it.
std::pair<Value, Value> greatest_of_bags(Value rows, Value indices, Value bags, Value targets,
                                         Value sizes) {
  hlo::Builder& builder = rows.builder();
  const Dims dims{sizes.dim(0), rows.dim(1)};
  const Value least = broadcast_to(lowest(builder, rows.dtype()), dims);
  const Value is_first =
      hlo::broadcast_in_dim(are_first(indices, bags, targets, dims[0]), rows.dims(), {0});
  const Value is_nan = hlo::ne(rows, rows);
  rows = hlo::select(hlo::and_(is_nan, hlo::not_(is_first)),
                     broadcast_to(lowest(builder, rows.dtype()), rows.dims()), rows);
  const Value greatest = scatter_slices(least, 0, targets, rows, greater_of);
  const Value is_greatest =
      hlo::or_(hlo::eq(take_slices(greatest, 0, bags), rows), hlo::and_(is_nan, is_first));
  const Value position = hlo::iota(builder, Shape{indices.dtype(), rows.dims()}, 0);
  const std::int64_t none = indices.dim(0);
  const Value candidates = hlo::select(is_greatest, position, full_like(position, none));
  const Value no_position = hlo::full(builder, Shape{indices.dtype(), dims}, none);
  const Value first = scatter_slices(no_position, 0, targets, candidates, hlo::minimum);
  const Value chosen = gather_elements(indices, first);
  const Value is_empty = hlo::broadcast_in_dim(hlo::eq(sizes, full_like(sizes, 0)), dims, {0});
  return {hlo::select(is_empty, full_like(greatest, 0), greatest),
          hlo::select(is_empty, full_like(chosen, 0), chosen)};
}

BagResults embedding_bag(Value weight, Value indices, Value offsets, std::int64_t mode,
                         const std::optional<Value>& per_sample_weights, bool include_last_offset,
                         std::int64_t padding_idx) {
  check(weight.rank() == 2, "'weight' must be 2-D");
  check_long_or_int(indices, 1, "indices", "embedding_bag");
  check_long_or_int(offsets, 1, "offsets", "embedding_bag");
  const DType index_dtype = base::promote_types(indices.dtype(), offsets.dtype());
  indices = convert(indices, index_dtype);
  offsets = convert(offsets, index_dtype);
  check(!include_last_offset || offsets.dim(0) >= 1,
        "include_last_offset: number of offset should be at least 1");
  const std::int64_t num_bags = offsets.dim(0) - (include_last_offset ? 1 : 0);
  const Value bags = bags_of(indices, offsets, num_bags);
  const Value targets = without_padding(bags, indices, padding_idx, num_bags);
  const Value sizes = convert(occurrences(targets, num_bags), index_dtype);
  const DType dtype = accumulate_dtype(weight.dtype());
  Value rows = convert(take_slices(weight, 0, indices), dtype);
  if (mode == kMax) {
    const auto [greatest, chosen] = greatest_of_bags(rows, indices, bags, targets, sizes);
    return {convert(greatest, weight.dtype()), bags, sizes, chosen};
  }
  if (per_sample_weights.has_value()) {
    rows = hlo::multiply(rows, along_rows(*per_sample_weights, rows));
  }
  Value sums = add_rows(rows, targets, num_bags);
  if (mode == kMean) {
    sums = hlo::divide(sums, along_rows(hlo::maximum(sizes, full_like(sizes, 1)), sums));
  }
  return {convert(sums, weight.dtype()), bags, sizes, sizes};
}

// Each column of a bag's gradient goes to the row that had its maximum.
Value max_bags_gradient(Value grad, Value bag_size, Value maximum_indices,
                        std::int64_t num_weights) {
  const std::int64_t width = grad.dim(1);
  const Value column = hlo::iota(grad.builder(), maximum_indices.type(), 1);
  const Value place =
      hlo::add(hlo::multiply(maximum_indices, full_like(maximum_indices, width)), column);
  const Value is_empty =
      hlo::broadcast_in_dim(hlo::eq(bag_size, full_like(bag_size, 0)), grad.dims(), {0});
  const Value target = hlo::select(is_empty, full_like(place, num_weights * width), place);
  const Value flat = zeros(grad, {num_weights * width}, grad.dtype());
  return hlo::reshape(scatter_elements(flat, flattened(target), flattened(grad), hlo::add),
                      {num_weights, width});
}

Value embedding_bag_gradient(Value grad, Value indices, Value offset2bag, Value bag_size,
                             Value maximum_indices, std::int64_t num_weights,
                             bool scale_grad_by_freq, std::int64_t mode,
                             const std::optional<Value>& per_sample_weights,
                             std::int64_t padding_idx) {
  const Value wide = convert(grad, accumulate_dtype(grad.dtype()));
  if (mode == kMax) {
    return convert(max_bags_gradient(wide, bag_size, maximum_indices, num_weights), grad.dtype());
  }
  Value rows = take_slices(wide, 0, offset2bag);
  if (mode == kMean) {
    const Value sizes = gather_elements(hlo::maximum(bag_size, full_like(bag_size, 1)), offset2bag);
    rows = hlo::divide(rows, along_rows(sizes, rows));
  }
  if (per_sample_weights.has_value()) {
    rows = hlo::multiply(rows, along_rows(*per_sample_weights, rows));
  }
  if (scale_grad_by_freq) rows = scaled_by_frequency(rows, indices, num_weights);
  const Value targets = without_padding(indices, indices, padding_idx, num_weights);
  return convert(add_rows(rows, targets, num_weights), grad.dtype());
}

Value sample_weights_gradient(Value grad, Value weight, Value indices, Value offset2bag,
                              std::int64_t padding_idx) {
  const DType dtype = accumulate_dtype(grad.dtype());
  const Value products = hlo::multiply(convert(take_slices(grad, 0, offset2bag), dtype),
                                       convert(take_slices(weight, 0, indices), dtype));
  Value sums = reduce_sum(products, {1});
  if (padding_idx >= 0) {
    const Value is_padding = hlo::eq(indices, full_like(indices, padding_idx));
    sums = hlo::select(is_padding, full_like(sums, 0), sums);
  }
  return convert(sums, grad.dtype());
}

void register_bags(Registry& m) {
  m.impl({"_embedding_bag", "_embedding_bag_forward_only"},
         [](Value weight, Value indices, Value offsets, bool, std::int64_t mode, bool,
            std::optional<Value> per_sample_weights, bool include_last_offset,
            std::int64_t padding_idx) {
           return embedding_bag(weight, indices, offsets, mode, per_sample_weights,
                                include_last_offset, padding_idx);
         });
  m.impl(
      "_embedding_bag_backward",
      [](Value grad, Value indices, Value, Value offset2bag, Value bag_size, Value maximum_indices,
         std::int64_t num_weights, bool scale_grad_by_freq, std::int64_t mode, bool sparse,
         std::optional<Value> per_sample_weights, std::int64_t padding_idx) {
        if (sparse) {
          base::fail(base::ErrorKind::kUnimplemented,
                     "embedding_bag: sparse gradients are not supported on xla");
        }
        return embedding_bag_gradient(grad, indices, offset2bag, bag_size, maximum_indices,
                                      num_weights, scale_grad_by_freq, mode, per_sample_weights,
                                      padding_idx);
      });
  m.impl("_embedding_bag_dense_backward",
         [](Value grad, Value indices, Value offset2bag, Value bag_size, Value maximum_indices,
            std::int64_t num_weights, bool scale_grad_by_freq, std::int64_t mode,
            std::optional<Value> per_sample_weights, std::int64_t padding_idx) {
           return embedding_bag_gradient(grad, indices, offset2bag, bag_size, maximum_indices,
                                         num_weights, scale_grad_by_freq, mode, per_sample_weights,
                                         padding_idx);
         });
  m.impl("_embedding_bag_per_sample_weights_backward",
         [](Value grad, Value weight, Value indices, Value, Value offset2bag, std::int64_t,
            std::int64_t padding_idx) {
           return sample_weights_gradient(grad, weight, indices, offset2bag, padding_idx);
         });
}

}  // namespace

void register_embedding(Registry& m) {
  m.impl("embedding", [](Value weight, Value indices, std::int64_t, bool, bool) {
    return embedding(weight, indices);
  });
  m.impl("embedding_dense_backward", [](Value grad_output, Value indices, std::int64_t num_weights,
                                        std::int64_t padding_idx, bool scale_grad_by_freq) {
    return embedding_dense_backward(grad_output, indices, num_weights, padding_idx,
                                    scale_grad_by_freq);
  });
  m.impl("embedding_renorm", [](Value self, Value indices, double max_norm, double norm_type) {
    return embedding_renorm(self, indices, max_norm, norm_type);
  });
  register_bags(m);
}

}  // namespace torch_xla::ops

// segment_reduce and its gradient: reductions over consecutive runs of a dimension whose lengths or
// offsets are data. Each element finds the run that it is in, then runs are scattered into.
#include <limits>
#include <numeric>
#include <optional>
#include <string>

#include "base/error.h"
#include "ops/expression.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/scan.h"
#include "ops/views.h"

namespace torch_xla::ops {
namespace {

using base::check;
using MaybeValue = std::optional<Value>;
using MaybeScalar = std::optional<Scalar>;

enum class Reduction : std::uint8_t { kSum, kMean, kMax, kMin, kProd };

Reduction reduction_of(const std::string& name) {
  if (name == "sum") return Reduction::kSum;
  if (name == "mean") return Reduction::kMean;
  if (name == "max" || name == "amax") return Reduction::kMax;
  if (name == "min" || name == "amin") return Reduction::kMin;
  check(name == "prod", "reduce argument must be either sum, prod, mean, amax or amin, got ", name);
  return Reduction::kProd;
}

Scalar identity(Reduction reduction) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  switch (reduction) {
    case Reduction::kMax: return -inf;
    case Reduction::kMin: return inf;
    case Reduction::kProd: return 1;
    default: return 0;
  }
}

hlo::BinaryRegion combination(Reduction reduction) {
  switch (reduction) {
    case Reduction::kMax: return greater_of;
    case Reduction::kMin: return lesser_of;
    case Reduction::kProd: return hlo::multiply;
    default: return hlo::add;
  }
}

Dims range(std::int64_t first, std::int64_t end) {
  Dims out(static_cast<std::size_t>(end - first));
  std::iota(out.begin(), out.end(), first);
  return out;
}

// The runs along dimension `axis` of data; dimensions before it have runs of their own.
struct Segments {
  std::int64_t axis;
  Dims result_dims;
  Dims data_dims;
  Value lengths;  // of each run
  Value run_of;   // of each element: the number of its run, or of none the number of runs

  Segments(Value data, const MaybeValue& lengths_arg, const MaybeValue& offsets,
           std::int64_t axis_arg)
      : axis(wrap_dim(axis_arg, data.rank())), data_dims(data.dims()) {
    check(lengths_arg.has_value() || offsets.has_value(),
          "segment_reduce(): Either lengths or offsets must be defined.");
    check_shape(data, offsets.has_value() ? *offsets : *lengths_arg,
                offsets.has_value() ? "offsets" : "lengths");
    Value starts;
    Value ends;
    if (offsets.has_value()) {
      const std::int64_t count = offsets->dim(axis);
      starts = slice_dim(*offsets, axis, 0, count - 1);
      ends = slice_dim(*offsets, axis, 1, count);
      lengths = ends - starts;
    } else {
      lengths = *lengths_arg;
      ends = running_sum(lengths);
      starts = ends - lengths;
    }
    result_dims = with_dim(data_dims, axis, lengths.dim(axis));
    find_runs(starts, ends);
  }

  std::int64_t count() const { return lengths.dim(axis); }

  // Updates in the shape of the data combined into `start`, one element for each run.
  Value reduce(Value start, Value updates, const hlo::BinaryRegion& combine) const {
    if (updates.num_elements() == 0 || start.num_elements() == 0) return start;
    const auto rank = static_cast<std::int64_t>(data_dims.size());
    hlo::ScatterDimensionNumbers numbers;
    numbers.update_window_dims = range(axis + 1, rank);
    numbers.inserted_window_dims = {axis};
    numbers.input_batching_dims = range(0, axis);
    numbers.scatter_indices_batching_dims = range(0, axis);
    numbers.scatter_dims_to_operand_dims = {axis};
    numbers.index_vector_dim = axis + 1;
    return hlo::scatter(start, run_of, updates, numbers, combine);
  }

  Value sum(Value updates) const {
    const Value zero = scalar(updates.builder(), updates.dtype(), 0);
    return reduce(broadcast_to(zero, result_dims), updates, hlo::add);
  }

  // Each element's run's value; zero for elements of no run.
  Value spread(Value runs) const {
    const Value zero = hlo::full(runs.builder(), Shape{runs.dtype(), data_dims}, 0);
    if (zero.num_elements() == 0 || runs.num_elements() == 0) return zero;
    const auto rank = static_cast<std::int64_t>(data_dims.size());
    hlo::GatherDimensionNumbers numbers;
    numbers.offset_dims = range(axis + 1, rank);
    numbers.collapsed_slice_dims = {axis};
    numbers.operand_batching_dims = range(0, axis);
    numbers.start_indices_batching_dims = range(0, axis);
    numbers.start_index_map = {axis};
    numbers.index_vector_dim = axis + 1;
    Dims sizes(data_dims.size(), 1);
    for (std::int64_t d = axis + 1; d < rank; ++d) {
      sizes[static_cast<std::size_t>(d)] = data_dims[static_cast<std::size_t>(d)];
    }
    const Value values = hlo::gather(runs, run_of, numbers, sizes);
    const Value is_inside = less(run_of, static_cast<double>(count()));
    return hlo::select(hlo::broadcast_in_dim(is_inside, data_dims, range(0, axis + 1)), values,
                       zero);
  }

  // The lengths in the result's shape.
  Value length_of_results(DType dtype) const {
    return hlo::broadcast_in_dim(convert(lengths, dtype), result_dims, range(0, axis + 1));
  }

 private:
  void check_shape(Value data, Value runs, const char* name) const {
    check(runs.rank() - 1 == axis, "segment_reduce(): Expected axis to be the last dimension of ",
          name, " but got ", axis, ".");
    for (std::int64_t d = 0; d < axis; ++d) {
      check(runs.dim(d) == data.dim(d), "segment_reduce(): Expected data and ", name,
            " to have the same size along dimension ", d);
    }
  }

  Value running_sum(Value values) const {
    const Value zero = scalar(values.builder(), values.dtype(), 0);
    return scan({values}, {zero}, axis,
                [](std::span<const Value> v) { return hlo::Values{hlo::add(v[0], v[1])}; })[0];
  }

  // The number of runs that end before or at an element; runs follow one another.
  void find_runs(Value starts, Value ends) {
    Dims dims(data_dims.begin(), data_dims.begin() + axis + 1);
    Dims pairs = dims;
    pairs.push_back(count());
    Dims run_places = range(0, axis);
    run_places.push_back(axis + 1);
    const Value place = hlo::iota(ends.builder(), Shape{ends.dtype(), pairs}, axis);
    const Value ended = hlo::le(hlo::broadcast_in_dim(ends, pairs, run_places), place);
    run_of = reduce_sum(convert(ended, DType::kInt64), {axis + 1});
    if (count() == 0) return;
    const Value first = remove_dim(slice_dim(starts, axis, 0, 1), axis);
    const Value is_before = hlo::lt(hlo::iota(ends.builder(), Shape{ends.dtype(), dims}, axis),
                                    hlo::broadcast_in_dim(first, dims, range(0, axis)));
    run_of = where(is_before, static_cast<double>(count()), run_of);
  }
};

Value segment_reduce(Value data, const std::string& reduce, const MaybeValue& lengths,
                     const MaybeValue& indices, const MaybeValue& offsets, std::int64_t axis,
                     const MaybeScalar& initial) {
  check(!indices.has_value(), "segment_reduce(): indices based reduction is not supported yet.");
  check_implemented(base::is_floating(data.dtype()), "_segment_reduce_cpu", data.dtype());
  const Reduction reduction = reduction_of(reduce);
  const Segments segments(data, lengths, offsets, axis);
  hlo::Builder& builder = data.builder();
  const Value x = convert(data, accumulate_dtype(data.dtype()));
  const Value start =
      full(builder, Shape{x.dtype(), segments.result_dims}, initial.value_or(identity(reduction)));
  Value out = segments.reduce(start, x, combination(reduction));
  if (reduction == Reduction::kMean) {
    const Value length = segments.length_of_results(x.dtype());
    const Value of_none =
        full_like(out, initial.value_or(std::numeric_limits<double>::quiet_NaN()));
    out = where(greater(length, 0.0), out / length, of_none);
  }
  return convert(out, data.dtype());
}

// What a product changes by with each element: the product of the others. Where the element is
// neither zero nor NaN that is a quotient; elsewhere the run's other zeros and NaNs decide.
Value product_slopes(const Segments& segments, Value x, Value output, const MaybeScalar& initial) {
  const Value is_zero = equal(x, 0.0);
  const Value is_none = is_nan(x);
  const Value is_special = is_zero | is_none;
  const Value start =
      full(x.builder(), Shape{x.dtype(), segments.result_dims}, initial.value_or(Scalar(1)));
  const Value regular =
      segments.spread(segments.reduce(start, where(is_special, 1.0, x), hlo::multiply));
  const auto others = [&](Value is_kind) {
    const Value ones = convert(is_kind, x.dtype());
    return segments.spread(segments.sum(ones)) - ones;
  };
  const Value without =
      where(greater(others(is_none), 0.0), std::numeric_limits<double>::quiet_NaN(),
            where(greater(others(is_zero), 0.0), 0.0, regular));
  return where(is_special, without, segments.spread(output) / x);
}

Value segment_reduce_backward(Value grad, Value output, Value data, const std::string& reduce,
                              const MaybeValue& lengths, const MaybeValue& offsets,
                              std::int64_t axis, const MaybeScalar& initial) {
  const Reduction reduction = reduction_of(reduce);
  const Segments segments(data, lengths, offsets, axis);
  const DType dtype = accumulate_dtype(data.dtype());
  const Value x = convert(data, dtype);
  const Value runs = convert(output, dtype);
  Value run_grad = convert(grad, dtype);
  Value slopes;
  if (reduction == Reduction::kMean) run_grad = run_grad / segments.length_of_results(dtype);
  if (reduction == Reduction::kProd) slopes = product_slopes(segments, x, runs, initial);
  if (reduction == Reduction::kMax || reduction == Reduction::kMin) {
    // Elements that tie for the extremum share its gradient.
    slopes = convert(equal(x, segments.spread(runs)) | is_nan(x), dtype);
    run_grad = run_grad / segments.sum(slopes);
  }
  const Value spread = segments.spread(run_grad);
  if (!slopes) return convert(spread, data.dtype());
  const Value product = spread * slopes;
  // A run without any match divides by zero; its elements have no gradient.
  const bool is_extremum = reduction != Reduction::kProd;
  return convert(is_extremum ? where(equal(slopes, 0.0), 0.0, product) : product, data.dtype());
}

}  // namespace

void register_segment(Registry& m) {
  m.impl("segment_reduce",
         [](Value data, std::string reduce, MaybeValue lengths, MaybeValue indices,
            MaybeValue offsets, std::int64_t axis, bool, MaybeScalar initial) {
           return segment_reduce(data, reduce, lengths, indices, offsets, axis, initial);
         });
  m.impl("_segment_reduce_backward", [](Value grad, Value output, Value data, std::string reduce,
                                        MaybeValue lengths, MaybeValue offsets, std::int64_t axis,
                                        MaybeScalar initial) {
    return segment_reduce_backward(grad, output, data, reduce, lengths, offsets, axis, initial);
  });
}

}  // namespace torch_xla::ops

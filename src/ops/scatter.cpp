// Writes by index that replace or combine: scatter, scatter_add, scatter_reduce, index_add,
// index_copy, index_fill and index_reduce.
#include <string>

#include "base/error.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/views.h"

namespace torch_xla::ops {
namespace {

using base::check;
using base::ErrorKind;
using base::fail;

// Combines updates into an input at indices that are bound in.
using Scatter = std::function<Value(Value input, Value updates, const Combination& combination)>;

// Integers are divided towards minus infinity, as PyTorch's mean over integers is.
Value divide_by_count(Value sum, Value count) {
  const Value divisor = convert(count, sum.dtype());
  const Value quotient = hlo::divide(sum, divisor);
  if (!base::is_signed_integral(sum.dtype())) return quotient;
  const Value is_below = hlo::lt(hlo::remainder(sum, divisor), full_like(sum, 0));
  return hlo::subtract(quotient, convert(is_below, sum.dtype()));
}

Combination combination(const std::string& reduce) {
  if (reduce == "prod") return {hlo::multiply};
  if (reduce == "amax") return {greater_of};
  if (reduce == "amin") return {lesser_of};
  return adding();
}

Value identity(hlo::Builder& builder, DType dtype, const std::string& reduce) {
  if (reduce == "prod") return scalar(builder, dtype, 1);
  if (reduce == "amax") return lowest(builder, dtype);
  if (reduce == "amin") return highest(builder, dtype);
  return scalar(builder, dtype, 0);
}

// `src` reduced into `self`. Where `include_self` is false the elements that updates reach start
// from the reduction's identity. `updates_like` gives a number in the shape of `src`.
Value scatter_reduce(Value self, Value src, const std::string& reduce, bool include_self,
                     const Scatter& scatter) {
  hlo::Builder& builder = self.builder();
  const bool is_mean = reduce == "mean";
  Value count;
  if (is_mean) {
    const Shape counts{DType::kInt32, self.dims()};
    const Value ones = hlo::full(builder, Shape{DType::kInt32, src.dims()}, 1);
    count = scatter(hlo::full(builder, counts, include_self ? 1 : 0), ones, adding());
  }
  Value base = self;
  if (!include_self) {
    const Value is_reached =
        is_mean ? hlo::gt(count, full_like(count, 0))
                : scatter(hlo::full(builder, Shape{DType::kBool, self.dims()}, false),
                          hlo::full(builder, Shape{DType::kBool, src.dims()}, true), replacing());
    const Value start = broadcast_to(identity(builder, self.dtype(), reduce), self.dims());
    base = hlo::select(is_reached, start, self);
  }
  const Value out = scatter(base, src, combination(reduce));
  return is_mean ? divide_by_count(out, hlo::maximum(count, full_like(count, 1))) : out;
}

Scatter scatter_at(const Context& context, std::int64_t dim, Value index) {
  return [=, &context](Value input, Value updates, const Combination& combination) {
    return scatter_along(context, input, dim, index, updates, combination);
  };
}

// Sums in float16 and bfloat16 are rounded once, not at each update.
Value add_along(const Context& context, Value self, std::int64_t dim, Value index, Value src) {
  const DType dtype = accumulate_dtype(self.dtype());
  const Value sums =
      scatter_along(context, convert(self, dtype), dim, index, convert(src, dtype), adding());
  return convert(sums, self.dtype());
}

Combination scatter_operator(const std::string& reduce) {
  check(reduce == "add" || reduce == "multiply", "reduce argument must be either add or multiply.");
  return reduce == "add" ? adding() : Combination{hlo::multiply};
}

// The dimension, after PyTorch's checks of the other arguments.
std::int64_t checked_dim(Value self, std::int64_t dim, Value index,
                         const std::optional<Value>& src = std::nullopt) {
  dim = wrap_dim(dim, self.rank());
  check_index_along("scatter", self, dim, index, src);
  check(!src.has_value() || src->dtype() == self.dtype(),
        "scatter(): Expected self.dtype to be equal to src.dtype");
  return dim;
}

void register_scatter_along(Registry& m) {
  m.impl("scatter.src", [](Context& context, Value self, std::int64_t dim, Value index, Value src) {
    const std::int64_t place = checked_dim(self, dim, index, src);
    return scatter_along(context, self, place, index, src, replacing());
  });
  m.impl("scatter.value", [](Context& context, Value self, std::int64_t dim, Value index,
                             Value value) {
    const std::int64_t place = checked_dim(self, dim, index);
    return scatter_along(context, self, place, index, convert(value, self.dtype()), replacing());
  });
  m.impl("scatter.reduce", [](Context& context, Value self, std::int64_t dim, Value index,
                              Value src, std::string reduce) {
    const std::int64_t place = checked_dim(self, dim, index, src);
    return scatter_along(context, self, place, index, src, scatter_operator(reduce));
  });
  m.impl("scatter.value_reduce", [](Context& context, Value self, std::int64_t dim, Value index,
                                    Value value, std::string reduce) {
    const std::int64_t place = checked_dim(self, dim, index);
    return scatter_along(context, self, place, index, convert(value, self.dtype()),
                         scatter_operator(reduce));
  });
  m.impl("scatter_add", [](Context& context, Value self, std::int64_t dim, Value index, Value src) {
    return add_along(context, self, checked_dim(self, dim, index, src), index, src);
  });
  m.impl("scatter_reduce.two", [](Context& context, Value self, std::int64_t dim, Value index,
                                  Value src, std::string reduce, bool include_self) {
    const std::int64_t place = checked_dim(self, dim, index, src);
    const DType dtype = accumulate_dtype(self.dtype());
    const Value out = scatter_reduce(convert(self, dtype), convert(src, dtype), reduce,
                                     include_self, scatter_at(context, place, index));
    return convert(out, self.dtype());
  });
}

// A vector of indices, and its source with one slice for each.
struct Slices {
  Value self;
  Value index;
  Value source;
  std::int64_t dim;

  Slices(Value self_arg, std::int64_t dim_arg, Value index_arg, Value source_arg)
      : self(at_least_1d(self_arg)),
        index(at_least_1d(index_arg)),
        source(at_least_1d(source_arg)),
        dim(wrap_dim(dim_arg, self.rank())) {}

  // Indices that repeat a place write to it in turn; 0-dim tensors are given back as such.
  Value write(const Context& context, Value input, Value updates,
              const Combination& combination) const {
    const auto called = called_scatter(context, input, dim, index, updates, combination);
    return called.has_value() ? *called
                              : scatter_slices(input, dim, index, updates, combination.region);
  }
};

// `op` is "index_add_" or "index_reduce_".
void check_index_source(const char* op, Value self, std::int64_t dim, Value index, Value source) {
  dim = wrap_dim(dim, self.rank());
  check(index.dtype() == DType::kInt64 || index.dtype() == DType::kInt32, op,
        "(): Expected dtype int32/int64 for index but got: ", scalar_type_name(index.dtype()));
  check(index.rank() <= 1, op, "(): Index is supposed to be a vector, but got dim: ", index.rank(),
        " with type: ", scalar_type_name(index.dtype()),
        " and size: ", base::to_string(index.dims()));
  check(self.dtype() == source.dtype(), op, "(): self (", scalar_type_name(self.dtype()),
        ") and source (", scalar_type_name(source.dtype()), ") must have the same scalar type");
  const bool has_dim = self.rank() > 0 && source.rank() == self.rank();
  check(source.rank() == self.rank() &&
            (!has_dim || without_dim(source.dims(), dim) == without_dim(self.dims(), dim)),
        "source tensor shape must match self tensor shape, excluding the specified dimension. Got "
        "self.shape = ",
        base::to_string(self.dims()), " source.shape = ", base::to_string(source.dims()));
  const std::int64_t size = has_dim ? source.dim(dim) : 1;
  check(index.num_elements() == size, op, "(): Number of indices (", index.num_elements(),
        ") should be equal to source.size(dim): (", size, "), for dim: ", dim);
}

Value index_add(const Context& context, Value self, std::int64_t dim, Value index, Value source,
                const Factor& alpha) {
  check_index_source("index_add_", self, dim, index, source);
  const Slices slices(self, dim, index, source);
  if (alpha.is_one) {
    const auto called =
        called_scatter(context, slices.self, slices.dim, slices.index, slices.source, adding());
    if (called.has_value()) return hlo::reshape(*called, self.dims());
  }
  const DType dtype = accumulate_dtype(self.dtype());
  Value updates = convert(slices.source, dtype);
  if (!alpha.is_one) {
    updates = hlo::multiply(updates, broadcast_to(convert(alpha.value, dtype), updates.dims()));
  }
  const Value out = slices.write(context, convert(slices.self, dtype), updates, adding());
  return hlo::reshape(convert(out, self.dtype()), self.dims());
}

void check_copy(Value self, std::int64_t dim, Value index, Value source) {
  check(self.dtype() == source.dtype(),
        "index_copy_(): self and source expected to have the same dtype, but got (self) ",
        scalar_type_name(self.dtype()), " and (source) ", scalar_type_name(source.dtype()));
  if (source.rank() == 0 && index.num_elements() != 1) {
    fail(ErrorKind::kIndex,
         "index_copy_(): When source is scalar, index should have one element (got ",
         index.num_elements(), ")");
  }
  if (source.rank() != 0 && self.rank() != 0 && source.rank() != self.rank()) {
    fail(ErrorKind::kIndex,
         "index_copy_(): When source and destination are not scalars, their dimensionality must "
         "match. Source dimensionality (",
         source.rank(), "), destination dimensionality (", self.rank(), ")");
  }
  if (source.rank() != 0 && index.num_elements() != source.dim(dim)) {
    fail(ErrorKind::kIndex, "index_copy_(): Number of indices (", index.num_elements(),
         ") should be equal to source.size(dim) (", source.dim(dim), ")");
  }
}

Value index_fill(Value self, std::int64_t dim, Value index, Value value) {
  if (index.dtype() != DType::kInt64) {
    fail(ErrorKind::kIndex, "index_fill_(): Expected dtype int64 for index.");
  }
  check(index.rank() <= 1, "Index has to be a vector/scalar");
  check(value.rank() == 0,
        "index_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
        value.rank(), " dimension(s).");
  check(base::is_complex(self.dtype()) || !base::is_complex(value.dtype()),
        "index_fill_(): Converting complex Scalar to non-complex type is not supported");
  dim = wrap_dim(dim, self.rank());
  const Value target = at_least_1d(self);
  hlo::Builder& builder = self.builder();
  const std::int64_t size = target.dim(dim);
  const Value places = wrap_negative(at_least_1d(index), size);
  const Value updates = hlo::full(builder, Shape{DType::kBool, places.dims()}, true);
  const Value is_filled = scatter_slices(hlo::full(builder, Shape{DType::kBool, {size}}, false), 0,
                                         places, updates, replace);
  const Value everywhere = hlo::broadcast_in_dim(is_filled, target.dims(), {dim});
  const Value number = broadcast_to(convert(value, self.dtype()), target.dims());
  return hlo::reshape(hlo::select(everywhere, number, target), self.dims());
}

void register_index_writes(Registry& m) {
  m.impl("index_add",
         [](Context& context, Value self, std::int64_t dim, Value index, Value source,
            Factor alpha) { return index_add(context, self, dim, index, source, alpha); });
  m.impl("index_copy",
         [](Context& context, Value self, std::int64_t dim, Value index, Value source) {
           check_copy(self, wrap_dim(dim, self.rank()), index, source);
           const Slices slices(self, dim, index, source);
           return hlo::reshape(slices.write(context, slices.self, slices.source, replacing()),
                               self.dims());
         });
  m.impl({"index_fill.int_Scalar", "index_fill.int_Tensor"},
         [](Value self, std::int64_t dim, Value index, Value value) {
           return index_fill(self, dim, index, value);
         },
         {.repeats = Repeats::kDeprecated});
  m.impl("index_reduce", [](Context& context, Value self, std::int64_t dim, Value index,
                            Value source, std::string reduce, bool include_self) {
    check_index_source("index_reduce_", self, dim, index, source);
    const Slices slices(self, dim, index, source);
    const DType dtype = accumulate_dtype(self.dtype());
    const Value out = scatter_reduce(
        convert(slices.self, dtype), convert(slices.source, dtype), reduce, include_self,
        [&](Value input, Value updates, const Combination& combination) {
          return slices.write(context, input, updates, combination);
        });
    return hlo::reshape(convert(out, self.dtype()), self.dims());
  });
}

}  // namespace

void register_scatter(Registry& m) {
  register_scatter_along(m);
  register_index_writes(m);
}

}  // namespace torch_xla::ops

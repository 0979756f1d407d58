// What rules ask of a call with sizes that are data, and hide.
#include "ops/bounded_emission.h"

#include <algorithm>

#include "base/error.h"
#include "ops/promotion.h"
#include "ops/trace_emitter.h"

namespace torch_xla::ops {

bool has_variable(const Variables& variables) {
  return std::ranges::any_of(variables,
                             [](std::int32_t variable) { return variable != kNoVariable; });
}

bool broadcasts(const Dims& dims, const Variables& variables, const Dims& to_dims,
                const Variables& to_variables) {
  if (dims.size() > to_dims.size()) return false;
  const std::size_t added = to_dims.size() - dims.size();
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (variables[i] == kNoVariable && dims[i] == 1) continue;
    if (variables[i] != to_variables[added + i] || dims[i] != to_dims[added + i]) return false;
  }
  return true;
}

void Emission::refuse() const {
  base::fail(base::ErrorKind::kUnimplemented, "aten::", entry_.op->name,
             " can't be computed for a size that is data");
}

void Emission::require_fixed(std::initializer_list<std::size_t> but) const {
  for (std::size_t i = 0; i < call_.args.size(); ++i) {
    if (std::ranges::find(but, i) == but.end()) require(!has_variable(call_.args[i]));
  }
}

std::int64_t Emission::dim_of_first(std::size_t arg) const {
  return wrap_dim(integer(arg), static_cast<std::int64_t>(variables(0).size()));
}

Value Emission::integer_value(std::size_t i) const {
  if (variable(i) != kNoVariable) return size(variable(i));
  return detail::promotable(entry_.args[i], frame()).value(builder(), DType::kInt64);
}

std::vector<Value> Emission::ordinary(const graph::Entry& entry) {
  return emit_call(entry, frame_.context,
                   {frame_.operands, frame_.slots, frame_.slot_bits, entry.slots},
                   frame_.reads_second_result);
}

std::vector<Value> Emission::pointwise(const graph::Entry& entry) {
  require_fixed();
  for (std::size_t output = 0; output < num_outputs(); ++output) {
    for (std::size_t i = 0; i < num_operands(); ++i) {
      require(broadcasts(operand(i).dims(), variables(i), output_dims(output),
                         output_variables(output)));
    }
  }
  return ordinary(entry);
}

graph::Entry Emission::with_integer(std::size_t arg, std::int64_t value) const {
  graph::Entry result = entry_;
  std::get<graph::Number>(result.args[arg]).constant = base::Scalar(value);
  return result;
}

Value Emission::is_element(const Dims& dims, std::size_t dim, std::int32_t variable) const {
  const Value index = hlo::iota(builder(), {DType::kInt64, {dims[dim]}}, 0);
  const Value before = hlo::lt(index, hlo::broadcast_in_dim(size(variable), {dims[dim]}, {}));
  return hlo::broadcast_in_dim(before, dims, {static_cast<std::int64_t>(dim)});
}

Value Emission::are_elements(const Dims& dims, const Variables& variables) const {
  Value all = hlo::full(builder(), {DType::kBool, dims}, true);
  for (std::size_t dim = 0; dim < dims.size(); ++dim) {
    if (variables[dim] == kNoVariable) continue;
    all = hlo::and_(all, is_element(dims, dim, variables[dim]));
  }
  return all;
}

Value Emission::ranks(const Dims& dims, const Variables& variables) const {
  Value ranks = hlo::full(builder(), {DType::kInt64, dims}, 0);
  for (std::size_t dim = 0; dim < dims.size(); ++dim) {
    const Value index = hlo::iota(builder(), {DType::kInt64, dims}, static_cast<std::int64_t>(dim));
    const Value size = hlo::broadcast_in_dim(extent(variables[dim], dims[dim]), dims, {});
    ranks = hlo::add(hlo::multiply(ranks, size), index);
  }
  return ranks;
}

void Emission::hide(std::size_t place, Value fill, std::int64_t only) {
  Value& value = operand(place);
  const Variables& variables = call_.operands[place];
  for (std::size_t dim = 0; dim < variables.size(); ++dim) {
    if (variables[dim] == kNoVariable) continue;
    if (only >= 0 && static_cast<std::size_t>(only) != dim) continue;
    value = hlo::select(is_element(value.dims(), dim, variables[dim]), value,
                        hlo::broadcast_in_dim(fill, value.dims(), {}));
  }
}

void Emission::hide_all() {
  for (std::size_t i = 0; i < num_operands(); ++i) hide(i, zero(i));
}

Value Emission::count(std::size_t place, DType dtype) const {
  const std::int64_t rank = frame_.operands[place].rank();
  return count(place, dtype, all_but(rank, rank));
}

Value Emission::count(std::size_t place, DType dtype, const Dims& along) const {
  const Dims& dims = frame_.operands[place].dims();
  Value product = number(1);
  for (const std::int64_t i : along) {
    const auto dim = static_cast<std::size_t>(i);
    product = hlo::multiply(product, extent(variables(place)[dim], dims[dim]));
  }
  return convert(product, dtype);
}

Value Emission::resize(Value value, std::size_t dim, std::int64_t size) const {
  if (value.dims()[dim] == size) return value;
  const Dims none(value.dims().size(), 0);
  Dims high = none;
  high[dim] = size - value.dims()[dim];
  return hlo::pad(value, scalar(builder(), value.dtype(), 0), none, high);
}

hlo::Values Emission::starts(std::size_t rank, std::size_t dim, Value start) const {
  hlo::Values out(rank, number(0));
  out[dim] = start;
  return out;
}

}  // namespace torch_xla::ops

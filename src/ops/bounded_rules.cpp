// The rules, by operator. Each either computes with what lies behind the elements as with the
// elements, where these do not see it, or hides it first: behind zeros in sums, -inf in maxima.
#include <algorithm>
#include <limits>
#include <unordered_map>

#include "base/error.h"
#include "ops/bounded.h"
#include "ops/promotion.h"
#include "ops/trace_emitter.h"

namespace torch_xla::ops {
namespace {

constexpr std::int32_t kNone = -1;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

bool has_variable(const Variables& variables) {
  return std::ranges::any_of(variables, [](std::int32_t variable) { return variable != kNone; });
}

class Emission {
 public:
  Emission(const BoundedCall& call, BoundedFrame& frame)
      : call_(call), entry_(call.entry), frame_(frame) {}

  [[noreturn]] void refuse() const {
    base::fail(base::ErrorKind::kUnimplemented, "aten::", entry_.op->name,
               " can't be computed for a size that is data");
  }
  void require(bool holds) const {
    if (!holds) refuse();
  }
  // No argument of these is a variable; by default none at all.
  void require_fixed(std::initializer_list<std::size_t> but = {}) const {
    for (std::size_t i = 0; i < call_.args.size(); ++i) {
      if (std::ranges::find(but, i) == but.end()) require(!has_variable(call_.args[i]));
    }
  }

  const graph::Entry& entry() const { return entry_; }
  hlo::Builder& builder() const { return frame_.context.builder; }
  std::size_t num_args() const { return entry_.args.size(); }
  const graph::Attribute& arg(std::size_t i) const { return entry_.args[i]; }
  bool is_none(std::size_t i) const {
    return std::holds_alternative<std::monostate>(entry_.args[i]);
  }
  std::int64_t integer(std::size_t i) const {
    return std::get<graph::Number>(entry_.args[i]).constant.to<std::int64_t>();
  }
  std::int32_t variable(std::size_t i) const {
    return call_.args[i].empty() ? kNone : call_.args[i][0];
  }
  const Variables& arg_variables(std::size_t i) const { return call_.args[i]; }
  std::size_t place(std::size_t i) const { return std::get<graph::Operand>(entry_.args[i]).index; }

  std::size_t num_operands() const { return frame_.operands.size(); }
  Value& operand(std::size_t place) { return frame_.operands[place]; }
  const Variables& variables(std::size_t place) const { return call_.operands[place]; }
  bool is_fixed(std::size_t place) const { return !has_variable(call_.operands[place]); }
  const Dims& output_dims(std::size_t i = 0) const { return entry_.outputs[i]->shape.dims; }
  DType output_dtype() const { return entry_.outputs[0]->shape.dtype; }
  const Variables& output_variables(std::size_t i = 0) const { return call_.outputs[i]; }
  std::size_t num_outputs() const { return entry_.outputs.size(); }

  Value size(std::int32_t variable) const { return frame_.variables[at(variable)]; }
  Value number(std::int64_t value) const { return scalar(builder(), DType::kInt64, value); }
  Frame frame() const { return {frame_.operands, frame_.slots, frame_.slot_bits, entry_.slots}; }
  // A number of the call that is compiled in, data, or a variable.
  Value integer_value(std::size_t i) const {
    if (variable(i) != kNone) return size(variable(i));
    return detail::promotable(entry_.args[i], frame()).value(builder(), DType::kInt64);
  }

  std::vector<Value> ordinary() { return ordinary(entry_); }
  std::vector<Value> ordinary(const graph::Entry& entry) {
    return emit_call(entry, frame_.context,
                     {frame_.operands, frame_.slots, frame_.slot_bits, entry.slots},
                     frame_.reads_second_result);
  }

  // Bool, of these sizes: whether the place along `dim` is before the end.
  Value is_element(const Dims& dims, std::size_t dim, std::int32_t variable) const {
    const Value index = hlo::iota(builder(), {DType::kInt64, {dims[dim]}}, 0);
    const Value before = hlo::lt(index, hlo::broadcast_in_dim(size(variable), {dims[dim]}, {}));
    return hlo::broadcast_in_dim(before, dims, {static_cast<std::int64_t>(dim)});
  }
  // Puts `fill`, 0-dim, behind the elements along each dimension, or along one.
  void hide(std::size_t place, Value fill, std::int64_t only = -1) {
    Value& value = operand(place);
    const Variables& variables = call_.operands[place];
    for (std::size_t dim = 0; dim < variables.size(); ++dim) {
      if (variables[dim] == kNone || (only >= 0 && at(only) != dim)) continue;
      value = hlo::select(is_element(value.dims(), dim, variables[dim]), value,
                          hlo::broadcast_in_dim(fill, value.dims(), {}));
    }
  }
  // How many elements there are, as a number of that dtype.
  Value count(std::size_t place, DType dtype) const {
    const Dims& dims = frame_.operands[place].dims();
    Value product = number(1);
    for (std::size_t dim = 0; dim < dims.size(); ++dim) {
      const std::int32_t variable = call_.operands[place][dim];
      product = hlo::multiply(product, variable == kNone ? number(dims[dim]) : size(variable));
    }
    return convert(product, dtype);
  }
  Value zero(std::size_t place) { return scalar(builder(), operand(place).dtype(), 0); }

  // Cut or extended at the end.
  Value resize(Value value, std::size_t dim, std::int64_t size) const {
    if (value.dims()[dim] == size) return value;
    const Dims none(value.dims().size(), 0);
    Dims high = none;
    high[dim] = size - value.dims()[dim];
    return hlo::pad(value, scalar(builder(), value.dtype(), 0), none, high);
  }
  hlo::Values starts(std::size_t rank, std::size_t dim, Value start) const {
    hlo::Values out(rank, number(0));
    out[dim] = start;
    return out;
  }

 private:
  const BoundedCall& call_;
  const graph::Entry& entry_;
  BoundedFrame& frame_;
};

using Results = std::vector<Value>;

// By PyTorch's broadcasting, whatever the variables are.
bool broadcasts(const Dims& dims, const Variables& variables, const Dims& to_dims,
                const Variables& to_variables) {
  if (dims.size() > to_dims.size()) return false;
  const std::size_t added = to_dims.size() - dims.size();
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (variables[i] == kNone && dims[i] == 1) continue;
    if (variables[i] != to_variables[added + i] || dims[i] != to_dims[added + i]) return false;
  }
  return true;
}

Results pointwise(Emission& e, const graph::Entry& entry) {
  e.require_fixed();
  for (std::size_t output = 0; output < e.num_outputs(); ++output) {
    for (std::size_t i = 0; i < e.num_operands(); ++i) {
      e.require(broadcasts(e.operand(i).dims(), e.variables(i), e.output_dims(output),
                           e.output_variables(output)));
    }
  }
  return e.ordinary(entry);
}

Results pointwise(Emission& e) { return pointwise(e, e.entry()); }

// ---- Views --------------------------------------------------------------------------------------

// The variables in order, each behind the product of the fixed sizes since the one before.
std::vector<std::pair<std::int64_t, std::int32_t>> runs(const Dims& dims, const Variables& of) {
  std::vector<std::pair<std::int64_t, std::int32_t>> out;
  std::int64_t product = 1;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (of[i] == kNone) {
      product *= dims[i];
    } else {
      out.emplace_back(product, of[i]);
      product = 1;
    }
  }
  out.emplace_back(product, kNone);
  return out;
}

Results reshape(Emission& e) {
  e.require_fixed({1});
  e.require(runs(e.operand(0).dims(), e.variables(0)) ==
            runs(e.output_dims(), e.output_variables()));
  return {hlo::reshape(e.operand(0), e.output_dims())};
}

Results expand(Emission& e) {
  e.require_fixed({1});
  e.require(broadcasts(e.operand(0).dims(), e.variables(0), e.output_dims(), e.output_variables()));
  return {broadcast_to(e.operand(0), e.output_dims())};
}

Results permute(Emission& e) {
  e.require_fixed();
  return e.ordinary();
}

// (self, dim, start, length, step)
Results slice(Emission& e) {
  e.require_fixed({2, 3});
  const std::size_t dim = at(e.integer(1));
  if (e.variable(3) == kNone && e.variable(2) == kNone) return e.ordinary();
  e.require(e.integer(4) == 1);
  const Value self = e.operand(0);
  const std::int64_t length = e.output_dims()[dim];
  Dims sizes = self.dims();
  sizes[dim] = length;
  // Behind the elements there is room for all that the slice is at most: it is not moved.
  const Value room = e.resize(self, dim, self.dims()[dim] + length);
  return {hlo::dynamic_slice(room, e.starts(sizes.size(), dim, e.integer_value(2)), sizes)};
}

// (parent, update, dim, start, length, step), and the same of `select` without the last two.
Results slice_write(Emission& e) {
  e.require_fixed();
  return e.ordinary();
}

// ---- Calls that are independent along some dimensions -------------------------------------------

// The variables are not among the last dimensions of the first operand, and nowhere else.
Results along_rows(Emission& e, std::size_t num_last) {
  e.require_fixed();
  const Variables& variables = e.variables(0);
  for (std::size_t i = variables.size() - std::min(num_last, variables.size());
       i < variables.size(); ++i) {
    e.require(variables[i] == kNone);
  }
  for (std::size_t i = 1; i < e.num_operands(); ++i) e.require(e.is_fixed(i));
  return e.ordinary();
}

Results linear(Emission& e) { return along_rows(e, 1); }

// (input, normalized_shape, ...)
Results row_norm(Emission& e) { return along_rows(e, std::get<Dims>(e.arg(1)).size()); }

Results embedding(Emission& e) {
  e.require_fixed();
  e.require(e.is_fixed(e.place(0)));
  e.hide(e.place(1), e.zero(e.place(1)));
  return e.ordinary();
}

std::int64_t wrapped(Emission& e, std::size_t arg) {
  return wrap_dim(e.integer(arg), static_cast<std::int64_t>(e.variables(0).size()));
}

Results softmax(Emission& e) {
  e.require_fixed();
  e.hide(0, lowest(e.builder(), e.operand(0).dtype()), wrapped(e, 1));
  return e.ordinary();
}

// The call but for the integer in one of its arguments.
graph::Entry with_integer(const graph::Entry& entry, std::size_t arg, std::int64_t value) {
  graph::Entry result = entry;
  std::get<graph::Number>(result.args[arg]).constant = base::Scalar(value);
  return result;
}

void require_fixed_dims(Emission& e, std::size_t dim_arg) {
  e.require(e.num_args() > dim_arg && !e.is_none(dim_arg));
  const auto rank = static_cast<std::int64_t>(e.variables(0).size());
  Dims dims;
  if (const auto* list = std::get_if<Dims>(&e.arg(dim_arg))) {
    dims = wrap_dims(*list, rank);
  } else {
    dims = wrap_dims({e.integer(dim_arg)}, rank);
  }
  for (const std::int64_t dim : dims) e.require(e.variables(0)[at(dim)] == kNone);
}

// Over dimensions that are fixed: (self, dim, ...).
template <std::size_t dim_arg>
Results over_fixed(Emission& e) {
  e.require_fixed();
  require_fixed_dims(e, dim_arg);
  return e.ordinary();
}

// (self, k, dim, largest, sorted): where k is a variable, the first of as many as it is at most.
Results topk(Emission& e) {
  e.require_fixed({1});
  require_fixed_dims(e, 2);
  if (e.variable(1) == kNone) return e.ordinary();
  e.require(std::get<graph::Number>(e.arg(4)).constant.to<bool>());
  const std::size_t dim = at(wrapped(e, 2));
  const std::int64_t room = e.integer(1);
  const std::int64_t k = std::min(room, e.operand(0).dims()[dim]);
  graph::Entry entry = with_integer(e.entry(), 1, k);
  for (const graph::TensorType*& type : entry.outputs) {
    if (type == nullptr) continue;
    base::Shape shape = type->shape;
    shape.dims[dim] = k;
    type = graph::intern_contiguous(std::move(shape));
  }
  Results results = e.ordinary(entry);
  for (Value& result : results) result = e.resize(result, dim, room);
  return results;
}

// ---- Reductions ---------------------------------------------------------------------------------

template <int number>
Results reduction_from(Emission& e) {
  e.require_fixed();
  e.hide(0, scalar(e.builder(), e.operand(0).dtype(), number));
  return e.ordinary();
}

Results maximum_of(Emission& e) {
  e.require_fixed();
  e.hide(0, lowest(e.builder(), e.operand(0).dtype()));
  return e.ordinary();
}

Results minimum_of(Emission& e) {
  e.require_fixed();
  e.hide(0, highest(e.builder(), e.operand(0).dtype()));
  return e.ordinary();
}

// The place in all elements depends on how many there are.
Results place_of_maximum(Emission& e) {
  e.require(!e.is_none(1) || e.variables(0).size() == 1);
  return maximum_of(e);
}

// ---- Losses of two tensors ----------------------------------------------------------------------

constexpr std::int64_t kNoReduction = 0;
constexpr std::int64_t kMean = 1;
constexpr std::int64_t kSum = 2;

// A count of elements has more digits than others keep.
void require_exact(Emission& e, DType dtype) {
  e.require(dtype == DType::kFloat32 || dtype == DType::kFloat64);
}

// (self, target, reduction, ...), where two zeros lose nothing.
Results loss(Emission& e) {
  e.require_fixed();
  const std::size_t self = e.place(0);
  const std::size_t target = e.place(1);
  e.require(e.operand(self).dims() == e.operand(target).dims() &&
            e.variables(self) == e.variables(target));
  const std::int64_t reduction = e.integer(2);
  if (reduction == kNoReduction) return e.ordinary();
  e.hide(self, e.zero(self));
  if (target != self) e.hide(target, e.zero(target));
  if (reduction == kSum) return e.ordinary();
  require_exact(e, e.output_dtype());
  const Value sum = e.ordinary(with_integer(e.entry(), 2, kSum))[0];
  return {hlo::divide(sum, e.count(self, sum.dtype()))};
}

// (grad_output, self, target, reduction, ...)
Results loss_backward(Emission& e) {
  if (e.integer(3) != kMean) return pointwise(e);
  const std::size_t grad = e.place(0);
  const std::size_t self = e.place(1);
  e.require(e.variables(grad).empty() && grad != self && grad != e.place(2));
  require_exact(e, e.operand(grad).dtype());
  e.operand(grad) = hlo::divide(e.operand(grad), e.count(self, e.operand(grad).dtype()));
  return pointwise(e, with_integer(e.entry(), 3, kSum));
}

// ---- Products -----------------------------------------------------------------------------------

// The last two operands are matrices, or batches of them.
Results product(Emission& e) {
  e.require_fixed();
  const std::size_t count = e.num_operands();
  const std::size_t lhs = count - 2;
  const std::size_t rhs = count - 1;
  const auto columns = static_cast<std::int64_t>(e.variables(lhs).size()) - 1;
  e.hide(lhs, e.zero(lhs), columns);
  e.hide(rhs, e.zero(rhs), columns - 1);
  e.require(e.variables(lhs)[at(columns)] == e.variables(rhs)[at(columns - 1)]);
  if (count == 3) {
    e.require(
        broadcasts(e.operand(0).dims(), e.variables(0), e.output_dims(), e.output_variables()));
  }
  return e.ordinary();
}

// (query, key, value, dropout_p, is_causal, attn_mask, scale)
constexpr std::size_t kCausalArg = 4;
constexpr std::size_t kMaskArg = 5;

// Added to the scores, or bool: nothing behind the keys takes part.
Value attention_mask(Emission& e, DType dtype, const Value& is_key) {
  const Value never = scalar(e.builder(), dtype, -std::numeric_limits<double>::infinity());
  if (e.is_none(kMaskArg)) {
    const Dims& dims = is_key.dims();
    return hlo::select(is_key, hlo::full(e.builder(), {dtype, dims}, 0.0),
                       hlo::broadcast_in_dim(never, dims, {}));
  }
  const Value mask = e.operand(e.place(kMaskArg));
  const Dims dims = broadcast_dims(mask.dims(), is_key.dims());
  const Value given = broadcast_to(mask, dims);
  const Value takes_part = broadcast_to(is_key, dims);
  if (given.dtype() == DType::kBool) return hlo::and_(given, takes_part);
  e.require(given.dtype() == dtype);
  return hlo::select(takes_part, given, hlo::broadcast_in_dim(never, dims, {}));
}

Results attention(Emission& e, const graph::Entry& recorded, BoundedFrame& frame) {
  e.require_fixed();
  const std::size_t query = e.place(0);
  const std::size_t key = e.place(1);
  const std::size_t value = e.place(2);
  e.require(e.variables(query)[3] == kNone && e.variables(key)[3] == kNone &&
            e.variables(value)[3] == kNone && e.variables(key)[2] == e.variables(value)[2]);
  const std::int32_t length = e.variables(key)[2];
  if (length == kNone) return e.ordinary();
  e.hide(key, e.zero(key), 2);
  e.hide(value, e.zero(value), 2);
  const bool is_causal = std::get<graph::Number>(e.arg(kCausalArg)).constant.to<bool>();
  if (is_causal) {  // the elements see none behind them
    e.require(e.is_none(kMaskArg) && e.variables(query)[2] == length);
    return e.ordinary();
  }
  const Dims row = {1, 1, 1, e.operand(key).dim(2)};
  const Value mask = attention_mask(e, e.operand(query).dtype(), e.is_element(row, 3, length));
  graph::Entry entry = recorded;
  entry.args[kMaskArg] = graph::Operand{static_cast<std::uint32_t>(frame.operands.size())};
  entry.operands.push_back(graph::intern_contiguous(mask.type()));
  frame.operands.push_back(mask);
  return e.ordinary(entry);
}

// ---- Rearrangements -----------------------------------------------------------------------------

// (tensors, dim): one part behind the other, each over what lies behind the one before.
Results cat(Emission& e) {
  e.require_fixed();
  std::vector<std::size_t> parts;
  for (const std::int32_t index : std::get<graph::OperandList>(e.arg(0)).indices) {
    const auto i = static_cast<std::size_t>(index);
    if (e.operand(i).dims() != Dims{0} || !e.is_fixed(i)) parts.push_back(i);
  }
  e.require(!parts.empty());
  const std::size_t dim =
      at(wrap_dim(e.integer(1), static_cast<std::int64_t>(e.variables(parts[0]).size())));
  const std::size_t rank = e.variables(parts[0]).size();
  for (const std::size_t part : parts) {
    for (std::size_t d = 0; d < rank; ++d) {
      e.require(d == dim || e.variables(part)[d] == e.output_variables()[d]);
    }
  }
  if (std::ranges::none_of(parts, [&](std::size_t i) { return e.variables(i)[dim] != kNone; })) {
    return e.ordinary();
  }
  const std::int64_t length = e.output_dims()[dim];
  std::int64_t room = length;
  for (const std::size_t part : parts) room += e.operand(part).dims()[dim];
  Value joined;
  Value end = e.number(0);
  for (const std::size_t part : parts) {
    const Value value = convert(e.operand(part), e.output_dtype());
    joined = joined ? hlo::dynamic_update_slice(joined, value, e.starts(rank, dim, end))
                    : e.resize(value, dim, room);
    const std::int32_t variable = e.variables(part)[dim];
    end = hlo::add(end, variable == kNone ? e.number(value.dims()[dim]) : e.size(variable));
  }
  return {e.resize(joined, dim, length)};
}

// (self, pad, value), `pad` from the last dimension on: (low, high) of each.
Results constant_pad(Emission& e) {
  e.require_fixed({1});
  const Dims& pad = std::get<Dims>(e.arg(1));
  const Value value =
      convert(detail::tensor_or_data(e.arg(2), e.frame(), e.builder()), e.operand(0).dtype());
  e.hide(0, value);
  const Dims& from = e.operand(0).dims();
  Dims low(from.size(), 0);
  Dims high(from.size(), 0);
  for (std::size_t i = 0; i < from.size(); ++i) {
    const std::size_t dim = from.size() - 1 - i;
    if (2 * i < pad.size()) {
      // Where it begins is compiled in.
      low[dim] = pad[2 * i];
      e.require(low[dim] >= 0 && e.arg_variables(1)[2 * i] == kNone);
    }
    high[dim] = e.output_dims()[dim] - low[dim] - from[dim];
  }
  return {hlo::pad(e.operand(0), value, low, high)};
}

// One number everywhere, behind the elements too.
Results creation(Emission& e) {
  for (std::size_t i = 0; i < e.num_args(); ++i) {
    e.require(std::holds_alternative<Dims>(e.arg(i)) || !has_variable(e.arg_variables(i)));
  }
  return e.ordinary();
}

// (end), (start, end), (start, end, step), of integers.
Results arange(Emission& e, std::size_t start, bool has_start, std::size_t step, bool has_step) {
  e.require(base::is_integral(e.output_dtype()) && e.output_dtype() != DType::kBool);
  if (has_step) e.require(e.variable(step) == kNone && e.integer(step) == 1);
  const Dims& dims = e.output_dims();
  Value sequence = hlo::iota(e.builder(), {DType::kInt64, dims}, 0);
  if (has_start) {
    const Value first =
        e.variable(start) == kNone ? e.number(e.integer(start)) : e.size(e.variable(start));
    sequence = hlo::add(sequence, hlo::broadcast_in_dim(first, dims, {}));
  }
  return {convert(sequence, e.output_dtype())};
}

Results arange_to(Emission& e) { return arange(e, 0, false, 0, false); }
Results arange_from(Emission& e) { return arange(e, 0, true, 0, false); }
Results arange_by(Emission& e) { return arange(e, 0, true, 2, true); }

// (self, repeats)
Results repeat(Emission& e) {
  e.require_fixed();
  const Dims& repeats = std::get<Dims>(e.arg(1));
  const Variables& variables = e.variables(0);
  const std::size_t added = repeats.size() - variables.size();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    e.require(variables[i] == kNone || repeats[added + i] == 1);
  }
  return e.ordinary();
}

// ---- Indices ------------------------------------------------------------------------------------

// (self, indices, ...): what lies behind the indices looks at element 0.
void hide_indices(Emission& e) {
  const std::size_t self = e.place(0);
  const std::vector<std::int32_t>& indices = std::get<graph::OperandList>(e.arg(1)).indices;
  for (std::size_t dim = 0; dim < indices.size(); ++dim) {
    if (indices[dim] < 0) continue;
    const auto place = static_cast<std::size_t>(indices[dim]);
    e.require(place != self && base::is_integral(e.operand(place).dtype()) &&
              e.operand(place).dtype() != DType::kBool &&
              e.operand(place).dtype() != DType::kUInt8);
    // What counts from the end does so from that of the elements.
    if (const std::int32_t variable = e.variables(self)[dim]; variable != kNone) {
      e.require(std::ranges::count(indices, indices[dim]) == 1);
      Value& index = e.operand(place);
      const Value size =
          hlo::broadcast_in_dim(convert(e.size(variable), index.dtype()), index.dims(), {});
      const Value is_negative = hlo::lt(index, hlo::full_like(index, 0));
      index = hlo::select(is_negative, hlo::add(index, size), index);
    }
    e.hide(place, e.zero(place));
  }
}

Results index(Emission& e) {
  e.require_fixed();
  hide_indices(e);
  return e.ordinary();
}

// (self, indices, values, accumulate, ...), of one vector of indices: behind it zeros are added.
Results index_put(Emission& e) {
  e.require_fixed();
  const std::vector<std::int32_t>& indices = std::get<graph::OperandList>(e.arg(1)).indices;
  const auto dim = static_cast<std::size_t>(
      std::ranges::find_if(indices, [](std::int32_t i) { return i >= 0; }) - indices.begin());
  const std::size_t values = e.place(2);
  Variables expected = e.variables(e.place(0));
  e.require(std::get<graph::Number>(e.arg(3)).constant.to<bool>() &&
            std::ranges::count_if(indices, [](std::int32_t i) { return i >= 0; }) == 1 &&
            values != e.place(0) && static_cast<std::int32_t>(values) != indices[dim]);
  const Variables& index = e.variables(static_cast<std::size_t>(indices[dim]));
  e.require(index.size() == 1);
  expected[dim] = index[0];
  e.require(e.variables(values) == expected);
  hide_indices(e);
  e.hide(values, e.zero(values));
  return e.ordinary();
}

// (self, dim, index, ...)
Results index_along(Emission& e) {
  e.require_fixed();
  e.require(e.place(2) != e.place(0));
  e.hide(e.place(2), e.zero(e.place(2)));
  return e.ordinary();
}

// (self, dim, index, source): nothing behind the elements may be written.
Results index_copy(Emission& e) {
  e.require_fixed();
  const Variables& source = e.variables(e.place(3));
  e.require(e.is_fixed(e.place(2)) && !source.empty() && source[at(wrapped(e, 1))] == kNone);
  return e.ordinary();
}

// (elements, test_elements, ...)
Results isin(Emission& e) {
  e.require_fixed();
  e.require(e.num_operands() == 2 && e.is_fixed(1));
  return e.ordinary();
}

// Of the operators whose operands lie as their results, those of which an element sees no others:
// optimizers take norms, gates halves.
bool is_elementwise(std::string_view name, const Lowering& lowering) {
  return lowering.is_pointwise && !name.starts_with("_fused") && !name.starts_with("_amp") &&
         name.find("glu") == std::string_view::npos;
}

using Rule = Results (*)(Emission&);

const std::unordered_map<std::string_view, Rule>& rules() {
  static const std::unordered_map<std::string_view, Rule> table = {
      {"view:reshape", reshape},
      {"_unsafe_view", reshape},
      {"view:expand", expand},
      {"view:permute", permute},
      {"view:slice", slice},
      {"view:select", slice_write},
      {"view:slice:inverse", slice_write},
      {"view:select:inverse", slice_write},
      {"linear", linear},
      {"native_layer_norm", row_norm},
      {"_fused_rms_norm", row_norm},
      {"embedding", embedding},
      {"_softmax", softmax},
      {"_safe_softmax", softmax},
      {"_log_softmax", softmax},
      {"topk", topk},
      {"mse_loss", loss},
      {"smooth_l1_loss", loss},
      {"huber_loss", loss},
      {"mse_loss_backward", loss_backward},
      {"smooth_l1_loss_backward", loss_backward},
      {"huber_loss_backward", loss_backward},
      {"mean.dim", over_fixed<1>},
      {"sum", reduction_from<0>},
      {"sum.dim_IntList", reduction_from<0>},
      {"cumsum", reduction_from<0>},
      {"any", reduction_from<0>},
      {"any.dim", reduction_from<0>},
      {"any.dims", reduction_from<0>},
      {"prod", reduction_from<1>},
      {"prod.dim_int", reduction_from<1>},
      {"all", reduction_from<1>},
      {"all.dim", reduction_from<1>},
      {"all.dims", reduction_from<1>},
      {"max", maximum_of},
      {"max.dim", maximum_of},
      {"amax", maximum_of},
      {"argmax", place_of_maximum},
      {"min", minimum_of},
      {"min.dim", minimum_of},
      {"amin", minimum_of},
      {"mm", product},
      {"bmm", product},
      {"addmm", product},
      {"baddbmm", product},
      {"cat", cat},
      {"constant_pad_nd", constant_pad},
      {"arange", arange_to},
      {"arange.start", arange_from},
      {"arange.start_step", arange_by},
      {"tril", permute},
      {"triu", permute},
      {"repeat", repeat},
      {"index.Tensor", index},
      {"index_put", index_put},
      {"_index_put_impl", index_put},
      {"index_select", index_along},
      {"gather", index_along},
      {"index_copy", index_copy},
      {"isin.Tensor_Tensor", isin},
      {"zeros", creation},
      {"ones", creation},
      {"full", creation},
      {"empty.memory_format", creation},
      {"new_zeros", creation},
      {"new_ones", creation},
      {"new_full", creation},
      {"new_empty", creation},
  };
  return table;
}

}  // namespace

std::vector<Value> emit_bounded(const BoundedCall& call, BoundedFrame frame) {
  Emission emission(call, frame);
  const Lowering* const lowering = registry().find(call.entry.op->name, frame.context.platform);
  if (lowering == nullptr || lowering->is_random || lowering->is_foreach ||
      lowering->is_collective) {
    emission.refuse();
  }
  if (call.entry.op->name == "_scaled_dot_product_flash_attention_for_cpu") {
    return attention(emission, call.entry, frame);
  }
  if (const auto found = rules().find(call.entry.op->name); found != rules().end()) {
    return found->second(emission);
  }
  if (!is_elementwise(call.entry.op->name, *lowering)) emission.refuse();
  return pointwise(emission);
}

}  // namespace torch_xla::ops

// Which rule an operator has, and the rules of all but losses and indexing.
#include <algorithm>
#include <limits>

#include "hlo/in_place.h"
#include "ops/at.h"
#include "ops/bounded_emission.h"
#include "ops/indexing.h"
#include "ops/promotion.h"

namespace torch_xla::ops {
namespace {

// ---- Views --------------------------------------------------------------------------------------

// The variables in order, each behind the product of the fixed sizes since the one before.
std::vector<std::pair<std::int64_t, std::int32_t>> runs(const Dims& dims, const Variables& of) {
  std::vector<std::pair<std::int64_t, std::int32_t>> out;
  std::int64_t product = 1;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (of[i] == kNoVariable) {
      product *= dims[i];
    } else {
      out.emplace_back(product, of[i]);
      product = 1;
    }
  }
  out.emplace_back(product, kNoVariable);
  return out;
}

// At which place within the bounds `dims`, as one number, each of these elements lies.
Value places_of(Emission& e, Value ranks, const Dims& dims, const Variables& variables) {
  const auto spread = [&](Value number) { return hlo::broadcast_in_dim(number, ranks.dims(), {}); };
  Value places = hlo::full_like(ranks, 0);
  std::int64_t stride = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    const Value size = spread(e.extent(variables[i], dims[i]));
    const Value index = i == 0 ? ranks : hlo::remainder(ranks, size);
    places = hlo::add(places, hlo::multiply(index, spread(e.number(stride))));
    ranks = hlo::divide(ranks, size);
    stride *= dims[i];
  }
  return places;
}

// Where sizes that are data are joined with others or cut, the elements move: rows of the last
// dimensions, which both have, are looked up.
Results rearrange(Emission& e) {
  const Value self = e.operand(0);
  const Dims& from = self.dims();
  const Dims& to = e.output_dims();
  const Variables& variables = e.variables(0);
  const Variables& to_variables = e.output_variables();
  std::size_t num_last = 0;
  std::int64_t width = 1;
  while (num_last + 1 < std::min(from.size(), to.size())) {
    const std::size_t i = from.size() - 1 - num_last;
    const std::size_t k = to.size() - 1 - num_last;
    if (from[i] != to[k] || variables[i] != kNoVariable || to_variables[k] != kNoVariable) break;
    width *= from[i];
    ++num_last;
  }
  const auto leading = [&](const auto& of) {
    return std::decay_t<decltype(of)>(of.begin(), of.end() - static_cast<std::ptrdiff_t>(num_last));
  };
  const Dims row_dims = leading(from);
  const Value rows = hlo::reshape(self, {base::num_elements(row_dims), width});
  const Value places =
      places_of(e, e.ranks(leading(to), leading(to_variables)), row_dims, leading(variables));
  return {hlo::reshape(take_slices(rows, 0, places), to)};
}

Results reshape(Emission& e) {
  e.require_fixed({1});
  const bool keeps_places =
      runs(e.operand(0).dims(), e.variables(0)) == runs(e.output_dims(), e.output_variables());
  if (!keeps_places) return rearrange(e);
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
  if (e.variable(3) == kNoVariable && e.variable(2) == kNoVariable) return e.ordinary();
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
    e.require(variables[i] == kNoVariable);
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

// (self, boundaries, ...)
Results bucketize(Emission& e) {
  e.require_fixed();
  e.require(e.is_fixed(1));
  return e.ordinary();
}

// (elements, test_elements, ...)
Results isin(Emission& e) {
  e.require_fixed();
  e.require(e.num_operands() == 2 && e.is_fixed(1));
  return e.ordinary();
}

Results softmax(Emission& e) {
  e.require_fixed();
  e.hide(0, lowest(e.builder(), e.operand(0).dtype()), e.dim_of_first(1));
  return e.ordinary();
}

// Over dimensions that are fixed: (self, ..., dim, ...).
template <std::size_t dim_arg>
Results over_fixed(Emission& e) {
  e.require_fixed();
  const auto rank = static_cast<std::int64_t>(e.variables(0).size());
  const auto* list = std::get_if<Dims>(&e.arg(dim_arg));
  const Dims dims = list != nullptr ? wrap_dims(*list, rank) : Dims{e.dim_of_first(dim_arg)};
  e.require(!dims.empty());
  for (const std::int64_t dim : dims) e.require(e.variables(0)[at(dim)] == kNoVariable);
  return e.ordinary();
}

// (self, k, dim, largest, sorted): where k is a variable, the first of as many as it is at most.
Results topk(Emission& e) {
  e.require_fixed({1});
  const std::size_t dim = at(e.dim_of_first(2));
  e.require(e.variables(0)[dim] == kNoVariable);
  if (e.variable(1) == kNoVariable) return e.ordinary();
  e.require(std::get<graph::Number>(e.arg(4)).constant.to<bool>());
  const std::int64_t room = e.integer(1);
  const std::int64_t k = std::min(room, e.operand(0).dims()[dim]);
  graph::Entry entry = e.with_integer(1, k);
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

// Where the arguments of attention lie: `key` and `value` behind `query`, `attn_mask` behind
// `is_causal`.
struct AttentionArgs {
  std::size_t query;
  std::size_t is_causal;
  std::size_t mask() const { return is_causal + 1; }
};
// (query, key, value, dropout_p, is_causal, attn_mask, scale)
constexpr AttentionArgs kForward = {0, 4};
// (grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask, scale)
constexpr AttentionArgs kBackward = {1, 7};

// Added to the scores, or bool: nothing behind the keys takes part.
Value attention_mask(Emission& e, std::size_t arg, DType dtype, const Value& is_key) {
  const Value never = scalar(e.builder(), dtype, -std::numeric_limits<double>::infinity());
  if (e.is_none(arg)) {
    const Dims& dims = is_key.dims();
    return hlo::select(is_key, hlo::full(e.builder(), {dtype, dims}, 0.0),
                       hlo::broadcast_in_dim(never, dims, {}));
  }
  const Value mask = e.operand(e.place(arg));
  const Dims dims = broadcast_dims(mask.dims(), is_key.dims());
  const Value given = broadcast_to(mask, dims);
  const Value takes_part = broadcast_to(is_key, dims);
  if (given.dtype() == DType::kBool) return hlo::and_(given, takes_part);
  e.require(given.dtype() == dtype);
  return hlo::select(takes_part, given, hlo::broadcast_in_dim(never, dims, {}));
}

// Of a call whose queries, behind the elements, may be anything.
Results attention(Emission& e, const graph::Entry& recorded, BoundedFrame& frame,
                  AttentionArgs args) {
  e.require_fixed();
  const std::size_t query = e.place(args.query);
  const std::size_t key = e.place(args.query + 1);
  const std::size_t value = e.place(args.query + 2);
  e.require(e.variables(query)[3] == kNoVariable && e.variables(key)[3] == kNoVariable &&
            e.variables(value)[3] == kNoVariable && e.variables(key)[2] == e.variables(value)[2]);
  const std::int32_t length = e.variables(key)[2];
  if (length == kNoVariable) return e.ordinary();
  e.hide(key, e.zero(key), 2);
  e.hide(value, e.zero(value), 2);
  const bool is_causal = std::get<graph::Number>(e.arg(args.is_causal)).constant.to<bool>();
  if (is_causal) {  // the elements see none behind them
    e.require(e.is_none(args.mask()) && e.variables(query)[2] == length);
    return e.ordinary();
  }
  const Dims row = {1, 1, 1, e.operand(key).dim(2)};
  const Value mask =
      attention_mask(e, args.mask(), e.operand(query).dtype(), e.is_element(row, 3, length));
  graph::Entry entry = recorded;
  entry.args[args.mask()] = graph::Operand{static_cast<std::uint32_t>(frame.operands.size())};
  entry.operands.push_back(graph::intern_contiguous(mask.type()));
  frame.operands.push_back(mask);
  return e.ordinary(entry);
}

// Zeros arrive behind the queries, and nothing there may be NaN.
Results attention_backward(Emission& e, const graph::Entry& recorded, BoundedFrame& frame) {
  e.hide_all();
  return attention(e, recorded, frame, kBackward);
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
  if (std::ranges::none_of(parts,
                           [&](std::size_t i) { return e.variables(i)[dim] != kNoVariable; })) {
    return e.ordinary();
  }
  const std::int64_t length = e.output_dims()[dim];
  std::int64_t room = length;
  for (const std::size_t part : parts) room += e.operand(part).dims()[dim];
  Value joined;
  Value end = e.number(0);
  for (const std::size_t part : parts) {
    const Value value = convert(e.operand(part), e.output_dtype());
    joined = joined ? hlo::update_slice(joined, value, e.starts(rank, dim, end))
                    : e.resize(value, dim, room);
    end = hlo::add(end, e.extent(e.variables(part)[dim], value.dims()[dim]));
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
      e.require(low[dim] >= 0 && e.arg_variables(1)[2 * i] == kNoVariable);
    }
    high[dim] = e.output_dims()[dim] - low[dim] - from[dim];
  }
  return {hlo::pad(e.operand(0), value, low, high)};
}

// (tensors, dim): a new dimension, which is fixed.
Results stack(Emission& e) {
  e.require_fixed();
  for (std::size_t i = 1; i < e.num_operands(); ++i) e.require(e.variables(i) == e.variables(0));
  return e.ordinary();
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
  if (has_step) e.require(e.variable(step) == kNoVariable && e.integer(step) == 1);
  const Dims& dims = e.output_dims();
  Value sequence = hlo::iota(e.builder(), {DType::kInt64, dims}, 0);
  if (has_start) {
    const Value first = e.extent(e.variable(start), e.integer(start));
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
    e.require(variables[i] == kNoVariable || repeats[added + i] == 1);
  }
  return e.ordinary();
}

// Of the operators whose operands lie as their results, those of which an element sees no others:
// optimizers take norms, gates halves.
bool is_elementwise(std::string_view name, const Lowering& lowering) {
  return lowering.is_pointwise && !lowering.is_random && !name.starts_with("_fused") &&
         !name.starts_with("_amp") && name.find("glu") == std::string_view::npos;
}

const Rules& other_rules() {
  static const Rules table = {
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
      {"isin.Tensor_Tensor", isin},
      {"bucketize.Tensor", bucketize},
      {"stack", stack},
      {"flip", over_fixed<1>},
      {"roll", over_fixed<2>},
      {"sort", over_fixed<1>},
      {"sort.stable", over_fixed<2>},
      {"kthvalue", over_fixed<2>},
      {"median.dim", over_fixed<1>},
      {"nanmedian.dim", over_fixed<1>},
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

Rule find_rule(std::string_view name) {
  for (const Rules* rules : {&other_rules(), &reduction_rules(), &loss_rules(), &gradient_rules(),
                             &indexing_rules(), &sample_rules(), &random_rules()}) {
    if (const auto found = rules->find(name); found != rules->end()) return found->second;
  }
  return nullptr;
}

}  // namespace

std::vector<Value> emit_bounded(const BoundedCall& call, BoundedFrame frame) {
  Emission emission(call, frame);
  const Lowering* const lowering = registry().find(call.entry.op->name, frame.context.platform);
  if (lowering == nullptr || lowering->is_foreach || lowering->is_collective) emission.refuse();
  if (call.entry.op->name == "_scaled_dot_product_flash_attention_for_cpu") {
    return attention(emission, call.entry, frame, kForward);
  }
  if (call.entry.op->name == "_scaled_dot_product_flash_attention_for_cpu_backward") {
    return attention_backward(emission, call.entry, frame);
  }
  if (const Rule rule = find_rule(call.entry.op->name)) return rule(emission);
  if (!is_elementwise(call.entry.op->name, *lowering)) emission.refuse();
  return emission.pointwise();
}

}  // namespace torch_xla::ops

// Collectives: what the members of a group exchange, as PyTorch's functional collectives say it. On
// the CPU, processes meet in calls of the same operators on CPU tensors (aten/exchanges.cpp), in
// the dtypes that travel there: one that begins and one that ends, where that is another. Elsewhere
// they are StableHLO's (replica_collectives.h), in the same dtypes.
#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "ops/aten_call.h"
#include "ops/promotion.h"
#include "ops/replica_collectives.h"
#include "ops/views.h"

namespace torch_xla::ops {
namespace {

const std::string kNamespace = "_c10d_functional:";

graph::Attribute integer(std::int64_t value) {
  return graph::Number{.constant = value, .dtype = DType::kInt64};
}

std::int64_t size_of(const std::string& group) {
  std::int64_t size = 0;
  const char* const end = group.data() + group.size();
  std::from_chars(group.data() + group.find('/') + 1, end, size);
  base::internal_check(size > 0, "'", group, "' names no group");
  return size;
}

// Gives results when they are wanted, once.
template <typename T>
using Later = std::function<T()>;

Later<Value> at_once(Value value) {
  return [value] { return value; };
}

// What the function makes of it.
template <typename F>
Later<Value> after(Later<Value> value, F function) {
  return [value = std::move(value), function = std::move(function)] { return function(value()); };
}

using Between = std::vector<graph::Attribute>;

// The call that ends what another has begun: the first that was and has no end yet.
Value finish(const std::string& op, const Shape& result, Exchanges& exchanges) {
  const Value token = exchanges.token;
  const graph::Attribute first = graph::Operand{0};
  const std::array<const graph::Attribute*, 1> args{&first};
  const std::array operands{token};
  const hlo::Values results =
      call_on_host(op, token.builder(), args, {operands, {}, {}, {}}, {result, token.type()}, {},
                   {{kAtenCallPart, std::string(kFinish)}});
  exchanges.token = results[1];
  return results[0];
}

// One collective being lowered: what it calls, and the token that orders it among all others.
class Meeting {
 public:
  Meeting(Context& context, std::string group, Value token)
      : context_(context), group_(std::move(group)), size_(size_of(group_)), token_(token) {}

  std::int64_t size() const { return size_; }
  // Whether each member may send parts of its own sizes.
  bool takes_uneven_parts() const { return size_ == 1 || context_.platform == "cpu"; }
  Value token() const { return token_; }
  // Whether there is nobody to give to or take from.
  bool is_alone(const Value& input) const { return size_ == 1 || input.num_elements() == 0; }
  // Whether a result is still to come.
  bool has_started() const { return has_started_; }

  // The operator's result for its first argument and those between it and the group.
  Value call(const std::string& op, Value input, const Between& between, const Shape& result) {
    if (context_.replica_groups != nullptr) return exchange(op, input, between);
    const hlo::Values results = emit(op, input, between, {result, token_.type()}, {});
    token_ = results[1];
    return results[0];
  }

  // The same, by two calls where that may be.
  Later<Value> start(const std::string& op, Value input, const Between& between,
                     const Shape& result) {
    Exchanges* const exchanges = context_.exchanges;  // null where there are no calls
    if (exchanges == nullptr || input.type().num_bytes() > kMostBytesStarted) {
      return at_once(call(op, input, between, result));
    }
    has_started_ = true;
    token_ = emit(op, input, between, {token_.type()}, {{kAtenCallPart, std::string(kStart)}})[0];
    return [op, result, exchanges] { return finish(op, result, *exchanges); };
  }

 private:
  Value exchange(const std::string& op, Value input, const Between& between) {
    const auto rows = context_.replica_groups->find(group_);
    base::internal_check(rows != context_.replica_groups->end(), "'", group_, "' has no replicas");
    // In their order on each replica: programs of others may be scheduled otherwise.
    const hlo::Values behind = hlo::optimization_barrier({input, token_});
    const Value result = exchange_among(rows->second, op, behind[0], between);
    const Value token = hlo::optimization_barrier({result, behind[1]})[1];
    token_ = hlo::add(token, hlo::full_like(token, 1.0));
    return result;
  }

  hlo::Values emit(const std::string& op, Value input, const Between& between,
                   const std::vector<Shape>& results, hlo::Attributes attributes) {
    const graph::Attribute first = graph::Operand{0};
    const graph::Attribute group = group_;
    const graph::Attribute token = graph::Operand{1};
    std::vector<const graph::Attribute*> args{&first};
    for (const graph::Attribute& attribute : between) args.push_back(&attribute);
    args.push_back(&group);
    args.push_back(&token);
    const std::array operands{input, token_};
    add_agreement(attributes);
    return call_on_host(op, context_.builder, args, {operands, {}, {}, {}}, results, {},
                        attributes);
  }

  // Of the first call of this collective, and of the first in the program.
  void add_agreement(hlo::Attributes& attributes) {
    Agreement* const of_group = std::exchange(context_.agreement, nullptr);
    if (of_group == nullptr) return;
    attributes.emplace_back(kAtenCallNumber, context_.number_in_agreement);
    if (!std::exchange(of_group->is_carried, true)) {
      attributes.emplace_back(kAtenCallAgreement, of_group->lines);
    }
  }

  Context& context_;
  const std::string group_;
  const std::int64_t size_;
  Value token_;
  bool has_started_ = false;
};

// Bits as they are, in a dtype that travels: a copy of complex numbers has one dimension more.
Value as_carried(Value value) {
  const DType dtype = value.dtype();
  if (base::is_complex(dtype)) return as_real_view(value);
  if (dtype == DType::kBool) return convert(value, DType::kUInt8);
  if (dtype == DType::kInt16 || dtype == DType::kUInt16) {
    return hlo::bitcast_convert(value, DType::kFloat16);
  }
  if (dtype == DType::kUInt32) return hlo::bitcast_convert(value, DType::kInt32);
  if (dtype == DType::kUInt64) return hlo::bitcast_convert(value, DType::kInt64);
  return base::is_float8(dtype) ? hlo::bitcast_convert(value, DType::kUInt8) : value;
}

Value from_carried(Value carried, DType dtype) {
  if (carried.dtype() == dtype) return carried;
  if (base::is_complex(dtype)) return as_complex_view(carried);
  if (dtype == DType::kBool) return convert(carried, dtype);
  return hlo::bitcast_convert(carried, dtype);
}

Shape with_rows(const Value& value, std::int64_t rows) {
  Shape shape = value.type();
  shape.dims[0] = rows;
  return shape;
}

// Calls an operator that moves elements: so many rows of the result come from all of them.
Later<Value> move(Meeting& meeting, const std::string& op, Value input, const Between& between,
                  std::optional<std::int64_t> rows) {
  const Value carried = as_carried(input);
  const Shape type = rows ? with_rows(carried, *rows) : carried.type();
  return after(meeting.start(kNamespace + op, carried, between, type),
               [dtype = input.dtype()](Value v) { return from_carried(v, dtype); });
}

// The greatest bit turned, so that numbers without a sign are ordered as those with one.
Value turned(Value value) {
  return hlo::xor_(value, hlo::full_like(value, std::numeric_limits<std::int64_t>::min()));
}

// A reduction in a dtype that it is computed in, and the way back.
struct Reduced {
  Value value;
  std::string op;
  std::function<Value(Value)> back = [](Value v) { return v; };
};

Reduced reduced_as(Value value, DType carrier, const std::string& op) {
  const DType dtype = value.dtype();
  return {convert(value, carrier), op, [dtype](Value v) { return convert(v, dtype); }};
}

Reduced to_reduced(Value value, const std::string& op) {
  const DType dtype = value.dtype();
  if (dtype == DType::kBool) {  // any, or all
    const bool is_all = op == "product" || op == "min" || op == "band";
    return reduced_as(value, DType::kUInt8, op == "bxor" ? op : is_all ? "min" : "max");
  }
  if (dtype == DType::kInt16 || dtype == DType::kUInt16)
    return reduced_as(value, DType::kInt32, op);
  if (dtype == DType::kUInt32) return reduced_as(value, DType::kInt64, op);
  if (base::is_float8(dtype)) return reduced_as(value, DType::kFloat32, op);
  if (dtype == DType::kUInt64) {
    const Value bits = hlo::bitcast_convert(value, DType::kInt64);
    const auto back = [](Value v) { return hlo::bitcast_convert(v, DType::kUInt64); };
    if (op != "min" && op != "max") return {bits, op, back};
    return {turned(bits), op, [back](Value v) { return back(turned(v)); }};
  }
  if (base::is_complex(dtype)) {
    base::check(op == "sum", "all_reduce does not support ", op, " on complex tensors");
    return {as_real_view(value), op, as_complex_view};
  }
  return {value, op};
}

void check_reduction(const std::string& reduce_op, DType dtype) {
  static constexpr std::string_view kNames[] = {"sum", "avg",  "product", "min",
                                                "max", "band", "bor",     "bxor"};
  if (std::ranges::find(kNames, reduce_op) == std::end(kNames)) {
    base::fail(base::ErrorKind::kValue, "a reduction must be one of sum, avg, product, min, max, ",
               "band, bor, bxor; got '", reduce_op, "'");
  }
  const std::string_view name = base::dtype_info(dtype).name;
  base::check(reduce_op != "avg" || !base::is_integral(dtype), "the average of ", name,
              " is not defined");
  base::check(!reduce_op.starts_with('b') || base::is_integral(dtype), "Cannot use ReduceOp ",
              reduce_op, " with non-integral dtype ", name);
}

// `rows` of the result; everything is reduced alike where they are the input's.
Later<Value> reduce_with(Meeting& meeting, const std::string& op, Value input,
                         std::string reduce_op, const Between& behind,
                         std::optional<std::int64_t> rows) {
  check_reduction(reduce_op, input.dtype());
  if (meeting.is_alone(input)) return at_once(input);
  const bool is_average = reduce_op == "avg";
  const Reduced reduced = to_reduced(input, is_average ? "sum" : reduce_op);
  Between between{reduced.op};
  between.insert(between.end(), behind.begin(), behind.end());
  const Shape type = rows ? with_rows(reduced.value, *rows) : reduced.value.type();
  return after(meeting.start(kNamespace + op, reduced.value, between, type),
               [back = reduced.back, divisor = is_average ? meeting.size() : 1](Value v) {
                 const Value result = back(v);
                 if (divisor == 1) return result;
                 return hlo::divide(result, hlo::full_like(result, static_cast<double>(divisor)));
               });
}

Later<Value> all_reduce(Meeting& meeting, Value input, const std::string& reduce_op) {
  return reduce_with(meeting, "all_reduce", input, reduce_op, {}, {});
}

void check_members(const char* op, const Meeting& meeting, std::int64_t group_size) {
  base::check(group_size == meeting.size(), op, ": group_size is ", group_size,
              ", and the group has ", meeting.size(), " members");
}

Later<Value> all_gather(Meeting& meeting, Value input, std::int64_t group_size) {
  check_members("all_gather_into_tensor", meeting, group_size);
  base::check(input.rank() > 0, "all_gather_into_tensor: expected a tensor with dimensions");
  const std::int64_t rows = input.dim(0) * group_size;
  if (meeting.is_alone(input)) return at_once(hlo::reshape(input, with_rows(input, rows).dims));
  return move(meeting, "all_gather_into_tensor", input, {integer(group_size)}, rows);
}

Later<Value> reduce_scatter(Meeting& meeting, Value input, const std::string& reduce_op,
                            std::int64_t group_size) {
  check_members("reduce_scatter_tensor", meeting, group_size);
  base::check(input.rank() > 0 && input.dim(0) % group_size == 0,
              "reduce_scatter_tensor: the first dimension must divide into ", group_size,
              " parts, got a tensor of size ", base::to_string(input.dims()));
  const std::int64_t rows = input.dim(0) / group_size;
  if (input.num_elements() == 0) return at_once(hlo::reshape(input, with_rows(input, rows).dims));
  return reduce_with(meeting, "reduce_scatter_tensor", input, reduce_op, {integer(group_size)},
                     rows);
}

void check_splits(const char* which, const Dims& splits, std::int64_t size) {
  base::check(std::ranges::none_of(splits, [](std::int64_t n) { return n < 0; }),
              "all_to_all_single: ", which, " must not be negative");
  base::check(std::ssize(splits) == size, "all_to_all_single: ", which, " must have ", size,
              " elements, one for each member, got ", splits.size());
}

Later<Value> all_to_all(Meeting& meeting, Value input, Dims output_splits, Dims input_splits) {
  base::check(input.rank() > 0, "all_to_all_single: expected a tensor with dimensions");
  const Dims even(static_cast<std::size_t>(meeting.size()), input.dim(0) / meeting.size());
  if (output_splits.empty()) output_splits = even;
  if (input_splits.empty()) input_splits = even;
  check_splits("output_split_sizes", output_splits, meeting.size());
  check_splits("input_split_sizes", input_splits, meeting.size());
  const auto total = [](const Dims& sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  };
  base::check(total(input_splits) == input.dim(0),
              "all_to_all_single: input_split_sizes add up to ", total(input_splits),
              ", and the first dimension is ", input.dim(0));
  if (meeting.size() == 1) return at_once(input);
  for (const Dims& splits : {input_splits, output_splits}) {
    if (meeting.takes_uneven_parts() || splits == Dims(splits.size(), splits[0])) continue;
    base::fail(base::ErrorKind::kUnimplemented, "all_to_all_single: parts of different sizes, ",
               base::to_string(splits),
               ", can't be exchanged by this platform's programs; pad them, "
               "or call torch.distributed.all_to_all_single, which goes by the host then");
  }
  return move(meeting, "all_to_all_single", input, {output_splits, input_splits},
              total(output_splits));
}

Later<Value> broadcast(Meeting& meeting, Value input, std::int64_t src) {
  base::check(src >= 0 && src < meeting.size(), "broadcast: there is no member ", src,
              ", the group has ", meeting.size());
  if (meeting.is_alone(input)) return at_once(input);
  return move(meeting, "broadcast", input, {integer(src)}, {});
}

// Tensors of a list that travel together, by dtype: as columns of `rows` rows.
struct Together {
  std::vector<std::size_t> places;  // in the list
  std::vector<std::int64_t> widths;
  Later<Value> columns;
};
using OnRows = std::function<Later<Value>(Value columns)>;
std::vector<Together> started(const std::vector<Value>& inputs, std::int64_t rows,
                              const OnRows& exchange) {
  std::map<DType, std::size_t> by_dtype;
  std::vector<Together> all;
  std::vector<hlo::Values> parts;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto [found, is_new] = by_dtype.try_emplace(inputs[i].dtype(), all.size());
    if (is_new) {
      all.emplace_back();
      parts.emplace_back();
    }
    const std::int64_t width = inputs[i].num_elements() / rows;
    all[found->second].places.push_back(i);
    all[found->second].widths.push_back(width);
    parts[found->second].push_back(hlo::reshape(inputs[i], {rows, width}));
  }
  for (std::size_t k = 0; k < all.size(); ++k) {
    const hlo::Values& own = parts[k];
    all[k].columns = exchange(own.size() == 1 ? own[0] : hlo::concatenate(own, 1));
  }
  return all;
}

Later<std::vector<Value>> coalesced(const std::vector<Value>& inputs, std::int64_t rows,
                                    const std::function<Dims(const Value&)>& result_dims,
                                    const OnRows& exchange) {
  std::vector<Dims> dims;
  for (const Value& input : inputs) dims.push_back(result_dims(input));
  return [dims, all = started(inputs, rows, exchange)] {
    std::vector<Value> results(dims.size());
    for (const Together& together : all) {
      const Value columns = together.columns();
      std::int64_t start = 0;
      for (std::size_t k = 0; k < together.places.size(); ++k) {
        const std::int64_t end = start + together.widths[k];
        const Value part = hlo::slice(columns, {0, start}, {columns.dim(0), end}, {1, 1});
        const std::size_t place = together.places[k];
        results[place] = hlo::reshape(part, dims[place]);
        start = end;
      }
    }
    return results;
  };
}

// The function's results, and the token after it. Each lowering takes the token last.
template <typename F>
std::vector<Value> met(Context& context, const std::string& group, Value token, const F& function) {
  Meeting meeting(context, group, token);
  auto later = function(meeting);
  const auto results = [later = std::move(later)] { return detail::to_results(later()); };
  if (meeting.has_started()) {
    context.exchanges->finish = results;
    return {meeting.token()};
  }
  std::vector<Value> all = results();
  all.push_back(meeting.token());
  return all;
}

void register_lists(Registry& m, const Options& options) {
  m.impl(
      kNamespace + "all_reduce_coalesced",
      [](Context& context, std::vector<Value> inputs, std::string reduce_op, std::string group,
         Value token) {
        return met(context, group, token, [&](Meeting& meeting) {
          return coalesced(
              inputs, 1, [](const Value& v) { return v.dims(); },
              [&](Value columns) { return all_reduce(meeting, columns, reduce_op); });
        });
      },
      options);
  m.impl(
      kNamespace + "all_gather_into_tensor_coalesced",
      [](Context& context, std::vector<Value> inputs, std::int64_t size, std::string group,
         Value token) {
        return met(context, group, token, [&](Meeting& meeting) {
          return coalesced(
              inputs, 1, [&](const Value& v) { return with_rows(v, v.dim(0) * size).dims; },
              [&](Value columns) { return all_gather(meeting, columns, size); });
        });
      },
      options);
  m.impl(
      kNamespace + "reduce_scatter_tensor_coalesced",
      [](Context& context, std::vector<Value> inputs, std::string reduce_op, std::int64_t size,
         std::string group, Value token) {
        return met(context, group, token, [&](Meeting& meeting) {
          return coalesced(
              inputs, size, [&](const Value& v) { return with_rows(v, v.dim(0) / size).dims; },
              [&](Value rows) { return reduce_scatter(meeting, rows, reduce_op, size); });
        });
      },
      options);
}

// Each is two of gloo's, which are ints, and channels have as many again.
constexpr std::int64_t kTags = std::int64_t{1} << 28;

void check_message(const char* op, const Meeting& meeting, std::int64_t peer, std::int64_t tag) {
  const bool is_channel = peer == -1;
  base::check(tag >= 0 && tag < kTags, op, ": ", is_channel ? "channel_id" : "tag",
              " must be from 0 to ", kTags - 1, ", got ", tag);
  base::check(is_channel || (peer >= 0 && peer < meeting.size()), op, ": there is no member ", peer,
              ", the group has ", meeting.size());
  base::check(meeting.size() > 1, op, ": the group has one member, who can't send to itself");
}

void register_point_to_point(Registry& m) {
  const Options options{.is_collective = true, .is_between_two = true};
  m.impl(
      "xla:send",
      [](Context& context, Value input, std::int64_t dst, std::int64_t tag, std::string group,
         Value token) {
        return met(context, group, token, [&](Meeting& meeting) {
          check_message("send", meeting, dst, tag);
          return at_once(
              meeting.call("xla:send", input, {integer(dst), integer(tag)}, token.type()));
        });
      },
      options);
  m.impl(
      "xla:recv",
      [](Context& context, Value like, std::int64_t src, std::int64_t tag, std::string group,
         Value token) {
        return met(context, group, token, [&](Meeting& meeting) {
          check_message("recv", meeting, src, tag);
          return at_once(meeting.call("xla:recv", like, {integer(src), integer(tag)}, like.type()));
        });
      },
      options);
  m.impl(
      "xla:find_sender",
      [](Context& context, Value like, std::int64_t tag, std::string group, Value token) {
        return met(context, group, token, [&](Meeting& meeting) {
          check_message("recv", meeting, 0, tag);
          return at_once(meeting.call("xla:find_sender", like, {integer(tag)}, token.type()));
        });
      },
      options);
}

}  // namespace

void register_collectives(Registry& m) {
  const Options options{.is_collective = true};
  m.impl(
      kNamespace + "all_reduce",
      [](Context& context, Value input, std::string reduce_op, std::string group, Value token) {
        return met(context, group, token,
                   [&](Meeting& meeting) { return all_reduce(meeting, input, reduce_op); });
      },
      options);
  m.impl(
      kNamespace + "all_gather_into_tensor",
      [](Context& context, Value input, std::int64_t size, std::string group, Value token) {
        return met(context, group, token,
                   [&](Meeting& meeting) { return all_gather(meeting, input, size); });
      },
      options);
  m.impl(
      kNamespace + "reduce_scatter_tensor",
      [](Context& context, Value input, std::string reduce_op, std::int64_t size, std::string group,
         Value token) {
        return met(context, group, token, [&](Meeting& meeting) {
          return reduce_scatter(meeting, input, reduce_op, size);
        });
      },
      options);
  m.impl(kNamespace + "all_to_all_single",
         [](Context& context, Value input, Dims output_splits, Dims input_splits, std::string group,
            Value token) {
           return met(context, group, token, [&](Meeting& meeting) {
             return all_to_all(meeting, input, output_splits, input_splits);
           });
         },
         {.is_collective = true, .has_own_sizes = true});
  m.impl(
      kNamespace + "broadcast",
      [](Context& context, Value input, std::int64_t src, std::string group, Value token) {
        return met(context, group, token,
                   [&](Meeting& meeting) { return broadcast(meeting, input, src); });
      },
      options);
  // From and to one member each: the tensor of the member that sends here, or zeros.
  m.impl(
      "xla:collective_permute",
      [](Context& context, Value input, Dims sources, Dims targets, std::string group,
         Value token) {
        return met(context, group, token, [&](Meeting& meeting) {
          if (meeting.size() == 1) {
            return at_once(sources.empty() ? full_like(input, Scalar(0.0)) : input);
          }
          const Value carried = as_carried(input);
          return at_once(from_carried(
              meeting.call("xla:collective_permute", carried, {sources, targets}, carried.type()),
              input.dtype()));
        });
      },
      options);
  register_lists(m, options);
  register_point_to_point(m);
}

}  // namespace torch_xla::ops

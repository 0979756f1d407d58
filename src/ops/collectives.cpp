// Collectives: what the members of a group exchange, as PyTorch's functional collectives say it. On
// the CPU, processes meet in calls of the same operators on CPU tensors (aten/collectives.cpp), in
// the dtypes that travel there.
#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "ops/aten_call.h"
#include "ops/promotion.h"
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

// One collective being lowered: what it calls, and the token that orders it among all others.
class Meeting {
 public:
  Meeting(Context& context, std::string group, Value token)
      : context_(context), group_(std::move(group)), size_(size_of(group_)), token_(token) {}

  std::int64_t size() const { return size_; }
  Value token() const { return token_; }
  // Whether there is nobody to give to or take from.
  bool is_alone(const Value& input) const { return size_ == 1 || input.num_elements() == 0; }

  // The operator's result for its first argument and those between it and the group.
  Value call(const std::string& op, Value input, const std::vector<graph::Attribute>& between,
             const Shape& result) {
    const graph::Attribute first = graph::Operand{0};
    const graph::Attribute group = group_;
    const graph::Attribute token = graph::Operand{1};
    std::vector<const graph::Attribute*> args{&first};
    for (const graph::Attribute& attribute : between) args.push_back(&attribute);
    args.push_back(&group);
    args.push_back(&token);
    const std::array operands{input, token_};
    hlo::Values results = call_on_host(op, context_.builder, args, {operands, {}, {}, {}},
                                       {result, token_.type()}, {}, agreement());
    token_ = results[1];
    return results[0];
  }

 private:
  // Of the first call of this collective, and of the first in the program.
  hlo::Attributes agreement() {
    Agreement* const of_group = std::exchange(context_.agreement, nullptr);
    if (of_group == nullptr) return {};
    hlo::Attributes attributes{{kAtenCallNumber, context_.number_in_agreement}};
    if (!std::exchange(of_group->is_carried, true)) {
      attributes.emplace_back(kAtenCallAgreement, of_group->lines);
    }
    return attributes;
  }

  Context& context_;
  const std::string group_;
  const std::int64_t size_;
  Value token_;
};

bool is_float8(DType dtype) { return base::is_floating(dtype) && base::size_bytes(dtype) == 1; }

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
  return is_float8(dtype) ? hlo::bitcast_convert(value, DType::kUInt8) : value;
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

// Calls an operator that moves elements along the first dimension.
Value move(Meeting& meeting, const std::string& op, Value input,
           const std::vector<graph::Attribute>& between, std::int64_t rows) {
  const Value carried = as_carried(input);
  return from_carried(meeting.call(kNamespace + op, carried, between, with_rows(carried, rows)),
                      input.dtype());
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
  if (is_float8(dtype)) return reduced_as(value, DType::kFloat32, op);
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
Value reduce_with(Meeting& meeting, const std::string& op, Value input, std::string reduce_op,
                  const std::vector<graph::Attribute>& after, std::optional<std::int64_t> rows) {
  check_reduction(reduce_op, input.dtype());
  if (meeting.is_alone(input)) return input;
  const bool is_average = reduce_op == "avg";
  const Reduced reduced = to_reduced(input, is_average ? "sum" : reduce_op);
  std::vector<graph::Attribute> between{reduced.op};
  between.insert(between.end(), after.begin(), after.end());
  const Shape type = rows ? with_rows(reduced.value, *rows) : reduced.value.type();
  const Value result = reduced.back(meeting.call(kNamespace + op, reduced.value, between, type));
  if (!is_average) return result;
  return hlo::divide(result, hlo::full_like(result, static_cast<double>(meeting.size())));
}

Value all_reduce(Meeting& meeting, Value input, const std::string& reduce_op) {
  return reduce_with(meeting, "all_reduce", input, reduce_op, {}, {});
}

void check_members(const char* op, const Meeting& meeting, std::int64_t group_size) {
  base::check(group_size == meeting.size(), op, ": group_size is ", group_size,
              ", and the group has ", meeting.size(), " members");
}

Value all_gather(Meeting& meeting, Value input, std::int64_t group_size) {
  check_members("all_gather_into_tensor", meeting, group_size);
  base::check(input.rank() > 0, "all_gather_into_tensor: expected a tensor with dimensions");
  const std::int64_t rows = input.dim(0) * group_size;
  if (meeting.is_alone(input)) return hlo::reshape(input, with_rows(input, rows).dims);
  return move(meeting, "all_gather_into_tensor", input, {integer(group_size)}, rows);
}

Value reduce_scatter(Meeting& meeting, Value input, const std::string& reduce_op,
                     std::int64_t group_size) {
  check_members("reduce_scatter_tensor", meeting, group_size);
  base::check(input.rank() > 0 && input.dim(0) % group_size == 0,
              "reduce_scatter_tensor: the first dimension must divide into ", group_size,
              " parts, got a tensor of size ", base::to_string(input.dims()));
  const std::int64_t rows = input.dim(0) / group_size;
  if (input.num_elements() == 0) return hlo::reshape(input, with_rows(input, rows).dims);
  return reduce_with(meeting, "reduce_scatter_tensor", input, reduce_op, {integer(group_size)},
                     rows);
}

void check_splits(const char* which, const Dims& splits, std::int64_t size) {
  base::check(std::ranges::none_of(splits, [](std::int64_t n) { return n < 0; }),
              "all_to_all_single: ", which, " must not be negative");
  base::check(std::ssize(splits) == size, "all_to_all_single: ", which, " must have ", size,
              " elements, one for each member, got ", splits.size());
}

Value all_to_all(Meeting& meeting, Value input, Dims output_splits, Dims input_splits) {
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
  if (meeting.size() == 1) return input;
  return move(meeting, "all_to_all_single", input, {output_splits, input_splits},
              total(output_splits));
}

Value broadcast(Meeting& meeting, Value input, std::int64_t src) {
  base::check(src >= 0 && src < meeting.size(), "broadcast: there is no member ", src,
              ", the group has ", meeting.size());
  if (meeting.is_alone(input)) return input;
  const Value carried = as_carried(input);
  return from_carried(
      meeting.call(kNamespace + "broadcast", carried, {integer(src)}, carried.type()),
      input.dtype());
}

// Tensors of a list that travel together, by dtype: as columns of `rows` rows.
using OnRows = std::function<Value(Value columns)>;
std::vector<Value> coalesced(const std::vector<Value>& inputs, std::int64_t rows,
                             const std::function<Dims(const Value&)>& result_dims,
                             const OnRows& exchange) {
  std::vector<Value> results(inputs.size());
  for (std::size_t first = 0; first < inputs.size(); ++first) {
    if (results[first]) continue;
    std::vector<std::size_t> members;
    hlo::Values parts;
    for (std::size_t i = first; i < inputs.size(); ++i) {
      if (inputs[i].dtype() != inputs[first].dtype()) continue;
      members.push_back(i);
      parts.push_back(hlo::reshape(inputs[i], {rows, inputs[i].num_elements() / rows}));
    }
    const Value all = exchange(parts.size() == 1 ? parts[0] : hlo::concatenate(parts, 1));
    std::int64_t start = 0;
    for (std::size_t k = 0; k < members.size(); ++k) {
      const std::int64_t end = start + parts[k].dim(1);
      const Value part = hlo::slice(all, {0, start}, {all.dim(0), end}, {1, 1});
      results[members[k]] = hlo::reshape(part, result_dims(inputs[members[k]]));
      start = end;
    }
  }
  return results;
}

std::vector<Value> with_token(std::vector<Value> results, const Meeting& meeting) {
  results.push_back(meeting.token());
  return results;
}

// The function's results, and the token after it. Each lowering takes the token last.
template <typename F>
std::vector<Value> met(Context& context, const std::string& group, Value token, const F& function) {
  Meeting meeting(context, group, token);
  return with_token(detail::to_results(function(meeting)), meeting);
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
          return meeting.call("xla:send", input, {integer(dst), integer(tag)}, token.type());
        });
      },
      options);
  m.impl(
      "xla:recv",
      [](Context& context, Value like, std::int64_t src, std::int64_t tag, std::string group,
         Value token) {
        return met(context, group, token, [&](Meeting& meeting) {
          check_message("recv", meeting, src, tag);
          return meeting.call("xla:recv", like, {integer(src), integer(tag)}, like.type());
        });
      },
      options);
  m.impl(
      "xla:find_sender",
      [](Context& context, Value like, std::int64_t tag, std::string group, Value token) {
        return met(context, group, token, [&](Meeting& meeting) {
          check_message("recv", meeting, 0, tag);
          return meeting.call("xla:find_sender", like, {integer(tag)}, token.type());
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
  m.impl(
      kNamespace + "all_to_all_single",
      [](Context& context, Value input, Dims output_splits, Dims input_splits, std::string group,
         Value token) {
        return met(context, group, token, [&](Meeting& meeting) {
          return all_to_all(meeting, input, output_splits, input_splits);
        });
      },
      options);
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
          if (meeting.size() == 1) return sources.empty() ? full_like(input, Scalar(0.0)) : input;
          const Value carried = as_carried(input);
          return from_carried(
              meeting.call("xla:collective_permute", carried, {sources, targets}, carried.type()),
              input.dtype());
        });
      },
      options);
  register_lists(m, options);
  register_point_to_point(m);
}

}  // namespace torch_xla::ops

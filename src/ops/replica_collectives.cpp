// By position in a group, a program's replicas differ in `replica_id` alone. Reductions that
// NVIDIA's and AMD's libraries do not have are computed of all members' elements.
#include "ops/replica_collectives.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "ops/promotion.h"

namespace torch_xla::ops {
namespace {

using Between = std::vector<graph::Attribute>;

std::int64_t integer_of(const graph::Attribute& attribute) {
  return std::get<graph::Number>(attribute).constant.to<std::int64_t>();
}

// This replica's place among the members of its group, a 0-dim s64.
Value place_of_replica(const ReplicaRows& rows, hlo::Builder& builder) {
  std::size_t num_replicas = 0;
  for (const Dims& row : rows) num_replicas += row.size();
  Dims places(num_replicas);
  for (const Dims& row : rows) {
    for (std::size_t place = 0; place < row.size(); ++place) {
      places[static_cast<std::size_t>(row[place])] = static_cast<std::int64_t>(place);
    }
  }
  const Value replica = convert(hlo::replica_id(builder), DType::kInt64);
  Dims counted(num_replicas);
  std::iota(counted.begin(), counted.end(), 0);
  if (places == counted) return replica;
  const Value table =
      hlo::constant(builder, {DType::kInt64, {static_cast<std::int64_t>(num_replicas)}},
                    std::span<const std::int64_t>(places));
  return hlo::reshape(hlo::dynamic_slice(table, {replica}, {1}), {});
}

hlo::BinaryRegion reduction_of(const std::string& name) {
  if (name == "sum") return hlo::add;
  if (name == "product") return hlo::multiply;
  if (name == "min") return hlo::minimum;
  if (name == "max") return hlo::maximum;
  if (name == "band") return hlo::and_;
  if (name == "bor") return hlo::or_;
  base::internal_check(name == "bxor", "no reduction is called ", name);
  return hlo::xor_;
}

bool is_bitwise(const std::string& reduction) { return reduction.starts_with('b'); }

Value all_gather(const hlo::Collective& among, Value input) {
  return hlo::all_gather(input, 0, among);
}

// Of all members' elements, which are small numbers of bits in practice: flags and masks.
Value reduce_gathered(const hlo::Collective& among, Value input, const std::string& reduction) {
  Dims row = input.dims();
  row.insert(row.begin(), 1);
  const Value rows = all_gather(among, hlo::reshape(input, row));
  const double none = reduction == "band" ? -1.0 : 0.0;
  return hlo::reduce(rows, scalar(input.builder(), input.dtype(), Scalar(none)), {0},
                     reduction_of(reduction));
}

Value all_reduce(const hlo::Collective& among, Value input, const std::string& reduction) {
  if (is_bitwise(reduction)) return reduce_gathered(among, input, reduction);
  return hlo::all_reduce({input}, among, reduction_of(reduction))[0];
}

Value reduce_scatter(const hlo::Collective& among, Value input, const std::string& reduction) {
  if (!is_bitwise(reduction)) {
    return hlo::reduce_scatter(input, 0, among, reduction_of(reduction));
  }
  const Value whole = reduce_gathered(among, input, reduction);
  Dims part = input.dims();
  part[0] /= std::ssize(among.replica_groups.front());
  hlo::Builder& builder = input.builder();
  const Value place = place_of_replica(among.replica_groups, builder);
  hlo::Values starts{hlo::multiply(place, scalar(builder, DType::kInt64, Scalar(part[0])))};
  starts.resize(part.size(), scalar(builder, DType::kInt64, Scalar(std::int64_t{0})));
  return hlo::dynamic_slice(whole, starts, part);
}

// The bits of numbers in an unsigned dtype that plugins add.
Value as_bits(Value value) {
  switch (base::dtype_info(value.dtype()).size_bytes) {
    case 1: return hlo::bitcast_convert(value, DType::kUInt8);
    case 2: return convert(hlo::bitcast_convert(value, DType::kUInt16), DType::kUInt32);
    case 4: return hlo::bitcast_convert(value, DType::kUInt32);
    default: return hlo::bitcast_convert(value, DType::kUInt64);
  }
}

Value from_bits(Value bits, DType dtype) {
  if (base::dtype_info(dtype).size_bytes == 2) bits = convert(bits, DType::kUInt16);
  return hlo::bitcast_convert(bits, dtype);
}

// The sum of the bits of the one and of the others' zeros: StableHLO's `collective_broadcast` is
// not in every plugin.
Value broadcast(const hlo::Collective& among, Value input, std::int64_t src) {
  hlo::Builder& builder = input.builder();
  const Value is_source =
      hlo::compare(place_of_replica(among.replica_groups, builder),
                   scalar(builder, DType::kInt64, Scalar(src)), hlo::ComparisonDirection::kEq);
  const Value bits = as_bits(input);
  const Value given = hlo::select(is_source, bits, hlo::full_like(bits, 0.0));
  return from_bits(all_reduce(among, given, "sum"), input.dtype());
}

Value permute(const ReplicaRows& rows, Value input, const Dims& sources, const Dims& targets) {
  hlo::SourceTargetPairs pairs;
  for (const Dims& row : rows) {
    for (std::size_t i = 0; i < sources.size(); ++i) {
      pairs.emplace_back(row[static_cast<std::size_t>(sources[i])],
                         row[static_cast<std::size_t>(targets[i])]);
    }
  }
  return hlo::collective_permute(input, pairs);
}

}  // namespace

Value exchange_among(const ReplicaRows& rows, const std::string& op, Value input,
                     const Between& between) {
  const hlo::Collective among{.replica_groups = rows};
  const std::string name = op.substr(op.find(':') + 1);
  const auto word = [&] { return std::get<std::string>(between[0]); };
  const auto dims = [&](std::size_t i) { return std::get<Dims>(between[i]); };
  if (name == "all_reduce") return all_reduce(among, input, word());
  if (name == "reduce_scatter_tensor") return reduce_scatter(among, input, word());
  if (name == "all_gather_into_tensor") return all_gather(among, input);
  if (name == "broadcast") return broadcast(among, input, integer_of(between[0]));
  if (name == "collective_permute") return permute(rows, input, dims(0), dims(1));
  if (name == "all_to_all_single") {  // in parts of one size
    return hlo::all_to_all(input, 0, 0, std::ssize(rows.front()), among);
  }
  base::fail(base::ErrorKind::kUnimplemented, name,
             ": messages between two replicas can be parts of the CPU's programs alone");
}

}  // namespace torch_xla::ops

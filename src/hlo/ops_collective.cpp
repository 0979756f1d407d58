// Collectives: operations in which the replicas or partitions of a program meet.
#include <array>
#include <set>

#include "hlo/checks.h"
#include "hlo/text.h"

namespace torch_xla::hlo {
namespace {

std::string channel_text(std::int64_t channel_id) {
  std::string out = "channel_handle = #stablehlo.channel_handle<handle = ";
  append_integer(out, channel_id);
  return out + ", type = 1>";
}

std::size_t group_size(std::string_view name, const Collective& collective) {
  require(!collective.replica_groups.empty(), name, "needs a replica group");
  const std::size_t size = collective.replica_groups.front().size();
  std::set<std::int64_t> seen;
  for (const Dims& group : collective.replica_groups) {
    require(!group.empty() && group.size() == size, name, "replica groups must be of one size");
    for (const std::int64_t replica : group) {
      require(replica >= 0 && seen.insert(replica).second, name,
              "a replica must be in one group, got ", replica);
    }
  }
  return size;
}

std::string collective_properties(const Collective& collective, bool takes_global_ids) {
  std::string out =
      "replica_groups = " +
      matrix_attribute(collective.replica_groups, collective.replica_groups.front().size());
  if (collective.channel_id > 0) out += ", " + channel_text(collective.channel_id);
  if (takes_global_ids && collective.use_global_device_ids) out += ", use_global_device_ids";
  return out;
}

Builder::RegionText computation(std::string_view name, Builder& builder, DType dtype,
                                const BinaryRegion& body) {
  const Type element{dtype, {}};
  const std::array<Type, 2> arguments{element, element};
  Builder::RegionText region =
      builder.region(arguments, [&](std::span<const Value> x) { return Values{body(x[0], x[1])}; });
  require_yields(name, region.yielded, {&element, 1});
  return region;
}

}  // namespace

Values all_reduce(const Values& operands, const Collective& collective, const BinaryRegion& body) {
  static constexpr std::string_view kName = "stablehlo.all_reduce";
  require_values(kName, operands);
  group_size(kName, collective);
  std::vector<Type> results;
  for (const Value& operand : operands) {
    require(operand.dtype() == operands[0].dtype(), kName,
            "all operands must be of one dtype, got ", Show(operands[0]), " and ", Show(operand));
    results.push_back(operand.type());
  }
  Builder& builder = operands[0].builder();
  const Builder::RegionText region = computation(kName, builder, operands[0].dtype(), body);
  return builder.op(kName, operands, results, collective_properties(collective, true),
                    {&region.text, 1});
}

Value all_gather(Value operand, std::int64_t all_gather_dim, const Collective& collective) {
  static constexpr std::string_view kName = "stablehlo.all_gather";
  require_value(kName, operand);
  require_dimension(kName, "all_gather_dim", all_gather_dim, operand.rank());
  Type result = operand.type();
  result.dims[static_cast<std::size_t>(all_gather_dim)] *=
      static_cast<std::int64_t>(group_size(kName, collective));
  return operand.builder().op(kName, {&operand, 1}, result,
                              "all_gather_dim = " + integer_attribute(all_gather_dim) + ", " +
                                  collective_properties(collective, true));
}

Value reduce_scatter(Value operand, std::int64_t scatter_dimension, const Collective& collective,
                     const BinaryRegion& body) {
  static constexpr std::string_view kName = "stablehlo.reduce_scatter";
  require_value(kName, operand);
  require_dimension(kName, "scatter_dimension", scatter_dimension, operand.rank());
  const auto size = static_cast<std::int64_t>(group_size(kName, collective));
  Type result = operand.type();
  std::int64_t& scattered = result.dims[static_cast<std::size_t>(scatter_dimension)];
  require(scattered % size == 0, kName, "dimension ", scatter_dimension,
          " must divide into groups of ", size, ", got ", Show(operand));
  scattered /= size;
  Builder& builder = operand.builder();
  const Builder::RegionText region = computation(kName, builder, operand.dtype(), body);
  return builder.op(kName, {&operand, 1}, result,
                    "scatter_dimension = " + integer_attribute(scatter_dimension) + ", " +
                        collective_properties(collective, true),
                    {&region.text, 1});
}

Value all_to_all(Value operand, std::int64_t split_dimension, std::int64_t concat_dimension,
                 std::int64_t split_count, const Collective& collective) {
  static constexpr std::string_view kName = "stablehlo.all_to_all";
  require_value(kName, operand);
  require_dimension(kName, "split_dimension", split_dimension, operand.rank());
  require_dimension(kName, "concat_dimension", concat_dimension, operand.rank());
  require(static_cast<std::int64_t>(group_size(kName, collective)) == split_count, kName,
          "split_count must be the groups' size, got ", split_count);
  require(operand.dim(split_dimension) % split_count == 0, kName, "dimension ", split_dimension,
          " must divide into ", split_count, ", got ", Show(operand));
  Type result = operand.type();
  result.dims[static_cast<std::size_t>(split_dimension)] /= split_count;
  result.dims[static_cast<std::size_t>(concat_dimension)] *= split_count;
  return operand.builder().op(kName, {&operand, 1}, result,
                              "split_dimension = " + integer_attribute(split_dimension) +
                                  ", concat_dimension = " + integer_attribute(concat_dimension) +
                                  ", split_count = " + integer_attribute(split_count) + ", " +
                                  collective_properties(collective, false));
}

Value collective_permute(Value operand, const SourceTargetPairs& source_target_pairs,
                         std::int64_t channel_id) {
  static constexpr std::string_view kName = "stablehlo.collective_permute";
  require_value(kName, operand);
  std::set<std::int64_t> sources;
  std::set<std::int64_t> targets;
  for (const auto& [source, target] : source_target_pairs) {
    require(source >= 0 && target >= 0 && sources.insert(source).second &&
                targets.insert(target).second,
            kName, "sources and targets must be unique and not negative, got ", source, " to ",
            target);
  }
  std::string properties = "source_target_pairs = " + matrix_attribute(source_target_pairs);
  if (channel_id > 0) properties += ", " + channel_text(channel_id);
  return operand.builder().op(kName, {&operand, 1}, operand.type(), properties);
}

Value collective_broadcast(Value operand, const Collective& collective) {
  static constexpr std::string_view kName = "stablehlo.collective_broadcast";
  require_value(kName, operand);
  group_size(kName, collective);
  return operand.builder().op(kName, {&operand, 1}, operand.type(),
                              collective_properties(collective, false));
}

Value partition_id(Builder& builder) {
  return builder.op("stablehlo.partition_id", {}, Type{DType::kUInt32, {}});
}

Value replica_id(Builder& builder) {
  return builder.op("stablehlo.replica_id", {}, Type{DType::kUInt32, {}});
}

}  // namespace torch_xla::hlo

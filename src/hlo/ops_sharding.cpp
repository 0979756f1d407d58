// How values of a module lie on meshes, in Shardy's words, or GSPMD's (gspmd.h).
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "hlo/checks.h"
#include "hlo/gspmd.h"
#include "hlo/manual.h"
#include "hlo/partitioned.h"
#include "hlo/text.h"

namespace torch_xla::hlo {
namespace {

thread_local const base::Sharding* whole = nullptr;
thread_local Partitioner partitioner = Partitioner::kShardy;

bool is_gspmd() { return partitioner == Partitioner::kGspmd; }

// A mesh goes by what it is, so that who mentions it first need not be known.
std::string mesh_name(const std::string& mesh) {
  base::Hasher hasher;
  hasher.add(std::string_view(mesh));
  return "mesh_" + base::to_string(hasher.finish()).substr(0, 8);
}

std::string declare_mesh(Builder& builder, const base::Mesh& mesh) {
  std::string text = base::axes_text(mesh);
  if (!mesh.devices.empty()) {
    text += ", device_ids=" + list(Dims(mesh.devices.begin(), mesh.devices.end()));
  }
  std::string name = mesh_name(text);
  builder.add_module_operation(base::str("sdy.mesh @", name, " = <", text, ">"));
  return name;
}

// "<@mesh, [{"data"}, {}]" without its end.
std::string open_sharding(Builder& builder, const base::Sharding& sharding, std::int64_t rank) {
  std::string text = base::str("<@", declare_mesh(builder, sharding.mesh()), ", [");
  for (std::size_t d = 0; d < static_cast<std::size_t>(rank); ++d) {
    text += d > 0 ? ", {" : "{";
    if (d < sharding.axes().size()) {
      bool is_first = true;
      for (const int axis : sharding.axes()[d]) {
        if (!std::exchange(is_first, false)) text += ", ";
        text += base::axis_text(sharding.mesh(), axis);
      }
    }
    text += "}";
  }
  return text + "]";
}

// "<@mesh, [{"data"}, {}], replicated={"model"}>": within a manual computation each axis that is
// manual must be named.
std::string manual_sharding(Builder& builder, const base::Sharding& sharding, std::size_t rank) {
  std::vector<bool> is_used(sharding.mesh().sizes.size());
  for (const std::vector<int>& of_dimension : sharding.axes()) {
    for (const int axis : of_dimension) is_used[static_cast<std::size_t>(axis)] = true;
  }
  std::string rest;
  for (std::size_t axis = 0; axis < is_used.size(); ++axis) {
    if (is_used[axis]) continue;
    rest += (rest.empty() ? "" : ", ") + base::axis_text(sharding.mesh(), static_cast<int>(axis));
  }
  std::string text = open_sharding(builder, sharding, static_cast<std::int64_t>(rank));
  if (!rest.empty()) text += ", replicated={" + rest + "}";
  return text + ">";
}

// A computation of each device by itself, of its parts of the operands, which lie by `in`; the
// results lie by `out`.
Values manual_computation(const Values& operands, std::span<const Type> parts,
                          std::span<const Type> results, const base::Sharding& in,
                          const base::Sharding& out, const Region& body) {
  if (is_gspmd()) return gspmd::manual_computation(operands, parts, results, in, out, body);
  static constexpr std::string_view kName = "sdy.manual_computation";
  Builder& builder = operands[0].builder();
  std::string axes;
  for (std::size_t axis = 0; axis < in.mesh().sizes.size(); ++axis) {
    axes += (axis > 0 ? ", " : "") + base::axis_text(in.mesh(), static_cast<int>(axis));
  }
  std::string region = builder.region(parts, body).text;
  // The builder ends regions in StableHLO's way, where it makes text.
  static constexpr std::string_view kEnd = "stablehlo.return";
  const std::size_t end = region.rfind(kEnd);
  if (end != std::string::npos) region.replace(end, kEnd.size(), "sdy.return");
  const auto shardings = [&](const base::Sharding& sharding, const auto& values) {
    std::string text;
    for (const auto& value : values) {
      text += (text.empty() ? "" : ", ") + manual_sharding(builder, sharding, value.dims.size());
    }
    return "#sdy.sharding_per_value<[" + text + "]>";
  };
  return builder.op(
      kName, operands, results,
      base::str("in_shardings = ", shardings(in, parts), ", manual_axes = #sdy<manual_axes{", axes,
                "}>, out_shardings = ", shardings(out, results)),
      {&region, 1});
}

Value manual_identity(Value operand, const Type& local, const Type& result,
                      const base::Sharding& in, const base::Sharding& out) {
  return manual_computation({operand}, {&local, 1}, {&result, 1}, in, out,
                            [](std::span<const Value> x) { return Values{x[0]}; })[0];
}

const base::Sharding& whole_on(const base::Mesh& mesh) { return *base::Sharding::make(mesh, {}); }

void require_equal_parts(std::string_view name, const base::Sharding& sharding, const Type& type) {
  require(sharding.axes().size() <= type.dims.size() && sharding.divides(type), name,
          "expected dimensions that ", sharding.text(), " splits into equal parts, got ",
          Show(type));
}

}  // namespace

std::string_view sharding_attribute_name() { return is_gspmd() ? "mhlo.sharding" : "sdy.sharding"; }

std::string sharding_attribute(Builder& builder, const base::Sharding& sharding,
                               std::int64_t rank) {
  if (is_gspmd()) return gspmd::sharding_attribute(sharding, rank);
  return "#sdy.sharding" + open_sharding(builder, sharding, rank) + ">";
}

PartitionedScope::PartitionedScope(const base::Sharding* whole_of_program, Partitioner of_program)
    : before_(std::exchange(whole, whole_of_program)),
      partitioner_before_(std::exchange(partitioner, of_program)) {}
PartitionedScope::~PartitionedScope() {
  whole = before_;
  partitioner = partitioner_before_;
}

bool is_partitioned() { return whole != nullptr; }

std::int64_t num_partitions() {
  return is_partitioned() ? static_cast<std::int64_t>(whole->num_shards()) : 1;
}

Value whole_along(Value operand, const Dims& dims) {
  if (!is_partitioned()) return operand;
  if (is_gspmd()) return gspmd::whole_along(operand, dims);
  std::string text =
      base::str("#sdy.sharding<@", declare_mesh(operand.builder(), whole->mesh()), ", [");
  for (std::int64_t d = 0; d < operand.rank(); ++d) {
    const bool is_whole = std::find(dims.begin(), dims.end(), d) != dims.end();
    text += base::str(d > 0 ? ", " : "", is_whole ? "{}" : "{?}");
  }
  return operand.builder().op("sdy.sharding_constraint", {&operand, 1}, operand.type(),
                              "sharding = " + text + "]>");
}

Values on_each_device(const Values& operands, std::span<const Type> results, const Region& body) {
  const base::Sharding& all = whole_on(whole->mesh());
  std::vector<Type> types;
  for (const Value& operand : operands) types.push_back(operand.type());
  return manual_computation(operands, types, results, all, all, body);
}

Value full_to_shard(Value operand, const base::Sharding& sharding) {
  static constexpr std::string_view kName = "full_to_shard";
  require_value(kName, operand);
  require_equal_parts(kName, sharding, operand.type());
  const Type local = sharding.local_shape(operand.type());
  return manual_identity(operand, local, local, sharding, whole_on(sharding.mesh()));
}

Value shard_to_full(Value operand, const base::Sharding& sharding, const Dims& dims) {
  static constexpr std::string_view kName = "shard_to_full";
  require_value(kName, operand);
  const Type full{operand.type().dtype, dims};
  require_equal_parts(kName, sharding, full);
  const Type local = sharding.local_shape(full);
  require(local == operand.type(), kName, "expected a part ", Show(local), " of ", Show(full),
          ", got ", Show(operand));
  return manual_identity(operand, local, full, whole_on(sharding.mesh()), sharding);
}

Value sharding_constraint(Value operand, const base::Sharding& sharding) {
  static constexpr std::string_view kName = "sdy.sharding_constraint";
  require_value(kName, operand);
  require(std::cmp_less_equal(sharding.axes().size(), operand.rank()), kName, "it splits ",
          sharding.axes().size(), " dimensions, and the operand is ", Show(operand));
  if (is_gspmd()) return gspmd::sharding_constraint(operand, sharding);
  return operand.builder().op(
      kName, {&operand, 1}, operand.type(),
      "sharding = " + sharding_attribute(operand.builder(), sharding, operand.rank()));
}

}  // namespace torch_xla::hlo

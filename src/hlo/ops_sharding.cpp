// Shardy: the meshes of a module, and how its values lie on them.
#include <utility>

#include "base/hash.h"
#include "hlo/checks.h"
#include "hlo/text.h"

namespace torch_xla::hlo {
namespace {

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

}  // namespace

std::string sharding_attribute(Builder& builder, const base::Sharding& sharding,
                               std::int64_t rank) {
  std::string text = base::str("#sdy.sharding<@", declare_mesh(builder, sharding.mesh()), ", [");
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
  return text + "]>";
}

Value sharding_constraint(Value operand, const base::Sharding& sharding) {
  static constexpr std::string_view kName = "sdy.sharding_constraint";
  require_value(kName, operand);
  require(std::cmp_less_equal(sharding.axes().size(), operand.rank()), kName, "it splits ",
          sharding.axes().size(), " dimensions, and the operand is ", Show(operand));
  return operand.builder().op(
      kName, {&operand, 1}, operand.type(),
      "sharding = " + sharding_attribute(operand.builder(), sharding, operand.rank()));
}

}  // namespace torch_xla::hlo

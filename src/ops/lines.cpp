// What people read, and what is compared of it.
#include "ops/lines.h"

#include <cstddef>
#include <set>
#include <variant>

#include "base/dtype.h"
#include "base/error.h"
#include "base/hash.h"
#include "graph/location.h"
#include "ops/regions.h"
#include "ops/registry.h"

namespace torch_xla::ops {
namespace {

// The first operands and arguments of the call.
std::string spoken(const graph::Node& node, std::size_t num_operands, std::size_t num_args,
                   bool has_own_sizes) {
  const graph::Entry& entry = *node.entry();
  std::string text = entry.op->name.substr(entry.op->name.find(':') + 1) + "(";
  for (std::size_t i = 0; i < num_operands; ++i) {
    const base::Shape& shape = entry.operands[i]->shape;
    if (i > 0) text += ", ";
    text += has_own_sizes ? base::dtype_info(shape.dtype).short_name : base::to_string(shape);
  }
  for (std::size_t i = 0; i < num_args; ++i) {
    if (const auto* word = std::get_if<std::string>(&entry.args[i])) text += ", " + *word;
    if (const auto* number = std::get_if<graph::Number>(&entry.args[i])) {
      text += base::str(", ", number->constant.to<std::int64_t>());
    }
    const auto* dims = std::get_if<base::Dims>(&entry.args[i]);
    if (dims != nullptr && !has_own_sizes) text += ", " + base::to_string(*dims);
  }
  text += ")";
  const graph::SourceLine& line = graph::source_line(node.location());
  if (node.location() != 0) text += base::str("\t", line.frame.file, ":", line.frame.line);
  return text + "\n";
}

// Calls `visit(collective, group)` for those of groups of several, the node or in its regions.
template <typename Visit>
void visit_collectives(const graph::Node& node, const Visit& visit) {
  const graph::Entry& entry = *node.entry();
  if (!exchanges(entry)) return;
  if (entry.op->region == nullptr) {
    const auto& group = std::get<std::string>(entry.args[entry.args.size() - 2]);
    if (!group.ends_with("/1")) visit(node, group);
    return;
  }
  for (const graph::RegionPtr& region : entry.op->region->regions) {
    for (const graph::Trace::Step& step : region->trace.steps) visit_collectives(*step.node, visit);
  }
}

}  // namespace

std::string line_of(const graph::Node& node) {
  return spoken(node, node.entry()->operands.size(), 0, false);
}

std::string line_of_collective(const graph::Node& node, bool has_own_sizes) {
  const graph::Entry& entry = *node.entry();
  // The last operand is the token; the last arguments are the group and the token.
  return spoken(node, entry.operands.size() - 1, entry.args.size() - 2, has_own_sizes);
}

std::int64_t key_of_line(std::string_view line) {
  base::Hasher hasher;
  hasher.add(line.substr(0, line.find_first_of("\t\n")));
  return static_cast<std::int64_t>(hasher.finish().lo);
}

std::vector<std::string> groups_of(const graph::Node& node) {
  std::set<std::string> groups;
  visit_collectives(node, [&](const auto&, const std::string& group) { groups.insert(group); });
  return {groups.begin(), groups.end()};
}

std::map<std::string, std::vector<std::string>> lines_of_collectives(const graph::Trace& trace) {
  std::map<std::string, std::vector<std::string>> lines;
  const auto add = [&](const graph::Node& collective, const std::string& group) {
    const Lowering& lowering = *registry().find(collective.entry()->op->name, "");
    lines[group].push_back(line_of_collective(collective, lowering.has_own_sizes));
  };
  for (const graph::Trace::Step& step : trace.steps) visit_collectives(*step.node, add);
  return lines;
}

std::string lines_of(const graph::Trace& trace, std::span<const Donation> donations) {
  std::string lines;
  for (const graph::Trace::Step& step : trace.steps) lines += line_of(*step.node);
  for (const graph::Source& root : trace.roots) {
    lines += base::str("the result ", root.output, " of number ", root.index + 1, "\n");
  }
  for (const Donation& donation : donations) {
    lines += base::str("the memory of input ", donation.leaf + 1, " for result ", donation.root + 1,
                       "\n");
  }
  return lines;
}

}  // namespace torch_xla::ops

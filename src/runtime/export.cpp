// Puts a trace's leaves into the order of the inputs before it is lowered.
#include "runtime/export.h"

#include <unordered_map>

#include "ops/lower.h"
#include "runtime/plan.h"
#include "runtime/target.h"

namespace torch_xla::runtime {

ExportedProgram export_program(Device& device, std::span<const graph::Value> values,
                               std::span<const graph::DataPtr> inputs) {
  graph::Trace trace = trace_of(device, values);
  ExportedProgram result;
  std::vector<graph::DataPtr> leaves(inputs.begin(), inputs.end());
  std::unordered_map<const graph::Data*, std::uint32_t> places;
  for (std::uint32_t i = 0; i < inputs.size(); ++i) places.try_emplace(inputs[i].get(), i);
  for (const graph::DataPtr& leaf : trace.leaves) {
    if (!places.try_emplace(leaf.get(), static_cast<std::uint32_t>(leaves.size())).second) continue;
    leaves.push_back(leaf);
    result.captured.push_back(leaf);
  }
  const auto move_leaf = [&](graph::Source& source) {
    if (source.is_leaf) source.index = places.at(trace.leaves[source.index].get());
  };
  for (graph::Source& source : trace.sources) move_leaf(source);
  for (graph::Source& root : trace.roots) move_leaf(root);
  trace.leaves = std::move(leaves);
  result.text = ops::lower(trace, exported_target()).text;
  return result;
}

}  // namespace torch_xla::runtime

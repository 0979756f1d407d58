// Results are in the order of the steps, so that equal parts hand on equal lists.
#include "runtime/graph_parts.h"

#include <algorithm>
#include <set>
#include <utility>

#include "ops/regions.h"

namespace torch_xla::runtime {
namespace {

using graph::Source;
using graph::Trace;

// What stands for the source: a part that reads a view of a tensor is given the tensor.
Source without_views(const Trace& trace, Source source) {
  while (!source.is_leaf && trace.steps[source.index].node->entry()->op->is_view) {
    source = trace.sources[trace.steps[source.index].first_source];
  }
  return source;
}

bool is_constant(const Trace& trace, const Source& source) {
  return trace.steps[source.index].node->entry()->operands.empty();
}

}  // namespace

std::span<const Source> sources_of(const Trace& trace, std::uint32_t step) {
  return std::span(trace.sources)
      .subspan(trace.steps[step].first_source, trace.steps[step].node->entry()->operands.size());
}

bool exchanges(const Trace& trace) {
  return std::ranges::any_of(
      trace.steps, [](const Trace::Step& step) { return ops::exchanges(*step.node->entry()); });
}

std::vector<std::vector<Source>> handed_on(const Trace& trace,
                                           const std::vector<std::uint32_t>& part_of_step,
                                           std::size_t num_parts, Cheap cheap) {
  std::vector<std::set<std::pair<std::uint32_t, std::uint32_t>>> outputs(num_parts);
  const auto add = [&](Source source, std::uint32_t reader) {
    if (cheap == Cheap::kComputedAgain) source = without_views(trace, source);
    if (source.is_leaf) return;
    const std::uint32_t part = part_of_step[source.index];
    if (part == kRest || part == reader) return;
    if (cheap == Cheap::kComputedAgain && is_constant(trace, source)) return;
    outputs[part].emplace(source.index, source.output);
  };
  for (std::uint32_t i = 0; i < trace.steps.size(); ++i) {
    for (const Source& source : sources_of(trace, i)) add(source, part_of_step[i]);
  }
  for (const Source& root : trace.roots) add(root, kRest);
  std::vector<std::vector<Source>> sources(num_parts);
  for (std::size_t part = 0; part < num_parts; ++part) {
    for (const auto& [step, output] : outputs[part]) sources[part].push_back({step, output, false});
  }
  return sources;
}

std::vector<graph::Value> values_of(const Trace& trace, const std::vector<Source>& sources) {
  std::vector<graph::Value> values;
  values.reserve(sources.size());
  for (const Source& source : sources) {
    values.push_back({trace.steps[source.index].node, source.output});
  }
  return values;
}

}  // namespace torch_xla::runtime

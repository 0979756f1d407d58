// Finding marks and what lies between them. Iterative: a graph may be deep.
#include "ops/composite.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "ops/registry.h"

namespace torch_xla::ops {
namespace {

constexpr std::string_view kMark = "xla:_mark_tensor";

// The arguments of _mark_tensor.
struct Mark {
  std::string name;
  std::int64_t position;
  std::string id;
  bool is_input;
  std::string attributes;
};

bool is_mark(const graph::Trace::Step& step) { return step.node->entry()->op->name == kMark; }

Mark mark_of(const graph::Trace::Step& step) {
  const std::vector<graph::Attribute>& args = step.node->entry()->args;
  return {std::get<std::string>(args.at(1)),
          std::get<graph::Number>(args.at(2)).constant.to<std::int64_t>(),
          std::get<std::string>(args.at(3)),
          std::get<graph::Number>(args.at(4)).constant.to<bool>(),
          std::get<std::string>(args.at(5))};
}

std::span<const graph::Source> sources_of(const graph::Trace& trace, std::uint32_t step) {
  const std::size_t first = trace.steps[step].first_source;
  return std::span(trace.sources).subspan(first, trace.steps[step].node->entry()->operands.size());
}

// Fills in what lies between the output marks and the input marks of `id`.
void find_body(const graph::Trace& trace, const std::string& id, Composite& composite) {
  std::map<std::int64_t, std::uint32_t> inputs;
  std::set<std::uint32_t> body;
  std::set<std::uint32_t> leaves;
  std::vector<std::uint32_t> pending = composite.outputs;
  while (!pending.empty()) {
    const std::uint32_t step = pending.back();
    pending.pop_back();
    for (const graph::Source& source : sources_of(trace, step)) {
      if (source.is_leaf) {
        leaves.insert(source.index);
        continue;
      }
      const graph::Trace::Step& from = trace.steps[source.index];
      if (is_mark(from)) {
        const Mark mark = mark_of(from);
        if (mark.id == id && mark.is_input) {
          inputs[mark.position] = source.index;
          continue;
        }
      }
      if (body.insert(source.index).second) pending.push_back(source.index);
    }
  }
  for (const auto& [position, step] : inputs) composite.inputs.push_back(step);
  composite.body.assign(body.begin(), body.end());
  composite.leaves.assign(leaves.begin(), leaves.end());
}

}  // namespace

hlo::Attributes parse_attributes(std::string_view text) {
  hlo::Attributes attributes;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t equals = line.find('=');
    base::check(equals != line.npos && line.size() > equals + 2 && line[equals + 2] == ':',
                "an attribute must look like name=i:1, got '", line, "'");
    const std::string name(line.substr(0, equals));
    const std::string value(line.substr(equals + 3));
    switch (line[equals + 1]) {
      case 'i': attributes.emplace_back(name, std::int64_t{std::stoll(value)}); break;
      case 'f': attributes.emplace_back(name, std::stof(value)); break;
      case 'b': attributes.emplace_back(name, value == "1"); break;
      default: attributes.emplace_back(name, value); break;
    }
  }
  return attributes;
}

std::vector<Composite> find_composites(const graph::Trace& trace) {
  std::map<std::string, std::map<std::int64_t, std::uint32_t>> outputs;
  for (std::uint32_t i = 0; i < trace.steps.size(); ++i) {
    if (!is_mark(trace.steps[i])) continue;
    const Mark mark = mark_of(trace.steps[i]);
    if (!mark.is_input) outputs[mark.id][mark.position] = i;
  }
  std::vector<Composite> composites;
  for (const auto& [id, steps] : outputs) {
    Composite& composite = composites.emplace_back();
    for (const auto& [position, step] : steps) composite.outputs.push_back(step);
    const Mark mark = mark_of(trace.steps[composite.outputs.front()]);
    composite.name = mark.name;
    composite.attributes = parse_attributes(mark.attributes);
    find_body(trace, id, composite);
  }
  return composites;
}

std::vector<std::uint32_t> contracted_order(const graph::Trace& trace,
                                            const std::vector<Composite>& composites) {
  std::map<std::uint32_t, const Composite*> by_output;
  for (const Composite& composite : composites) {
    for (const std::uint32_t output : composite.outputs) by_output[output] = &composite;
  }
  const auto needed_by = [&](std::uint32_t step) {
    const auto composite = by_output.find(step);
    if (composite != by_output.end()) return composite->second->inputs;
    std::vector<std::uint32_t> steps;
    for (const graph::Source& source : sources_of(trace, step)) {
      if (!source.is_leaf) steps.push_back(source.index);
    }
    return steps;
  };
  std::vector<std::uint32_t> order;
  std::vector<bool> is_seen(trace.steps.size());
  struct Visit {
    std::uint32_t step;
    std::vector<std::uint32_t> needed;
    std::size_t next = 0;
  };
  std::vector<Visit> stack;
  const auto enter = [&](std::uint32_t step) {
    if (is_seen[step]) return;
    is_seen[step] = true;
    stack.push_back({step, needed_by(step)});
  };
  for (const graph::Source& root : trace.roots) {
    if (!root.is_leaf) enter(root.index);
    while (!stack.empty()) {
      Visit& top = stack.back();
      if (top.next < top.needed.size()) {
        enter(top.needed[top.next++]);
        continue;
      }
      order.push_back(top.step);
      stack.pop_back();
    }
  }
  return order;
}

}  // namespace torch_xla::ops

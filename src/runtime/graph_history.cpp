// Comparing graphs. Entries are unique per call, so that comparing their addresses compares
// operator, types and constants at once.
#include "runtime/graph_history.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "graph/print.h"
#include "runtime/seen_numbers.h"

namespace torch_xla::runtime {
namespace {

using Step = GraphSummary::Step;

std::string named(const Step& step) {
  std::string text = "aten::" + step.entry->op->name;
  if (step.location != 0) text += " (" + graph::to_string(step.location) + ")";
  return text;
}

std::string operand_name(const graph::Entry& entry, std::uint32_t operand) {
  for (std::size_t i = 0; i < entry.args.size(); ++i) {
    const auto* one = std::get_if<graph::Operand>(&entry.args[i]);
    if (one != nullptr && one->index == operand) return graph::argument_name(*entry.op, i);
    const auto* list = std::get_if<graph::OperandList>(&entry.args[i]);
    if (list == nullptr) continue;
    for (std::size_t k = 0; k < list->indices.size(); ++k) {
      if (list->indices[k] == static_cast<std::int32_t>(operand)) {
        return base::str(graph::argument_name(*entry.op, i), "[", k, "]");
      }
    }
  }
  return base::str("operand ", operand);
}

// Two calls of one operator.
std::string call_difference(const Step& now, const Step& before) {
  const graph::Entry& a = *now.entry;
  const graph::Entry& b = *before.entry;
  const std::string prefix = named(now) + ": ";
  for (std::uint32_t i = 0; i < std::min(a.operands.size(), b.operands.size()); ++i) {
    const base::Shape& shape = a.operands[i]->shape;
    if (shape == b.operands[i]->shape) continue;
    return base::str(prefix, "'", operand_name(a, i), "' is ", base::to_string(shape), ", was ",
                     base::to_string(b.operands[i]->shape));
  }
  for (std::size_t i = 0; i < std::min(a.args.size(), b.args.size()); ++i) {
    const std::string name = graph::argument_name(*a.op, i);
    const std::string value = graph::to_string(a.args[i]);
    const std::string old = graph::to_string(b.args[i]);
    if (value != old) return base::str(prefix, "'", name, "' is ", value, ", was ", old);
    if (a.args[i] != b.args[i]) return base::str(prefix, "'", name, "' has another type");
  }
  if (a.outputs != b.outputs) return prefix + "the result has another type";
  return prefix + "the operands have other strides";
}

bool is_same(const graph::Source& a, const graph::Source& b) {
  return a.index == b.index && a.output == b.output && a.is_leaf == b.is_leaf;
}

std::size_t common_prefix(const std::vector<Step>& a, const std::vector<Step>& b) {
  const std::size_t size = std::min(a.size(), b.size());
  std::size_t n = 0;
  while (n < size && a[n].entry == b[n].entry) ++n;
  return n;
}

// How much two graphs have in common at both ends: calls, and where these differ operators.
std::size_t similarity(const GraphSummary& a, const GraphSummary& b) {
  const std::size_t size = std::min(a.steps.size(), b.steps.size());
  std::size_t score = 0;
  const auto compare = [&score](const Step& x, const Step& y) {
    if (x.entry->op != y.entry->op) return false;
    score += x.entry == y.entry ? 2 : 1;
    return true;
  };
  std::size_t front = 0;
  while (front < size && compare(a.steps[front], b.steps[front])) ++front;
  for (std::size_t back = 1; back <= size - front; ++back) {
    if (!compare(a.steps[a.steps.size() - back], b.steps[b.steps.size() - back])) break;
  }
  return score;
}

// Graphs of the same calls.
std::string wiring_difference(const GraphSummary& graph, const GraphSummary& other) {
  for (std::size_t i = 0; i < graph.sources.size(); ++i) {
    if (is_same(graph.sources[i], other.sources[i])) continue;
    const auto after = std::find_if(graph.steps.begin(), graph.steps.end(),
                                    [i](const Step& step) { return step.first_source > i; });
    const Step& step = *std::prev(after);
    const auto operand = static_cast<std::uint32_t>(i - step.first_source);
    return base::str(named(step), ": '", operand_name(*step.entry, operand),
                     "' comes from another operation or input");
  }
  if (graph.roots.size() != other.roots.size()) {
    return base::str(graph.roots.size(), " tensors are alive when it runs, were ",
                     other.roots.size());
  }
  if (!std::equal(graph.roots.begin(), graph.roots.end(), other.roots.begin(), is_same)) {
    return "other tensors are alive when it runs";
  }
  if (graph.constants != other.constants) {
    return "a number that was compiled in changed (an offset, an exponent, 0 or 1); it is data "
           "from "
           "now on";
  }
  for (std::size_t i = 0; i < graph.same_as.size(); ++i) {
    if (graph.same_as[i] != graph.same_as[other.same_as[i]]) {
      return "numbers that were equal differ; they are data of their own from now on";
    }
  }
  if (graph.donations != other.donations) {
    return "other inputs give their memory to results";
  }
  if (graph.options != other.options) {
    return "the compiler's options changed: " + graph.options + ", were " + other.options;
  }
  return "nothing: the program was dropped from the cache";
}

}  // namespace

GraphSummary::GraphSummary(const graph::Trace& trace, std::span<const ops::Donation> used_donations,
                           std::string used_options, std::string used_where)
    : key(trace.strict_key),
      sources(trace.sources),
      roots(trace.roots),
      same_as(SeenNumbers(trace).same_as()),
      donations(used_donations.begin(), used_donations.end()),
      options(std::move(used_options)),
      where(std::move(used_where)) {
  steps.reserve(trace.steps.size());
  for (const graph::Trace::Step& step : trace.steps) {
    steps.push_back({step.node->entry(), step.node->location(), step.first_source});
  }
  for (const graph::DataPtr& leaf : trace.leaves) leaves.push_back(leaf->shape());
  for (std::size_t i = 0; i < trace.numbers.size(); ++i) {
    constants.push_back(trace.is_data[i] ? std::nullopt : std::optional(trace.numbers[i]));
  }
}

std::string describe_difference(const GraphSummary& graph, const GraphSummary& other) {
  const std::size_t i = common_prefix(graph.steps, other.steps);
  const std::size_t left = graph.steps.size() - i;
  const std::size_t other_left = other.steps.size() - i;
  if (left == 0 && other_left == 0) return wiring_difference(graph, other);
  if (left == 0) {
    return base::str(other_left, " operations less, the first ", named(other.steps[i]));
  }
  if (other_left == 0) {
    return base::str(left, " operations more, the first ", named(graph.steps[i]));
  }
  const Step& now = graph.steps[i];
  const Step& before = other.steps[i];
  if (now.entry->op == before.entry->op) return call_difference(now, before);
  if (left > 1 && graph.steps[i + 1].entry == before.entry) return named(now) + " is new";
  if (other_left > 1 && other.steps[i + 1].entry == now.entry) return named(before) + " is gone";
  return named(now) + " is where " + named(before) + " was";
}

std::string GraphHistory::explain_and_add(GraphSummary graph) {
  const std::lock_guard lock(mutex_);
  const GraphSummary* nearest = nullptr;
  std::size_t best = 0;
  for (const GraphSummary& candidate : graphs_) {
    const std::size_t score = similarity(graph, candidate);
    // Of equals the latest.
    if (score == 0 || score < best) continue;
    best = score;
    nearest = &candidate;
  }
  std::string text = graphs_.empty() ? "the first graph" : "no graph like it was compiled before";
  if (nearest != nullptr) {
    text = base::str("differs from graph ", base::to_string(nearest->key).substr(0, 8));
    if (!nearest->where.empty()) text += " (run at " + nearest->where + ")";
    text += ": " + describe_difference(graph, *nearest);
  }
  if (graphs_.size() == kMaxGraphs) graphs_.pop_front();
  graphs_.push_back(std::move(graph));
  return text;
}

void GraphHistory::clear() {
  const std::lock_guard lock(mutex_);
  graphs_.clear();
}

}  // namespace torch_xla::runtime

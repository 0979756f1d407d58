// Step by step: graphs of one form have as many, connected alike.
#include "runtime/graph_cuts.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace torch_xla::runtime {
namespace {

using graph::Source;
using graph::Trace;

// A smaller rest compiles in less time than the launches of a cut cost in the long run.
constexpr std::size_t kLeastRest = 64;
constexpr std::size_t kMostKnown = 1024;
constexpr std::size_t kMostForms = 16;

base::Hash128 form_of(const Trace& trace) {
  base::Hasher hasher;
  const auto add = [&](const Source& source) {
    hasher.add(static_cast<std::uint64_t>(source.index) << 32 |
               static_cast<std::uint64_t>(source.output) << 1 | (source.is_leaf ? 1 : 0));
  };
  for (const Trace::Step& step : trace.steps) {
    hasher.add(std::string_view(step.node->entry()->op->name));
    hasher.add(step.first_source);
  }
  std::ranges::for_each(trace.sources, add);
  hasher.add(trace.roots.size());
  std::ranges::for_each(trace.roots, add);
  return hasher.finish();
}

// Where each step of a graph is computed, in the order in which that happens.
enum Part : std::uint32_t { kBefore, kMiddle, kBehind };

class Division {
 public:
  Division(const Trace& trace, const std::vector<bool>& differs)
      : trace_(trace), parts_(trace.steps.size(), kMiddle) {
    for (std::uint32_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i] == kBefore) continue;
      const bool reads_behind = std::ranges::any_of(
          sources_of(trace_, i),
          [&](const Source& source) { return !source.is_leaf && parts_[source.index] == kBehind; });
      if (reads_behind || (differs[i] && !put_before(i))) parts_[i] = kBehind;
    }
  }

  // As many as there are.
  bool is_worthwhile() const {
    const auto num_rest = static_cast<std::size_t>(std::ranges::count(parts_, kMiddle));
    return num_rest >= kLeastRest && 2 * num_rest > parts_.size() && num_rest < parts_.size();
  }

  // All parts but the last.
  std::vector<std::vector<graph::Value>> first_parts() const {
    const auto sources = handed_on(trace_, parts_, kBehind + 1, Cheap::kHandedOn);
    std::vector<std::vector<graph::Value>> parts;
    if (has(kBefore)) parts.push_back(values_of(trace_, sources[kBefore]));
    if (has(kBehind)) parts.push_back(values_of(trace_, sources[kMiddle]));
    return parts;
  }

 private:
  bool has(Part part) const {
    return std::ranges::find(parts_, std::uint32_t{part}) != parts_.end();
  }

  // The step and all that it needs, unless that is much.
  bool put_before(std::uint32_t step) {
    const std::size_t most = parts_.size() / 4;
    std::vector<std::uint32_t> found = {step};
    std::set<std::uint32_t> seen = {step};
    for (std::size_t next = 0; next < found.size(); ++next) {
      for (const Source& source : sources_of(trace_, found[next])) {
        if (source.is_leaf || parts_[source.index] == kBefore) continue;
        if (seen.insert(source.index).second) found.push_back(source.index);
      }
      if (found.size() > most) return false;
    }
    for (const std::uint32_t each : found) parts_[each] = kBefore;
    return true;
  }

  const Trace& trace_;
  std::vector<std::uint32_t> parts_;
};

}  // namespace

std::vector<bool> GraphCuts::differences(const Trace& trace) {
  const base::Hash128 key = form_of(trace);
  Form* form = forms_.find(key);
  if (form == nullptr) {
    std::vector<Form> evicted;
    form = &forms_.insert(key, {{}, std::vector<bool>(trace.steps.size())}, kMostForms, evicted);
    for (const Trace::Step& step : trace.steps) form->entries.push_back(step.node->entry());
    return {};
  }
  for (std::size_t i = 0; i < trace.steps.size(); ++i) {
    if (trace.steps[i].node->entry() != form->entries[i]) form->differs[i] = true;
  }
  return form->differs;
}

GraphCut GraphCuts::find(const Trace& trace) {
  if (trace.steps.size() < kLeastRest) return {};
  const std::lock_guard lock(mutex_);
  if (known_.find(trace.relaxed_key) != nullptr) return {};
  GraphCut cut;
  const std::vector<bool> differs = differences(trace);
  if (!differs.empty()) {
    const Division division(trace, differs);
    if (division.is_worthwhile() && !exchanges(trace)) {
      cut.parts = division.first_parts();
      cut.reason = base::str("A graph of ", trace.steps.size(), " operations has ",
                             std::ranges::count(differs, true),
                             " that differ from those of another: these are computed apart");
      return cut;
    }
  }
  std::vector<bool> evicted;
  known_.insert(trace.relaxed_key, true, kMostKnown, evicted);
  return cut;
}

void GraphCuts::clear() {
  const std::lock_guard lock(mutex_);
  std::vector<bool> known;
  known_.clear(known);
  std::vector<Form> forms;
  forms_.clear(forms);
}

}  // namespace torch_xla::runtime

// Steps of a trace stand in the order in which the walk found them, where equal layers lie behind
// each other with the same distance between equal steps. What stands in the way of that, as a layer
// that differs, ends a row.
#include "runtime/layers.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/error.h"

namespace torch_xla::runtime {
namespace {

using graph::Source;
using graph::Trace;

// Less is compiled in less time than launches of its own cost in the long run.
constexpr std::uint32_t kLeastSteps = 16;
constexpr std::uint32_t kLeastLayers = 3;
constexpr std::uint32_t kLeastSaved = 64;  // steps
// Distances between equal steps that are tried.
constexpr std::size_t kMostDistances = 16;
// How much of what a row replaces may be there twice for a moment.
constexpr std::int64_t kMostReplaced = std::int64_t{1} << 20;
constexpr std::size_t kMostKnown = 256;

// `count` layers of `period` steps each.
struct Row {
  std::uint32_t begin;
  std::uint32_t period;
  std::uint32_t count;

  std::uint32_t end() const { return begin + period * count; }
  std::uint32_t saved() const { return period * (count - 1); }
};

class RowFinder {
 public:
  RowFinder(const Trace& trace, std::size_t num_new) : trace_(trace) {
    for (std::size_t i = num_new; i < trace.roots.size(); ++i) {
      if (!trace.roots[i].is_leaf) replacing_.push_back(trace.roots[i]);
    }
  }

  // Those that save most, in the order of their steps.
  std::vector<Row> find() const {
    std::vector<Row> all;
    for (const std::uint32_t distance : distances()) add_rows(distance, all);
    std::ranges::stable_sort(all, std::greater(), &Row::saved);
    std::vector<Row> found;
    for (const Row& row : all) {
      const bool is_apart = std::ranges::all_of(found, [&](const Row& other) {
        return row.end() <= other.begin || other.end() <= row.begin;
      });
      if (is_apart && replaces_little(row)) found.push_back(row);
    }
    std::ranges::sort(found, {}, &Row::begin);
    return found;
  }

 private:
  std::uint32_t num_steps() const { return static_cast<std::uint32_t>(trace_.steps.size()); }

  // Those between a call and the next of its kind, the most frequent first: of what stands in each
  // layer once, that is a layer's size.
  std::vector<std::uint32_t> distances() const {
    std::unordered_map<const graph::Entry*, std::uint32_t> last;
    std::unordered_map<std::uint32_t, std::uint32_t> counts;
    for (std::uint32_t i = 0; i < num_steps(); ++i) {
      const auto [place, is_first] = last.try_emplace(trace_.steps[i].node->entry(), i);
      if (!is_first && i - place->second >= kLeastSteps) ++counts[i - place->second];
      place->second = i;
    }
    std::vector<std::pair<std::uint32_t, std::uint32_t>> ordered;
    for (const auto& [distance, count] : counts) {
      if (count + 1 >= kLeastLayers) ordered.emplace_back(count, distance);
    }
    std::ranges::sort(ordered, std::greater());
    if (ordered.size() > kMostDistances) ordered.resize(kMostDistances);
    std::vector<std::uint32_t> distances;
    for (const auto& [count, distance] : ordered) distances.push_back(distance);
    return distances;
  }

  // Whether the step is what the one a layer later is. What both take from elsewhere need not be
  // alike: it is given to the layers.
  bool comes_again(std::uint32_t step, std::uint32_t distance) const {
    if (trace_.steps[step].node->entry() != trace_.steps[step + distance].node->entry()) {
      return false;
    }
    const auto first = sources_of(trace_, step);
    const auto second = sources_of(trace_, step + distance);
    for (std::size_t k = 0; k < first.size(); ++k) {
      const Source& a = first[k];
      const Source& b = second[k];
      if (a.is_leaf) continue;  // of a first layer also where others read the one before
      if (b.is_leaf || a.output != b.output) return false;
      if (a.index + distance == b.index || a.index == b.index) continue;
      const bool are_far = step - a.index > distance && step + distance - b.index > distance;
      if (!are_far) return false;
    }
    return true;
  }

  void add_rows(std::uint32_t distance, std::vector<Row>& rows) const {
    std::uint32_t begin = 0;
    for (std::uint32_t i = 0; i + distance <= num_steps(); ++i) {
      if (i + distance < num_steps() && comes_again(i, distance)) continue;
      if (i > begin) add_row(begin, i + distance, distance, rows);
      begin = i + 1;
    }
  }

  // Of the steps from `begin` to `end`, which repeat at that distance: as many layers as fit,
  // cut where a layer takes as few values as may be from the one before.
  void add_row(std::uint32_t begin, std::uint32_t end, std::uint32_t period,
               std::vector<Row>& rows) const {
    const std::uint32_t num_layers = (end - begin) / period;
    if (num_layers < kLeastLayers) return;
    const std::uint32_t middle = begin + period * (num_layers / 2);
    const std::vector<std::uint32_t> crossing = values_across(middle, period);
    const auto least = std::ranges::min_element(crossing);
    if (*least == 0) return;  // they are no layers: updates of one parameter after the other
    const std::uint32_t first = begin + static_cast<std::uint32_t>(least - crossing.begin());
    const Row row{first, period, (end - first) / period};
    if (row.count >= kLeastLayers && row.saved() >= kLeastSaved) rows.push_back(row);
  }

  // For cuts before each of `period` steps from `begin` on: how many values of the steps of one
  // layer before are read by those of one layer behind.
  std::vector<std::uint32_t> values_across(std::uint32_t begin, std::uint32_t period) const {
    std::unordered_map<std::uint64_t, std::uint32_t> last_readers;
    const std::uint32_t end = std::min(begin + 2 * period, num_steps());
    for (std::uint32_t i = begin; i < end; ++i) {
      for (const Source& source : sources_of(trace_, i)) {
        if (source.is_leaf || i - source.index > period) continue;
        const auto value = static_cast<std::uint64_t>(source.index) << 32 | source.output;
        last_readers[value] = i;
      }
    }
    std::vector<std::uint32_t> across(period);
    for (const auto& [value, reader] : last_readers) {
      const auto step = static_cast<std::uint32_t>(value >> 32);
      const std::uint32_t first = step < begin ? 0 : step + 1 - begin;
      for (std::uint32_t k = first; k < period && begin + k <= reader; ++k) ++across[k];
    }
    return across;
  }

  bool replaces_little(const Row& row) const {
    std::int64_t bytes = 0;
    for (const Source& root : replacing_) {
      if (root.index < row.begin || root.index >= row.end()) continue;
      bytes += trace_.steps[root.index].node->shape(root.output).num_bytes();
    }
    return bytes <= kMostReplaced;
  }

  const Trace& trace_;
  std::vector<Source> replacing_;
};

struct Parts {
  std::vector<std::uint32_t> of_step;
  std::uint32_t num = 0;

  Parts(const Trace& trace, const std::vector<Row>& rows) : of_step(trace.steps.size(), kRest) {
    std::uint32_t next = 0;
    for (const Row& row : rows) {
      if (row.begin > next) add(next, row.begin);
      for (std::uint32_t k = 0; k < row.count; ++k) {
        add(row.begin + k * row.period, row.begin + (k + 1) * row.period);
      }
      next = row.end();
    }
  }

 private:
  void add(std::uint32_t begin, std::uint32_t end) {
    std::fill(of_step.begin() + begin, of_step.begin() + end, num);
    ++num;
  }
};

std::string describe(const Trace& trace, const std::vector<Row>& rows) {
  std::string text;
  for (const Row& row : rows) {
    text += base::str(text.empty() ? "" : ", ", row.count, " layers of ", row.period);
  }
  return base::str("A graph of ", trace.steps.size(), " operations has ", text,
                   ": these are computed one by one");
}

}  // namespace

GraphCut LayerCuts::find(const Trace& trace, std::size_t num_new) {
  if (trace.steps.size() < kLeastLayers * kLeastSteps) return {};
  base::Hasher hasher;
  hasher.add(trace.relaxed_key);
  hasher.add(num_new);
  const base::Hash128 key = hasher.finish();
  const std::lock_guard lock(mutex_);
  const Cut* known = known_.find(key);
  if (known == nullptr) {
    Cut found;
    const std::vector<Row> rows =
        exchanges(trace) ? std::vector<Row>() : RowFinder(trace, num_new).find();
    if (!rows.empty()) {
      const Parts parts(trace, rows);
      found = {handed_on(trace, parts.of_step, parts.num, Cheap::kComputedAgain),
               describe(trace, rows)};
      std::erase_if(found.parts, [](const auto& sources) { return sources.empty(); });
    }
    std::vector<Cut> evicted;
    known = &known_.insert(key, std::move(found), kMostKnown, evicted);
  }
  GraphCut cut{.parts = {}, .reason = known->reason};
  for (const std::vector<Source>& part : known->parts) cut.parts.push_back(values_of(trace, part));
  return cut;
}

void LayerCuts::clear() {
  const std::lock_guard lock(mutex_);
  std::vector<Cut> known;
  known_.clear(known);
}

}  // namespace torch_xla::runtime

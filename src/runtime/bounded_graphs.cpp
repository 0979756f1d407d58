// Which integers are variables, which of these are one, and what their bounds are.
#include "runtime/bounded_graphs.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

namespace torch_xla::runtime {
namespace {

constexpr std::size_t kMaxForms = 256;
// Dimensions that grow by no more than this are worth a bounded program at once, others at their
// third value: the last batch of an epoch is smaller, and that is all.
constexpr std::int64_t kGrowth = 2;
// Sizes that lie so near to each other have one bound: n and n + 1 cross it together.
constexpr std::int64_t kNear = 8;
// Of sizes that grow, and of others, which may be batches; smaller ones where a program for such
// bounds had far more to compute than the graph.
constexpr std::int64_t kLeastGrowingBound = 64;
constexpr std::int64_t kLeastBound = 32;
constexpr std::int64_t kLeastOfAll = 4;
// Of what there is to compute; and what takes a millisecond or less.
constexpr double kMostPadding = 0.5;
constexpr double kCheapWork = 1 << 24;
constexpr std::uint32_t kNoVariable = ~std::uint32_t{0};

// At most a quarter more than the size, where that is not small.
std::int64_t bound_of(std::int64_t size, std::int64_t least) {
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(size)));
  const std::int64_t step = std::max(least, power / 4);
  return (size + step - 1) / step * step;
}

// Numbers pairs in the order in which they come.
class Numbering {
 public:
  std::uint32_t of(std::uint32_t group, std::int64_t value) {
    return numbers_.try_emplace({group, value}, static_cast<std::uint32_t>(numbers_.size()))
        .first->second;
  }

 private:
  std::map<std::pair<std::uint32_t, std::int64_t>, std::uint32_t> numbers_;
};

std::vector<std::int64_t> bounds_of(const std::vector<std::int64_t>& values,
                                    const std::vector<bool>& is_dimension, std::int64_t least) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (is_dimension[i]) order.push_back(i);
  }
  std::ranges::sort(order, std::ranges::greater(), [&](std::size_t i) { return values[i]; });
  std::vector<std::int64_t> bounds(values.size());
  for (std::size_t k = 0; k < order.size(); ++k) {
    const std::int64_t value = values[order[k]];
    const bool is_near = k > 0 && values[order[k - 1]] - value <= kNear;
    bounds[order[k]] = is_near ? bounds[order[k - 1]] : bound_of(value, least);
  }
  return bounds;
}

bool is_cheap(const graph::Trace& trace, const ops::Bounds& bounds,
              const std::vector<std::int64_t>& values) {
  const double work = ops::BoundedTrace(trace, {bounds.variables, values}).work();
  const double padded = ops::BoundedTrace(trace, bounds).work();
  return padded - work <= std::max(kMostPadding * work, kCheapWork);
}

base::Hash128 key_of(const BoundedGraph& graph, const graph::Trace& trace,
                     const graph::Sizes& sizes, const SeenNumbers& numbers) {
  base::Hasher hasher;
  hasher.add(sizes.form);
  for (std::size_t i = 0; i < sizes.integers.size(); ++i) {
    const std::int32_t variable = graph.bounds.variables[i];
    hasher.add(variable >= 0 ? 1 : 0);
    hasher.add(static_cast<std::uint64_t>(variable >= 0 ? variable : sizes.integers[i]));
  }
  for (const std::int64_t bound : graph.bounds.bounds) {
    hasher.add(static_cast<std::uint64_t>(bound));
  }
  for (std::size_t i = 0; i < trace.numbers.size(); ++i) {
    const bool is_data = numbers.is_data()[i];
    hasher.add(is_data ? 1 : 0);
    if (!is_data) hasher.add(trace.numbers[i]);
  }
  return numbers.key_with(hasher.finish());
}

}  // namespace

void BoundedGraphs::add(Seen& seen, const graph::Trace& trace, const graph::Sizes& sizes) {
  if (SeenNumbersPtr now = seen.numbers->with(trace)) seen.numbers = std::move(now);
  if (sizes.integers == seen.last) return;  // what else differs says nothing of sizes
  seen.last = sizes.integers;
  bool is_growing = true;
  Numbering groups;
  for (std::size_t i = 0; i < sizes.integers.size(); ++i) {
    const std::int64_t difference = sizes.integers[i] - seen.integers[i];
    if (sizes.is_dimension[i] && (difference < 0 || difference > kGrowth)) is_growing = false;
    if (difference != 0) seen.is_variable[i] = true;
    seen.groups[i] = groups.of(seen.groups[i], sizes.integers[i]);
  }
  if (++seen.num_graphs == 2) seen.is_growing = is_growing;
}

// Dimensions that are variables are at least 2: others are of another form.
std::optional<BoundedGraph> BoundedGraphs::bounded(const Seen& seen, const graph::Trace& trace,
                                                   const graph::Sizes& sizes) {
  BoundedGraph graph{.form = sizes.form, .key = {}, .bounds = {}, .values = {}, .numbers = {}};
  std::vector<std::int64_t> values;
  std::vector<bool> is_dimension;
  std::vector<std::uint32_t> variables(sizes.integers.size(), kNoVariable);  // by group
  graph.bounds.variables.assign(sizes.integers.size(), -1);
  for (std::size_t i = 0; i < sizes.integers.size(); ++i) {
    if (!seen.is_variable[i]) continue;
    std::uint32_t& variable = variables[seen.groups[i]];
    if (variable == kNoVariable) {
      variable = static_cast<std::uint32_t>(values.size());
      values.push_back(sizes.integers[i]);
      is_dimension.push_back(false);
    }
    if (sizes.is_dimension[i]) is_dimension[variable] = true;
    graph.bounds.variables[i] = static_cast<std::int32_t>(variable);
  }
  if (values.empty()) return std::nullopt;
  std::int64_t least = seen.is_growing ? kLeastGrowingBound : kLeastBound;
  graph.bounds.bounds = bounds_of(values, is_dimension, least);
  while (!is_cheap(trace, graph.bounds, values)) {
    if (least == kLeastOfAll) return std::nullopt;
    least /= 2;
    graph.bounds.bounds = bounds_of(values, is_dimension, least);
  }
  for (const std::int64_t value : values) {
    graph.values.push_back(static_cast<std::uint64_t>(value));
  }
  if (!trace.numbers.empty()) graph.numbers = {seen.numbers->is_data(), seen.numbers->same_as()};
  graph.key = key_of(graph, trace, sizes, *seen.numbers);
  return graph;
}

std::optional<BoundedGraph> BoundedGraphs::see(const graph::Trace& trace, bool growing_alone) {
  const std::optional<graph::Sizes> sizes = graph::sizes_of(trace);
  if (!sizes.has_value()) return std::nullopt;
  std::vector<Seen> evicted;
  const std::lock_guard lock(mutex_);
  Seen* const seen = forms_.find(sizes->form);
  if (seen != nullptr) {
    if (seen->is_refused) return std::nullopt;
    add(*seen, trace, *sizes);
    const bool is_worth_it = seen->is_growing || (!growing_alone && seen->num_graphs > 2);
    return is_worth_it ? bounded(*seen, trace, *sizes) : std::nullopt;
  }
  Seen first;
  Numbering groups;
  for (const std::int64_t integer : sizes->integers) first.groups.push_back(groups.of(0, integer));
  first.is_variable.assign(sizes->integers.size(), false);
  first.integers = sizes->integers;
  first.last = sizes->integers;
  first.numbers = std::make_shared<const SeenNumbers>(trace);
  forms_.insert(sizes->form, std::move(first), kMaxForms, evicted);
  return std::nullopt;
}

void BoundedGraphs::refuse(const base::Hash128& form) {
  const std::lock_guard lock(mutex_);
  if (Seen* const seen = forms_.find(form)) seen->is_refused = true;
}

void BoundedGraphs::clear() {
  std::vector<Seen> evicted;
  const std::lock_guard lock(mutex_);
  forms_.clear(evicted);
}

}  // namespace torch_xla::runtime

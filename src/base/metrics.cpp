// The registry of counters and metrics, and the recording of samples. The reports are in
// metrics_report.cpp.
#include "base/metrics.h"

#include <algorithm>
#include <map>
#include <memory>

#include "base/settings.h"
#include "base/trace_events.h"

namespace torch_xla::base {
namespace {

std::int64_t now_ns() {
  const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch).count();
}

struct Registry {
  std::mutex mutex;
  // Guarded by mutex; the pointees are not, and never go away. Transparent lookup by string_view.
  std::map<std::string, std::unique_ptr<Counter>, std::less<>> counters;
  std::map<std::string, std::unique_ptr<Metric>, std::less<>> metrics;
};

Registry& registry() {
  // Never destroyed: callbacks of the plugin may still record while the process exits.
  static Registry* const instance = new Registry();
  return *instance;
}

std::string name_of(const Metric& metric) {
  const std::lock_guard lock(registry().mutex);
  for (const auto& [name, candidate] : registry().metrics) {
    if (candidate.get() == &metric) return name;
  }
  return "";
}

}  // namespace

// Under the name of the metric, which is looked up only while tracing: metrics do not know theirs.
void Metric::trace(double duration_ns) const {
  // The launch queue records executions, on the lines of their devices.
  const std::string name = name_of(*this);
  if (name.empty() || name == "ExecuteTime") return;
  const auto duration = static_cast<std::int64_t>(duration_ns);
  add_trace_event({name, "", "", now_ns() - duration, duration});
}

void Metric::record(double value) {
  if (kind_ == MetricKind::kTimeNs && tracing_is_on()) [[unlikely]]
    trace(value);
  record(value, now_ns());
}

void Metric::record(double value, std::int64_t timestamp_ns) {
  const std::lock_guard lock(mutex_);
  const Sample sample{timestamp_ns, value};
  if (ring_.size() < capacity_) {
    ring_.push_back(sample);
  } else {
    ring_[static_cast<std::size_t>(total_samples_) % capacity_] = sample;
  }
  ++total_samples_;
  accumulator_ += value;
}

MetricData Metric::data() const {
  const std::lock_guard lock(mutex_);
  MetricData data{kind_, total_samples_, accumulator_, ring_};
  if (ring_.size() == capacity_) {
    const auto oldest =
        static_cast<std::ptrdiff_t>(static_cast<std::size_t>(total_samples_) % capacity_);
    std::rotate(data.samples.begin(), data.samples.begin() + oldest, data.samples.end());
  }
  return data;
}

void Metric::clear() {
  const std::lock_guard lock(mutex_);
  ring_.clear();
  total_samples_ = 0;
  accumulator_ = 0;
}

Counter& counter(std::string_view name) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  auto it = r.counters.find(name);
  if (it == r.counters.end()) {
    it = r.counters.emplace(std::string(name), std::make_unique<Counter>()).first;
  }
  return *it->second;
}

Metric& metric(std::string_view name, MetricKind kind) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  auto it = r.metrics.find(name);
  if (it == r.metrics.end()) {
    const auto capacity =
        static_cast<std::size_t>(std::max<std::int64_t>(1, settings().metrics_samples()));
    it = r.metrics.emplace(std::string(name), std::make_unique<Metric>(kind, capacity)).first;
  }
  return *it->second;
}

std::vector<std::string> counter_names() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  std::vector<std::string> names;
  for (const auto& [name, counter] : r.counters) {
    if (counter->value() != 0) names.push_back(name);
  }
  return names;
}

std::vector<std::string> metric_names() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  std::vector<std::string> names;
  for (const auto& [name, metric] : r.metrics) {
    if (metric->data().total_samples != 0) names.push_back(name);
  }
  return names;
}

std::optional<std::int64_t> counter_value(std::string_view name) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto it = r.counters.find(name);
  if (it == r.counters.end() || it->second->value() == 0) return std::nullopt;
  return it->second->value();
}

std::optional<MetricData> metric_data(std::string_view name) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto it = r.metrics.find(name);
  if (it == r.metrics.end()) return std::nullopt;
  MetricData data = it->second->data();
  if (data.total_samples == 0) return std::nullopt;
  return data;
}

void clear_counters() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  for (const auto& [name, counter] : r.counters) counter->clear();
}

void clear_metrics() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  for (const auto& [name, metric] : r.metrics) metric->clear();
}

}  // namespace torch_xla::base

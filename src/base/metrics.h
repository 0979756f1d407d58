// Process-wide counters and metrics: what torch_xla did, how often, and how long it took. A counter
// is a number that grows; a metric keeps samples. Both are found by name, live as long as the
// process, and may be used from any thread. The names are those that torch_xla users know
// (`CompileTime`, `CachedCompile`, `aten::<op>`); the report keeps the layout that their tools
// parse.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace torch_xla::base {

// A counter that was never added to, or was cleared since, counts as absent from every listing.
class Counter {
 public:
  // A relaxed atomic addition: fit for every recorded operation.
  void add(std::int64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  std::int64_t value() const { return value_.load(std::memory_order_relaxed); }
  void clear() { value_.store(0, std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> value_{0};
};

enum class MetricKind { kTimeNs, kBytes, kNumber };

struct Sample {
  std::int64_t timestamp_ns;  // since the epoch
  double value;
};

struct MetricData {
  MetricKind kind;
  std::int64_t total_samples;
  double accumulator;           // the sum of all samples since the last clear
  std::vector<Sample> samples;  // the last ones, oldest first; at most XLA_METRICS_SAMPLES
};

// A stream of samples. Recording takes a lock of this metric alone: use it per compilation, launch
// or transfer, not per recorded operation. A metric without samples is absent from every listing.
class Metric {
 public:
  Metric(MetricKind kind, std::size_t capacity) : kind_(kind), capacity_(capacity) {}

  void record(double value);
  void record(double value, std::int64_t timestamp_ns);
  MetricData data() const;
  void clear();

 private:
  void trace(double duration_ns) const;

  const MetricKind kind_;
  const std::size_t capacity_;
  mutable std::mutex mutex_;
  // Guarded by mutex_. A ring once full: the oldest sample stands at total_samples_ % capacity_.
  std::vector<Sample> ring_;
  std::int64_t total_samples_ = 0;
  double accumulator_ = 0;
};

// The counter or metric of that name, made on first use. The reference is valid for the life of the
// process: look it up once (`static Counter& hits = counter("CachedCompile");`) and keep it. The
// kind is that of the first call.
Counter& counter(std::string_view name);
Metric& metric(std::string_view name, MetricKind kind = MetricKind::kTimeNs);

// Sorted by name.
std::vector<std::string> counter_names();
std::vector<std::string> metric_names();
std::optional<std::int64_t> counter_value(std::string_view name);
std::optional<MetricData> metric_data(std::string_view name);

// Handles stay valid.
void clear_counters();
void clear_metrics();

// Records the time from its construction to its destruction.
class TimedSection {
 public:
  explicit TimedSection(Metric& metric)
      : metric_(metric), start_(std::chrono::steady_clock::now()) {}
  ~TimedSection() { metric_.record(static_cast<double>(elapsed_ns())); }
  TimedSection(const TimedSection&) = delete;
  TimedSection& operator=(const TimedSection&) = delete;

  std::int64_t elapsed_ns() const {
    const auto elapsed = std::chrono::steady_clock::now() - start_;
    return std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count();
  }

 private:
  Metric& metric_;
  const std::chrono::steady_clock::time_point start_;
};

// A sample or sum as the report prints it: "06m09s401ms746.001us", "1.50MB" or "12.00".
std::string format_metric_value(MetricKind kind, double value);

// All metrics, then all counters, as text blocks.
std::string metrics_report();

// The named counters and metrics, and every counter of an operation that fell back to the CPU
// (`aten::...`). An empty list stands for the usual ones: compilations, barriers, executions,
// transfers.
std::string short_metrics_report(const std::vector<std::string>& counters = {},
                                 const std::vector<std::string>& metrics = {});

// The full report as one JSON object: {"metrics": {name: {"kind", "total_samples", "accumulator",
// "value_rate", "rate", "percentiles"}}, "counters": {name: value}}. Times are in nanoseconds.
std::string metrics_report_json();

}  // namespace torch_xla::base

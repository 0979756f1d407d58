// The metrics reports: text in the layout that torch_xla users and their tools know, and JSON.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "base/metrics.h"
#include "base/settings.h"

namespace torch_xla::base {
namespace {

struct Percentile {
  double fraction;
  double value;
};

struct Summary {
  // Absent when the samples span no time.
  std::optional<double> value_per_second;
  std::optional<double> samples_per_second;
  std::vector<Percentile> percentiles;
};

template <typename... Args>
std::string printf_string(const char* format, Args... args) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, args...);
  return buffer.data();
}

std::string format_time(double ns) {
  if (ns < 0) return "-" + format_time(-ns);
  // Rounded to the printed nanosecond first, so that no part can round up to 60s or 1000us.
  const auto total_ns = static_cast<std::int64_t>(std::llround(ns));
  const std::int64_t us = total_ns / 1000;
  const std::int64_t ms = us / 1000;
  const std::int64_t s = ms / 1000;
  const std::int64_t m = s / 60;
  const std::int64_t h = m / 60;
  const std::int64_t d = h / 24;
  std::string out;
  if (d > 0) out += printf_string("%lldd", static_cast<long long>(d));
  if (h > 0) out += printf_string("%02dh", static_cast<int>(h % 24));
  if (m > 0) out += printf_string("%02dm", static_cast<int>(m % 60));
  if (s > 0) out += printf_string("%02ds", static_cast<int>(s % 60));
  if (ms > 0) out += printf_string("%03dms", static_cast<int>(ms % 1000));
  return out + printf_string("%06.3fus", static_cast<double>(total_ns % 1'000'000) / 1000.0);
}

std::string format_bytes(double bytes) {
  static constexpr std::array kUnits = {"B", "KB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  while (unit + 1 < kUnits.size() && std::abs(bytes) >= 1024) {
    bytes /= 1024;
    ++unit;
  }
  return printf_string("%.2f", bytes) + kUnits[unit];
}

// The setting's fractions; numbers from 1 up are taken as percents.
std::vector<double> wanted_fractions() {
  std::vector<double> fractions;
  std::istringstream in(settings().metrics_percentiles());
  for (std::string part; std::getline(in, part, ':');) {
    double fraction = std::atof(part.c_str());
    if (fraction >= 1) fraction /= 100;
    if (fraction > 0 && fraction <= 1) fractions.push_back(fraction);
  }
  return fractions;
}

Summary summarize(const MetricData& data) {
  Summary summary;
  const std::vector<Sample>& samples = data.samples;
  if (samples.empty()) return summary;
  double sum = 0;
  std::vector<double> sorted;
  for (const Sample& sample : samples) {
    sum += sample.value;
    sorted.push_back(sample.value);
  }
  std::sort(sorted.begin(), sorted.end());
  const double seconds =
      static_cast<double>(samples.back().timestamp_ns - samples.front().timestamp_ns) * 1e-9;
  if (seconds > 0) {
    summary.value_per_second = sum / seconds;
    summary.samples_per_second = static_cast<double>(samples.size()) / seconds;
  }
  for (const double fraction : wanted_fractions()) {
    const auto index = static_cast<std::size_t>(fraction * static_cast<double>(sorted.size()));
    summary.percentiles.push_back({fraction, sorted[std::min(index, sorted.size() - 1)]});
  }
  return summary;
}

void print_metric(std::ostream& out, std::string_view name, const MetricData& data) {
  const Summary summary = summarize(data);
  out << "Metric: " << name << "\n  TotalSamples: " << data.total_samples
      << "\n  Accumulator: " << format_metric_value(data.kind, data.accumulator) << "\n";
  if (summary.value_per_second && data.kind != MetricKind::kNumber) {
    out << "  ValueRate: " << format_metric_value(data.kind, *summary.value_per_second)
        << " / second\n";
  }
  if (summary.samples_per_second) out << "  Rate: " << *summary.samples_per_second << " / second\n";
  out << "  Percentiles: ";
  const char* separator = "";
  for (const Percentile& p : summary.percentiles) {
    out << separator << p.fraction * 100 << "%=" << format_metric_value(data.kind, p.value);
    separator = "; ";
  }
  out << "\n";
}

void print_counter(std::ostream& out, std::string_view name, std::int64_t value) {
  out << "Counter: " << name << "\n  Value: " << value << "\n";
}

std::string report_of(const std::vector<std::string>& metrics,
                      const std::vector<std::string>& counters) {
  std::ostringstream out;
  for (const std::string& name : metrics) {
    if (const auto data = metric_data(name)) print_metric(out, name, *data);
  }
  for (const std::string& name : counters) {
    if (const auto value = counter_value(name)) print_counter(out, name, *value);
  }
  return out.str();
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      out += printf_string("\\u%04x", static_cast<unsigned>(c));
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string json_number(double value) { return printf_string("%.17g", value); }

std::string json_of(const MetricData& data) {
  static constexpr std::array kKindNames = {"time_ns", "bytes", "number"};
  const Summary summary = summarize(data);
  std::string out = "{\"kind\": " + json_string(kKindNames[static_cast<std::size_t>(data.kind)]);
  out += ", \"total_samples\": " + std::to_string(data.total_samples);
  out += ", \"accumulator\": " + json_number(data.accumulator);
  if (summary.samples_per_second) {
    out += ", \"value_rate\": " + json_number(*summary.value_per_second);
    out += ", \"rate\": " + json_number(*summary.samples_per_second);
  }
  out += ", \"percentiles\": {";
  const char* separator = "";
  for (const Percentile& p : summary.percentiles) {
    out += separator + json_string(printf_string("%g", p.fraction * 100)) + ": " +
           json_number(p.value);
    separator = ", ";
  }
  return out + "}}";
}

}  // namespace

std::string format_metric_value(MetricKind kind, double value) {
  switch (kind) {
    case MetricKind::kTimeNs: return format_time(value);
    case MetricKind::kBytes: return format_bytes(value);
    case MetricKind::kNumber: break;
  }
  return printf_string("%.2f", value);
}

std::string metrics_report() { return report_of(metric_names(), counter_names()); }

std::string short_metrics_report(const std::vector<std::string>& counters,
                                 const std::vector<std::string>& metrics) {
  static const std::vector<std::string> kUsualCounters = {"CachedCompile", "MarkStep",
                                                          "DynamoSyncInputExecuteTime"};
  static const std::vector<std::string> kUsualMetrics = {
      "CompileTime", "ExecuteTime", "ExecuteReplicatedTime", "TransferToDeviceTime",
      "TransferFromDeviceTime"};
  std::vector<std::string> shown = counters.empty() ? kUsualCounters : counters;
  for (std::string& name : counter_names()) {
    const bool is_fallback = name.starts_with("aten::");
    if (is_fallback && std::find(shown.begin(), shown.end(), name) == shown.end()) {
      shown.push_back(std::move(name));
    }
  }
  return report_of(metrics.empty() ? kUsualMetrics : metrics, shown);
}

std::string metrics_report_json() {
  std::string out = "{\"metrics\": {";
  const char* separator = "";
  for (const std::string& name : metric_names()) {
    const auto data = metric_data(name);
    if (!data) continue;
    out += separator + json_string(name) + ": " + json_of(*data);
    separator = ", ";
  }
  out += "}, \"counters\": {";
  separator = "";
  for (const std::string& name : counter_names()) {
    const auto value = counter_value(name);
    if (!value) continue;
    out += separator + json_string(name) + ": " + std::to_string(*value);
    separator = ", ";
  }
  return out + "}}";
}

}  // namespace torch_xla::base

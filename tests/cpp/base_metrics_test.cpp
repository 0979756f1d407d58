// Tests of counters, metrics and the layout of their reports.
#include <string>
#include <thread>
#include <vector>

#include "base/metrics.h"
#include "base/settings.h"
#include "check.h"

namespace torch_xla::base {
namespace {

void clear_all() {
  clear_counters();
  clear_metrics();
}

TEST(counters_add_up_over_threads) {
  clear_all();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      Counter& hits = counter("test::Hits");
      Metric& samples = metric("test::Samples", MetricKind::kNumber);
      for (int n = 0; n < 1000; ++n) {
        hits.add();
        samples.record(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter_value("test::Hits").value_or(0), 4000);
  const MetricData data = metric_data("test::Samples").value();
  EXPECT_EQ(data.total_samples, 4000);
  EXPECT_EQ(data.accumulator, 4000.0);
  EXPECT_EQ(data.samples.size(), std::size_t{1024});
}

TEST(cleared_and_unused_names_are_absent) {
  clear_all();
  Counter& hits = counter("test::Hits");
  EXPECT(!counter_value("test::Hits").has_value());
  EXPECT(!counter_value("test::NeverMade").has_value());
  EXPECT(!metric_data("test::NeverMade").has_value());
  EXPECT(counter_names().empty());
  EXPECT(metric_names().empty());
  EXPECT_EQ(metrics_report(), "");
  hits.add(2);
  EXPECT(counter_names() == std::vector<std::string>{"test::Hits"});
}

TEST(ring_keeps_the_last_samples_in_order) {
  Metric ring(MetricKind::kNumber, 3);
  for (int i = 1; i <= 5; ++i) ring.record(i, i);
  const MetricData data = ring.data();
  EXPECT_EQ(data.total_samples, 5);
  EXPECT_EQ(data.accumulator, 15.0);
  EXPECT_EQ(data.samples.size(), std::size_t{3});
  EXPECT_EQ(data.samples.front().value, 3.0);
  EXPECT_EQ(data.samples.back().value, 5.0);
  ring.clear();
  ring.record(9);
  EXPECT_EQ(ring.data().samples.size(), std::size_t{1});
}

TEST(values_print_in_their_units) {
  const auto time = [](double ns) { return format_metric_value(MetricKind::kTimeNs, ns); };
  EXPECT_EQ(time(369'401'746'001.0), "06m09s401ms746.001us");
  EXPECT_EQ(time(1'032'778), "001ms32.778us");
  EXPECT_EQ(time(0), "00.000us");
  EXPECT_EQ(time(999'999.9), "001ms00.000us");
  EXPECT_EQ(time(90'061e9), "1d01h01m01s000ms00.000us");
  const auto bytes = [](double n) { return format_metric_value(MetricKind::kBytes, n); };
  EXPECT_EQ(bytes(12), "12.00B");
  EXPECT_EQ(bytes(1536), "1.50KB");
  EXPECT_EQ(bytes(3.0 * 1024 * 1024), "3.00MB");
  EXPECT_EQ(format_metric_value(MetricKind::kNumber, 3), "3.00");
}

TEST(report_has_the_known_layout) {
  clear_all();
  settings().metrics_percentiles.set("0.5:0.99");
  Metric& compile = metric("CompileTime");
  compile.record(1'000'000, 0);
  compile.record(3'000'000, 2'000'000'000);
  metric("TensorsGraphSize", MetricKind::kNumber).record(7, 5);
  counter("CachedCompile").add(3);
  EXPECT_EQ(metrics_report(),
            "Metric: CompileTime\n"
            "  TotalSamples: 2\n"
            "  Accumulator: 004ms00.000us\n"
            "  ValueRate: 002ms00.000us / second\n"
            "  Rate: 1 / second\n"
            "  Percentiles: 50%=003ms00.000us; 99%=003ms00.000us\n"
            "Metric: TensorsGraphSize\n"
            "  TotalSamples: 1\n"
            "  Accumulator: 7.00\n"
            "  Percentiles: 50%=7.00; 99%=7.00\n"
            "Counter: CachedCompile\n"
            "  Value: 3\n");
  EXPECT_EQ(metrics_report_json(),
            R"({"metrics": {"CompileTime": {"kind": "time_ns", "total_samples": 2, )"
            R"("accumulator": 4000000, "value_rate": 2000000, "rate": 1, )"
            R"("percentiles": {"50": 3000000, "99": 3000000}}, )"
            R"("TensorsGraphSize": {"kind": "number", "total_samples": 1, "accumulator": 7, )"
            R"("percentiles": {"50": 7, "99": 7}}}, "counters": {"CachedCompile": 3}})");
  settings().reload();
}

TEST(short_report_adds_the_fallbacks) {
  clear_all();
  settings().metrics_percentiles.set("0.5");
  counter("CachedCompile").add();
  counter("CreateXlaTensor").add();
  counter("aten::nonzero").add(2);
  metric("InboundData", MetricKind::kBytes).record(8, 0);
  EXPECT_EQ(short_metrics_report(),
            "Counter: CachedCompile\n  Value: 1\nCounter: aten::nonzero\n  Value: 2\n");
  EXPECT_EQ(short_metrics_report({"CreateXlaTensor"}, {"InboundData"}),
            "Metric: InboundData\n  TotalSamples: 1\n  Accumulator: 8.00B\n"
            "  Percentiles: 50%=8.00B\n"
            "Counter: CreateXlaTensor\n  Value: 1\nCounter: aten::nonzero\n  Value: 2\n");
  settings().reload();
}

TEST(timed_section_records_its_life) {
  clear_all();
  {
    const TimedSection section(metric("test::Section"));
  }
  const MetricData data = metric_data("test::Section").value();
  EXPECT_EQ(data.total_samples, 1);
  EXPECT(data.accumulator >= 0 && data.accumulator < 1e9);
}

}  // namespace
}  // namespace torch_xla::base

"""Metrics reports are read as numbers and compared with earlier ones."""

from __future__ import annotations

import pytest
import torch

import torch_xla.core.xla_model as xm
from torch_xla.debug import metrics, metrics_compare_utils as mcu


def report(inbound="10GB", seconds="1m29s615ms", fallback=None):
    lines = [
        "--job\\n\\nMetric: InboundData", "  TotalSamples: 4", f"  Accumulator: {inbound}",
        "  ValueRate: 3.00KB / second", "  Rate: 16.8665 / second",
        "  Percentiles: 1%=393.00KB; 50%=1.54MB; 99%=12.00B", "Metric: ExecuteTime",
        f"  Accumulator: {seconds}", "  Percentiles: 5%=04d17h11m07s495ms546.299us; 99%=00.161us",
        "Counter: xla::add.Tensor", "  Value: 7", "something else: 5",
    ]  # fmt: skip
    if fallback is not None:
        lines += ["Counter: aten::sort", f"  Value: {fallback}"]
    return "\n".join(lines)


def test_numbers_are_in_seconds_and_megabytes():
    points = mcu.parse_metrics_report(report())
    assert points == pytest.approx({
        "InboundData__TotalSamples": 4, "InboundData__Accumulator_mb": 10000,
        "InboundData__Percentile_1_mb": 0.393, "InboundData__Percentile_50_mb": 1.54,
        "InboundData__Percentile_99_mb": 12e-6, "ExecuteTime__Accumulator_sec": 89.615,
        "ExecuteTime__Percentile_5_sec": 407467.495546299,
        "ExecuteTime__Percentile_99_sec": 0.161e-6, "xla::add.Tensor__Value": 7,
    })  # fmt: skip


def test_points_of_several_reports_stand_side_by_side():
    points = mcu.get_data_points_from_metrics_reports([report(), report("2MB", fallback=3)])
    assert points["InboundData__Accumulator_mb"] == [10000, 2]
    assert points["aten::sort__Value"] == [None, 3]


def test_odd_numbers_are_named():
    earlier = mcu.get_data_points_from_metrics_reports([report("4MB"), report("6MB")])
    assert mcu.compare_metrics(earlier, report("7MB")) == ""
    assert mcu.compare_metrics(earlier, report("8MB")) == (
        "InboundData__Accumulator_mb failed its expression check. Expression: v <= v_mean + "
        "(v_stddev * 2.0).  Mean: 5.0.  Stddev: 1.0.  Actual Value: 8.0\n"
    )
    strict = {"base_expression": "v == v_mean", "InboundData__Accumulator_mb_expression": "True"}
    assert mcu.compare_metrics(earlier, report("8MB"), strict) == ""
    assert mcu.compare_metrics(earlier, report(fallback=5), {"base_expression": "v > 0"}) == (
        "Found new aten counter: aten::sort__Value: 5\n"
    )


@pytest.mark.parametrize("bad", ["v <", "__import__('os')", "v.real > 0", "w > 1", "'a' < 'b'"])
def test_expressions_compute_and_do_nothing_else(bad):
    points = mcu.get_data_points_from_metrics_reports([report()])
    with pytest.raises(ValueError, match="compare_metrics: "):
        mcu.compare_metrics(points, report(), {"base_expression": bad})


def test_report_of_a_program_is_read_whole(device):
    metrics.clear_all()
    (torch.ones(3, device=device) + torch.arange(3).to(device)).cpu()
    xm.wait_device_ops()  # the value may be here before its program's end has been counted
    points = mcu.parse_metrics_report(metrics.metrics_report())
    for name in metrics.metric_names():
        assert points[f"{name}__TotalSamples"] == metrics.metric_data(name)[0]
        assert sum(key.startswith(f"{name}__Percentile_") for key in points) == 9, name
    for name in metrics.counter_names():
        assert points[f"{name}__Value"] == metrics.counter_value(name)
    assert points["ExecuteTime__Accumulator_sec"] == pytest.approx(
        metrics.metric_data("ExecuteTime")[1] / 1e9, rel=1e-3
    )

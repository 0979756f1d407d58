"""Counters, metrics and their reports."""

from __future__ import annotations

import json
import re

import pytest
import torch
from processes import run_in_process

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met


def run_something(device):
    for _ in range(3):
        a = torch.randn(4, 4).to(device)
        (a @ a + 1).sum().item()
    torch_xla.sync()
    xm.wait_device_ops()  # a program's end may be counted after its values are here


def test_names_of_what_happened(device):
    torch_xla.runtime.clear_computation_cache()
    run_something(device)
    assert {"CompileTime", "ExecuteTime", "TransferToDeviceTime"} <= set(met.metric_names())
    assert {"TransferFromDeviceTime", "InboundData", "OutboundData"} <= set(met.metric_names())
    assert {"MarkStep", "CachedCompile", "UncachedCompile"} <= set(met.counter_names())
    assert met.counter_value("MarkStep") == 1
    assert met.counter_value("UncachedCompile") == 1
    assert met.counter_value("CachedCompile") == 2
    assert met.counter_value("xla::mm") == 3


def test_what_never_happened_is_none():
    assert met.counter_value("NoSuchCounter") is None
    assert met.metric_data("NoSuchMetric") is None


def test_metric_data(device):
    run_something(device)
    samples, total, recent = met.metric_data("ExecuteTime")
    assert samples == len(recent) == 3
    assert total == pytest.approx(sum(value for _, value in recent))
    assert all(isinstance(time, float) and value > 0 for time, value in recent)


def test_report_layout(device):
    run_something(device)
    report = met.metrics_report()
    block = re.search(r"Metric: ExecuteTime\n((?:  .*\n)+)", report)
    assert block is not None
    lines = [line.split(":")[0] for line in block[1].splitlines()]
    assert lines == [
        *("  TotalSamples", "  Accumulator", "  ValueRate", "  Rate", "  Percentiles"),
    ]
    assert re.search(r"  Accumulator: (\d\dm)?(\d\ds)?(\d+ms)?\d+\.\d+us\n", block[1])
    assert re.search(r"Metric: OutboundData\n  TotalSamples: 3\n  Accumulator: 192.00B\n", report)
    assert re.search(r"Counter: MarkStep\n  Value: 1\n", report)


def test_short_report(device):
    run_something(device)
    report = met.short_metrics_report()
    assert "Counter: MarkStep" in report and "Metric: ExecuteTime" in report
    assert "OutboundData" not in report and "xla::mm" not in report
    assert "Counter: aten::_local_scalar_dense" in report
    chosen = met.short_metrics_report(["xla::mm"], ["OutboundData"])
    assert "Counter: xla::mm" in chosen and "Metric: OutboundData" in chosen
    assert "ExecuteTime" not in chosen


def test_json_report(device):
    run_something(device)
    report = json.loads(met.metrics_report_json())
    assert report["counters"]["MarkStep"] == 1
    assert report["metrics"]["ExecuteTime"]["total_samples"] == 3


def test_clearing(device):
    run_something(device)
    met.clear_counters()
    assert met.counter_names() == [] and met.metric_names() != []
    met.clear_metrics()
    assert met.metric_names() == []
    run_something(device)
    met.clear_all()
    assert met.metrics_report() == ""


def test_fallbacks_are_counted_and_warned_about_once():
    # In a process of its own: other tests may have been warned already.
    out = run_in_process("""
        import warnings
        import torch
        import torch_xla.debug.metrics as met
        a, b = torch.rand(4, 3, device="xla"), torch.rand(2, 4, device="xla")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                # A part of the CPU's matrix exponential: nothing here calls it.
                torch._compute_linear_combination(a, b)
        [name] = met.executed_fallback_ops()
        print(name, met.counter_value(name), name in met.short_metrics_report())
        print(sum(name in str(warning.message) for warning in caught))
    """)
    assert out.split() == ["aten::_compute_linear_combination", "2", "True", "1"]


def test_reading_a_number_is_no_fallback(device):
    torch.ones((), device=device).item()
    assert met.counter_value("aten::_local_scalar_dense") == 1
    assert met.executed_fallback_ops() == []


def test_tracing_is_timed_up_to_the_launch(device):
    x = torch.ones(3, device=device)
    torch_xla.sync()
    met.clear_all()
    torch_xla.sync()  # nothing was recorded
    assert met.metric_data("LazyTracing") is None
    y = x + 1
    (y * 2).tolist()
    assert met.metric_data("LazyTracing")[0] == 1
    y.add_(1)
    torch_xla.sync()
    samples, total, _ = met.metric_data("LazyTracing")
    assert samples == 2 and total > 0


@pytest.mark.filterwarnings("ignore:aten..* has as many results")
def test_reads_of_operators_are_no_reads_of_the_user(device):
    x = torch.tensor([1.0, 0.0, 2.0], device=device)
    reads = [
        lambda: x.nonzero(),
        lambda: x[x > 0],
        lambda: torch.linalg.inv(torch.eye(2, device=device)),
        lambda: torch.repeat_interleave(x.long()),
    ]
    for read in reads:
        met.clear_all()
        read()
        assert met.metric_data("TransferFromDeviceTime") is None
        assert met.metric_data("OperatorReadTime")[0] == 1
    met.clear_all()
    x.sum().item()
    assert met.metric_data("TransferFromDeviceTime")[0] == 1
    assert met.metric_data("OperatorReadTime") is None


def test_names_of_torch_xla_are_there(device):
    met.clear_all()
    x = torch.full((1009,), 2.0).to(device)
    y = x * 3.5
    y.tolist()
    del x, y
    metrics = {
        "CompileTime",
        "ExecuteTime",
        "TransferToDeviceTime",
        "TransferFromDeviceTime",
        "InboundData",
        "OutboundData",
        "TensorToData",
        "UnwrapXlaData",
        "WrapXlaData",
        "DeviceLockWait",
        "TensorsGraphSize",
        "InputOutputAliasCount",
        "IrValueTensorToXlaData",
        "LazyTracing",
    }
    # The value can be read a moment before the thread that ran the program has added its time.
    torch_xla.sync(wait=True)
    assert metrics <= set(met.metric_names())
    assert met.counter_value("CreateXlaTensor") == met.counter_value("DestroyXlaTensor") > 0
    for name in ("UncachedCompile", "CreateCompileHandles", "DeviceDataCacheMiss"):
        assert met.counter_value(name) == 1


def test_pending_arguments_of_a_compiled_graph_are_counted(device):
    from torch_xla.core.dynamo_bridge import extract_compiled_graph

    x = torch.ones(3, device=device)
    torch_xla.sync()
    run = extract_compiled_graph(torch.fx.symbolic_trace(torch.nn.ReLU()), (x,))
    met.clear_all()
    run(x)
    assert met.counter_value("DynamoSyncInputExecuteTime") is None
    run(x + 1)
    assert met.counter_value("DynamoSyncInputExecuteTime") == 1

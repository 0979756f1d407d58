"""Streams and events of `torch.xla`: one order of work for each device."""

from __future__ import annotations

import counts
import pytest
import torch

import torch_xla


def test_streams_are_the_device(device):
    stream = torch.xla.Stream(priority=-1)
    assert stream == torch.xla.current_stream() == torch.xla.default_stream(device)
    assert stream.device.type == "xla" and stream in {torch.xla.Stream("xla:0")}
    assert "xla:0" in repr(stream)
    assert (stream.stream_id, stream.device_index) == (0, 0)
    assert stream.device_type == torch._C._autograd.DeviceType.XLA.value
    with counts.counted() as counted, torch.xla.stream(stream):
        x = torch.ones(2, device=device) * 3
        stream.wait_stream(torch.xla.current_stream())
        event = stream.record_event()
        event.wait(stream)
        stream.wait_event(event)
        torch.xla.set_stream(stream)
    pending = torch_xla._XLAC._pending_graph(0, "stablehlo")
    assert counted.executed == 0 and "stablehlo.multiply" in pending
    event.synchronize()
    assert "stablehlo" not in torch_xla._XLAC._pending_graph(0, "stablehlo")
    assert event.query() and stream.query()
    stream.synchronize()
    assert x.tolist() == [3, 3]


def test_the_stream_of_the_accelerator_is_xla_s(device):
    if torch.accelerator.is_available():
        pytest.skip("PyTorch has an accelerator of its own here")
    assert torch.accelerator.current_stream() == torch.xla.current_stream()


def test_events_have_no_times():
    for what in ("enable_timing", "interprocess"):
        with pytest.raises(NotImplementedError, match=what):
            torch.xla.Event(**{what: True})
    with pytest.raises(NotImplementedError, match="elapsed_time"):
        torch.xla.Event().elapsed_time(torch.xla.Event())
    torch.xla.Event().synchronize()  # never recorded: nothing to wait for
    torch_xla.sync()

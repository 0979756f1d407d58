"""Profiles: what they contain, the formats of their files, capturing from another process."""

from __future__ import annotations

import contextlib
import gzip
import json
import pathlib
import re
import socket
import threading
import time
import urllib.error
import urllib.request

import pytest
import torch
from counts import counted
from processes import run_in_process

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.profiler as xp
import torch_xla.runtime as xr
from torch_xla import _XLAC
from torch_xla.debug import _profiler_service, _xplane


@pytest.fixture(autouse=True)
def nothing_runs():
    """A value may be read before the program that computed it has ended."""
    xm.wait_device_ops()


def run_something(device):
    for step in range(3):
        step_trace = xp.StepTrace("train_step", step_num=step)
        with step_trace, xp.Trace("forward", batch=4, kind="x"):
            y = (torch.ones(8, 8).to(device) @ torch.ones(8, 8).to(device)).sum()
        y.item()


def profile(tmp_path, device):
    torch_xla.runtime.clear_computation_cache()
    xp.start_trace(str(tmp_path))
    run_something(device)
    return pathlib.Path(xp.stop_trace())


def perfetto_rows(folder: pathlib.Path) -> list[dict]:
    [path] = folder.glob("*.perfetto.json.gz")
    return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


def parsed(message: bytes) -> dict[int, list]:
    """The fields of a protocol buffer: numbers, and bytes for all else."""
    fields: dict[int, list] = {}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            value: int | bytes = varint()
        else:
            assert key & 7 == 2
            size = varint()
            value, at = message[at : at + size], at + size
        fields.setdefault(key >> 3, []).append(value)
    return fields


def planes(space: bytes) -> dict[str, dict[str, list[tuple[str, int, int]]]]:
    """{plane: {line: [(event, start in ns, duration in ps)]}}"""
    out = {}
    for plane in map(parsed, parsed(space).get(1, [])):
        names = {}
        for entry in map(parsed, plane.get(4, [])):
            metadata = parsed(entry[2][0])
            assert metadata[1] == entry[1]
            names[entry[1][0]] = metadata[2][0].decode()
        lines = {}
        for line in map(parsed, plane[3]):
            lines[line[2][0].decode()] = [
                (names[e[1][0]], line.get(3, [0])[0] + e.get(2, [0])[0] // 1000, e[3][0])
                for e in map(parsed, line[4])
            ]
        out[plane[2][0].decode()] = lines
    return out


def test_profile_is_where_tensorboard_looks(device, tmp_path):
    folder = profile(tmp_path, device)
    assert folder.parent == tmp_path / "plugins" / "profile"
    host = socket.gethostname()
    assert sorted(path.name for path in folder.iterdir()) == [
        f"{host}.perfetto.json.gz",
        f"{host}.xplane.pb",
    ]


def test_profile_has_annotations_compilations_transfers_and_programs(device, tmp_path):
    folder = profile(tmp_path, device)
    [path] = folder.glob("*.xplane.pb")
    space = planes(path.read_bytes())
    assert set(space) == {"/host:CPU", "/device:CUSTOM:xla:0"}
    host = [event for line in space["/host:CPU"].values() for event in line]
    names = [name for name, _, _ in host]
    assert names.count("train_step") == names.count("forward") == 3
    assert names.count("CompileTime") == 1
    assert {"TransferToDeviceTime", "TransferFromDeviceTime", "LoweringTime"} <= set(names)
    programs = space["/device:CUSTOM:xla:0"]["programs"]
    assert len(programs) == 3 and all(re.match("graph .* operations", p[0]) for p in programs)
    steps = [event for event in host if event[0] == "train_step"]
    for name, start, duration in host:
        assert duration >= 0
        if name == "forward":
            assert any(s[1] <= start and start + duration / 1e3 <= s[1] + s[2] / 1e3 for s in steps)


@pytest.mark.skipif(xr.device_type() != "CPU", reason="programs for the CPU alone make calls")
def test_profile_has_the_calls_of_programs(device, tmp_path):
    x = torch.rand(3, 3).to(device)
    torch.linalg.eigvals(x).cpu()  # the call's name is ATen's
    xm.wait_device_ops()
    xp.start_trace(str(tmp_path))
    torch.linalg.eigvals(x).cpu()
    rows = perfetto_rows(pathlib.Path(xp.stop_trace()))
    calls = [row for row in rows if "eig" in row["name"]]
    assert len(calls) == 1 and calls[0]["dur"] > 0


def test_times_begin_with_the_profile(device, tmp_path):
    rows = perfetto_rows(profile(tmp_path, device))
    assert all(0 <= row["ts"] < 600e6 for row in rows if row["ph"] == "X")


def test_times_of_a_plugin_are_shifted():
    events = [_xplane.Event("a", "xla:0", 5_000, 7), _xplane.Event("b", "main", 6_000, 8)]
    space = _xplane.xspace(events, "host")
    moved = planes(_xplane.shifted(space, 5_000))
    assert moved["/device:CUSTOM:xla:0"]["programs"] == [("a", 0, 7_000)]
    assert moved["/host:CPU"]["main"] == [("b", 1_000, 8_000)]
    assert _xplane.shifted(space, 0) == space and _xplane.shifted(b"", 1) == b""


def test_perfetto_file(device, tmp_path):
    rows = perfetto_rows(profile(tmp_path, device))
    steps = [row for row in rows if row["name"] == "train_step"]
    assert [row["args"]["step_num"] for row in steps] == [0, 1, 2]
    forward = next(row for row in rows if row["name"] == "forward")
    assert forward["args"] == {"batch": 4, "kind": "x"} and forward["ph"] == "X"
    lines = {row["tid"]: row["args"]["name"] for row in rows if row["name"] == "thread_name"}
    assert "xla:0" in lines.values()
    assert all(row["tid"] in lines for row in rows if row["ph"] == "X")


def test_xprof_opens_the_profile(device, tmp_path):
    convert = pytest.importorskip("xprof.convert.raw_to_tool_data")
    folder = profile(tmp_path, device)
    [path] = folder.glob("*.xplane.pb")
    data, _ = convert.xspace_to_tool_data([str(path)], "trace_viewer", {})
    assert "train_step" in data and "CompileTime" in data and "xla:0" in data


def test_step_trace_ends_with_a_barrier(device):
    with counted() as counts:
        with xp.StepTrace("step"):
            kept = torch.ones(3, device=device) * 2
        assert counts.executed == 0
    assert counts.executed == 1 and kept.tolist() == [2, 2, 2]
    with pytest.raises(ValueError, match="mine"), xp.StepTrace("step"):
        raise ValueError("mine")


def test_trace_me_names_calls(device, tmp_path):
    @xp.trace_me("my function")
    def add(a, b=1):
        return a + b

    assert add.__name__ == "add"
    xp.start_trace(str(tmp_path))
    assert add(1, b=2) == 3
    rows = perfetto_rows(pathlib.Path(xp.stop_trace()))
    assert [row["name"] for row in rows if row["ph"] == "X"] == ["my function"]


def test_traces_name_operations_for_the_compiler(device):
    torch_xla.settings.hlo_debug = True
    try:
        with xp.Trace("encoder"), xp.Trace("layer0"):
            y = torch.ones(2, device=device) + 1
        z = y * 2
        text = _XLAC._graph_of([z], "stablehlo")
    finally:
        torch_xla.settings.hlo_debug = False
    assert 'loc("encoder/layer0/aten::add.Tensor"' in text and 'loc("aten::mul.Tensor"' in text


def test_nothing_is_recorded_outside_of_a_trace(device, tmp_path):
    run_something(device)
    xm.wait_device_ops()
    xp.start_trace(str(tmp_path))
    rows = perfetto_rows(pathlib.Path(xp.stop_trace()))
    assert [row for row in rows if row["ph"] == "X"] == []


def test_misuse_is_an_error(tmp_path):
    with pytest.raises(RuntimeError, match="stop_trace: no trace is being taken"):
        xp.stop_trace()
    xp.start_trace(str(tmp_path))
    try:
        with pytest.raises(RuntimeError, match="start_trace: a trace is being taken already"):
            xp.start_trace(str(tmp_path))
    finally:
        xp.stop_trace()
    first, second = (path.name for path in map(pathlib.Path, (take(tmp_path), take(tmp_path))))
    assert first != second


def take(tmp_path) -> str:
    xp.start_trace(str(tmp_path))
    return xp.stop_trace()


def test_profile_of_another_process(tmp_path):
    code = f"""
        import subprocess, sys, torch, torch_xla
        import torch_xla.debug.profiler as xp
        server = xp.start_server(0)
        capture = "import sys, torch_xla.debug.profiler as xp; "
        capture += "xp.trace('localhost:' + sys.argv[1], sys.argv[2], duration_ms=1500)"
        other = subprocess.Popen(
            [sys.executable, "-P", "-c", capture, str(server.port), {str(tmp_path)!r}]
        )
        while other.poll() is None:
            with xp.StepTrace("served step"):
                x = torch.ones(8, device="xla") * 3
        server.stop()
        print(other.returncode)
        """
    assert run_in_process(code) == "0"
    [path] = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    names = {e[0] for line in planes(path.read_bytes())["/host:CPU"].values() for e in line}
    assert "served step" in names


def test_server_without_grpc_serves_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(_profiler_service, "is_available", lambda: False)
    with capturing(xp.start_server(0)) as address:
        folder = pathlib.Path(xp.trace(address, str(tmp_path), 200))
        # One with gRPC asks in both ways.
        monkeypatch.undo()
        xp.trace(address, str(tmp_path), 200)
    [path] = folder.glob("*.xplane.pb")
    assert path.name == f"{socket.gethostname()}.xplane.pb"


@contextlib.contextmanager
def capturing(server):
    """A process that is busy while others take its profile."""
    is_done = threading.Event()

    def work():
        while not is_done.is_set():
            with xp.Trace("busy"):
                time.sleep(0.001)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield f"localhost:{server.port}"
    finally:
        is_done.set()
        thread.join()
        server.stop()


def test_xprof_takes_a_profile(tmp_path):
    pytest.importorskip("grpc")
    xprof = pytest.importorskip("xprof.convert._pywrap_profiler_plugin")
    with capturing(xp.start_server(0, log_dir=tmp_path)) as address:
        xprof.trace(address, str(tmp_path), "", False, 300, 1, {})
    [path] = tmp_path.glob("plugins/profile/*/*.xplane.pb")
    names = {e[0] for line in planes(path.read_bytes())["/host:CPU"].values() for e in line}
    assert "busy" in names


def test_service_refuses_what_it_does_not_know(tmp_path):
    grpc = pytest.importorskip("grpc")
    server = xp.start_server(0, log_dir=tmp_path)
    root = _xplane.number_field(1, 50) + _xplane.text_field(5, str(tmp_path))
    requests = {
        b"": "duration_ms must be from 1",
        b"\xff": "ends too early",
        _xplane.number_field(1, 10**12): "duration_ms must be from 1",
        root: "needs a session_id and a host_name",
        root + _xplane.text_field(6, ".."): "needs a session_id and a host_name",
        root + _xplane.number_field(6, 1): "must be a text",
    }
    try:
        with grpc.insecure_channel(f"localhost:{server.port}") as channel:
            profile = channel.unary_unary("/tensorflow.ProfilerService/Profile")
            for request, message in requests.items():
                with pytest.raises(grpc.RpcError, match=message):
                    profile(request)
            # A name is no path.
            profile(root + _xplane.text_field(6, "../../a") + _xplane.text_field(7, "/b"))
        with pytest.raises(OSError, match="can't listen at localhost"):
            xp.start_server(server.port)
    finally:
        server.stop()
    [path] = tmp_path.rglob("*.pb")
    assert path == tmp_path / ".._.._a" / "_b.xplane.pb"


def test_server_refuses_what_it_does_not_know(monkeypatch):
    monkeypatch.setattr(_profiler_service, "is_available", lambda: False)
    server = xp.start_server(0)
    try:
        for path in ("/", "/profile", "/profile?duration_ms=x", "/profile?duration_ms=-1"):
            request = urllib.request.Request(f"http://localhost:{server.port}{path}", method="POST")
            with pytest.raises(urllib.error.HTTPError, match="400"):
                urllib.request.urlopen(request)
    finally:
        server.stop()


def test_no_server_is_an_error_after_all_attempts(tmp_path):
    with pytest.raises(RuntimeError, match="no profile of localhost:1"):
        xp.trace("localhost:1", str(tmp_path), 10, num_tracing_attempts=2, interval_s=0)

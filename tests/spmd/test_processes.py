"""One mesh over the devices of several processes: those of the CPU can't have one; the fake plugin
of the C++ tests pretends that its own can, as far as no program runs
(tests/cpp/runtime_processes_test.cpp has those)."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest
from processes import run_in_process

_BUILD = pathlib.Path(__file__).parents[2] / "build"
FAKE = [p for of in ("release", "torch-*/release") for p in _BUILD.glob(f"{of}/libfake_plugin.so")]
PROGRAM = """
import json
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla._replicas.uploads import send_cpu_data_to_device
from torch_xla.experimental.distributed_checkpoint import CheckpointManager

def error_of(call):
    try:
        return str(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"

xr.use_spmd()
mesh = xs.Mesh(range(4), (4,), ("data",))
values = torch.arange(8.0)
whole = values.to("xla")
split = xs.mark_sharding(values.to("xla"), mesh, ("data",)).global_tensor
twice = xs.Mesh(range(4), (2, 2), ("host", "device"))
within = xs.mark_sharding(values.to("xla"), twice, ("device",)).global_tensor
split.copy_(values * 2)
spec = xs.ShardingSpec(mesh, ("data",), minibatch=True)
print(json.dumps({
    "counts": [xr.global_runtime_device_count(), xr.addressable_runtime_device_count(),
               xr.addressable_device_count(), xr.process_count()],
    "whole": whole.tolist(),
    "parts": [shard.data.tolist() for shard in xs.local_shards(split)],
    "places": [shard.indices[0].start for shard in xs.local_shards(split)],
    "within": within.tolist(),
    "read": error_of(split.cpu),
    "minibatch": error_of(lambda: send_cpu_data_to_device([values], "xla", spec)),
    "all_reduce": error_of(lambda: xm.all_reduce("sum", whole)),
    "checkpoint": error_of(lambda: CheckpointManager("/nowhere", 1)),
}))
"""


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return str(probe.getsockname()[1])


def of_two_processes(program: str) -> list[str]:
    """The last line that each prints."""
    job = {
        "PJRT_LIBRARY_PATH": str(FAKE[0]),
        "PJRT_DEVICE": "FAKE",
        "WORLD_SIZE": "2",
        "PJRT_CREATE_OPTIONS": "cpu_device_count=2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": free_port(),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **job, "RANK": rank, "LOCAL_RANK": rank},
        )
        for rank in "01"
    ]
    lines = []
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        lines.append(out.splitlines()[-1])
    return lines


@pytest.mark.skipif(not FAKE, reason="not built: cmake --build build/release -t fake_plugin")
def test_each_process_has_the_parts_of_its_devices():
    for rank, line in enumerate(of_two_processes(PROGRAM)):
        said = json.loads(line)
        assert said["counts"] == [4, 2, 1, 2]
        assert said["whole"] == said["within"] == list(range(8))
        assert said["places"] == [4 * rank, 4 * rank + 2]
        assert said["parts"] == [[8 * rank, 8 * rank + 2], [8 * rank + 4, 8 * rank + 6]]
        assert "parts are on devices of other processes" in said["read"]
        assert "minibatch=True is not supported" in said["minibatch"]
        assert "collectives between 2 replicas: under SPMD" in said["all_reduce"]
        assert "a mesh over several processes" in said["checkpoint"]


def test_the_devices_of_cpu_processes_make_no_mesh():
    out = run_in_process(
        """
        import torch_xla.runtime as xr
        try:
            xr.use_spmd()
        except NotImplementedError as error:
            print(error, xr.is_spmd())
        """,
        RANK="1",
        WORLD_SIZE="2",
    )
    assert out == (
        "use_spmd: this is one of 2 processes, and collectives of the CPU plugin do not cross "
        "processes; start one process with CPU_NUM_DEVICES=2 False"
    )


USED_BEFORE = """
import torch, torch_xla.runtime as xr
print(torch.ones(2, device="xla").device)
try:
    xr.use_spmd()
except RuntimeError as error:
    print(error)
"""


@pytest.mark.skipif(not FAKE, reason="not built: cmake --build build/release -t fake_plugin")
def test_devices_that_were_used_make_no_mesh_of_several_processes():
    for line in of_two_processes(USED_BEFORE):
        assert "call it before the first use of the device" in line

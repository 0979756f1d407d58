"""One program over several devices of one process: values, gradients and states are those of
PyTorch on the CPU, whatever lies where."""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import mesh_programs
import pytest
import torch
from processes import json_of_program, run_in_process
from quick_options import COMPILING_QUICKLY

import torch_xla

PROGRAM = pathlib.Path(__file__).with_name("mesh_programs.py")


@functools.cache
def outcome(count: int, partitioner: str = "shardy") -> Any:
    # What partitioned programs become is computed as on users' machines on one of the meshes.
    variables = COMPILING_QUICKLY if count > 2 or partitioner == "gspmd" else {}
    variables = {**variables, "CPU_NUM_DEVICES": str(count), "XLA_PARTITIONER": partitioner}
    return json_of_program(PROGRAM, str(count), **variables)


@pytest.mark.parametrize("claim", [check.__name__ for check in mesh_programs.CHECKS])
@pytest.mark.parametrize(("count", "partitioner"), [(2, "shardy"), (4, "shardy"), (2, "gspmd")])
def test_on_a_mesh(count, partitioner, claim):
    failure = outcome(count, partitioner)["failures"].get(claim)
    assert failure is None, failure


@pytest.mark.parametrize("count", [2, 4])
def test_random_numbers_do_not_depend_on_the_mesh(device, count):
    torch.manual_seed(11)
    torch_xla.manual_seed(11)
    x = torch.randn(8, 4, device=device)
    y = torch.nn.functional.dropout(x, 0.5)
    z = torch.rand(8, device=device)
    values = torch.cat([x.flatten(), y.flatten(), z]).cpu()
    torch.testing.assert_close(torch.tensor(outcome(count)["random"]), values)


def test_writes_read_what_was_there_before():
    # XLA's compiler for the CPU would write some of these in place before it has read them all.
    out = run_in_process(
        """
        import torch, torch_xla, torch_xla.runtime as xr
        xr.use_spmd()

        def written(device):
            picks = torch.arange(7, device=device) * 3
            x = (torch.arange(20, device=device) * 0.5 + 1).reshape(5, 4)
            x.unsqueeze(1)[:, 0::2][4::2].copy_((x.reshape(-1)[picks] - 1)[3:7].view(1, 1, 4))
            x[:, 3:4][torch.tensor([1, 2, 3], device=device)] = (x.T * 2).reshape(-1)[13:16, None]
            return x

        print(torch.equal(written("xla").cpu(), written("cpu")))
        """,
        CPU_NUM_DEVICES="8",
    )
    assert out == "True"


def test_a_mesh_before_use_spmd_is_an_error():
    out = run_in_process(
        """
        import torch, torch_xla
        import torch_xla.distributed.spmd as xs
        import torch_xla.runtime as xr
        try:
            xs.get_1d_mesh("data")
        except RuntimeError as error:
            print(error)
        other = torch.ones(2, device="xla:1")
        try:
            xr.use_spmd()
        except RuntimeError as error:
            print(error, xr.is_spmd())
        del other
        xr.use_spmd()
        print(xs.get_1d_mesh("data"))
        """,
        CPU_NUM_DEVICES="2",
    )
    lines = out.splitlines()
    assert "use_spmd() first" in lines[0]
    assert "tensors on xla:1" in lines[1] and lines[1].endswith("False")
    assert lines[2].startswith("Mesh(")


def test_a_graph_that_is_warmed_up_is_compiled_once():
    out = run_in_process(
        """
        import torch, torch_xla, torch_xla.runtime as xr, torch_xla.distributed.spmd as xs
        from torch_xla import _XLAC
        xr.use_spmd()
        x = torch.arange(8.0).to("xla")
        graph = [x * 5]
        key = _XLAC._get_graph_hash(graph)
        _XLAC._xla_warm_up_cache(graph, [])
        torch_xla.sync(wait=True)
        compiled = _XLAC._computation_stats()[0]
        print(_XLAC._run_cached_graph(key, [x])[0].tolist())
        print(_XLAC._computation_stats()[0] - compiled)
        parts = xs.mark_sharding(x + 0, xs.get_1d_mesh("data"), ("data",))
        try:
            _XLAC._run_cached_graph(key, [parts])
        except RuntimeError as error:
            print(error)
        """,
        CPU_NUM_DEVICES="2",
    )
    assert out.splitlines() == [
        "[0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0]",
        "0",
        "run_cached_graph: expected whole tensors, and input 0 lies in parts on the mesh",
    ]


def test_fewer_elements_than_devices():
    # XLA's partitioner would return a part of the copy, and what lies behind it in memory.
    out = run_in_process(
        """
        import torch, torch_xla, torch_xla.runtime as xr, torch_xla.distributed.spmd as xs
        xr.use_spmd()
        for sizes, split in (((4,), 0), ((2, 2), (0, 1)), ((2, 2), 0)):
            mesh = xs.Mesh(range(4), sizes)
            for count in range(1, 10):
                x = torch.arange(5 * count, dtype=torch.float32).reshape(5, count)
                spread = xs.mark_sharding_with_gradients(x.to("xla"), mesh, (None, split))
                copy, column = spread.clone(), spread.narrow(1, 0, 1)
                xs.annotate_custom_sharding(column, mesh, (None, None))
                found = [spread, copy, column.clone()]
                torch_xla.sync()
                assert all(torch.equal(y.cpu(), x[:, : y.shape[1]]) for y in found), count
        print("right")
        """,
        CPU_NUM_DEVICES="4",
    )
    assert out == "right"

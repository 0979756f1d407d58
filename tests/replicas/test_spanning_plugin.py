"""Replicas on a plugin whose collectives cross processes, as NVIDIA's and TPU's do: what they
exchange is part of their programs. The plugin is the CPU's with such collectives in front
(tests/support/spanning_plugin.cpp); programs must be alike where it calls itself a TPU's."""

from __future__ import annotations

import os
import pathlib
import textwrap

import pytest
import spanning
from test_exchanges import FOLDER, run

import torch_xla.runtime as xr

pytestmark = pytest.mark.skipif(xr.device_type() != "CPU", reason="the plugin is made of the CPU's")


MORE = [(2, "fully_sharded", "training models")] if os.environ.get("EXCHANGES") == "all" else []


def run_spanning(program: list[str], count: int, code: int = 0, **environment: str) -> str:
    return run(program, count, code, **{**spanning.environment(count), **environment})


@pytest.mark.parametrize(
    ("count", "platform", "names"),
    [
        (3, "spanning", "reductions functions messages channels devices reads"),
        (4, "spanning", "groups"),
        (2, "tpu", "moves groups functions messages channels devices"),
    ],
)
def test_exchanges_are_those_of_numpy(count, platform, names):
    program = [str(FOLDER / "exchange_programs.py"), *names.split()]
    assert f"passed {names}" in run_spanning(program, count, SPANNING_PLATFORM=platform)


@pytest.mark.parametrize(
    ("count", "program", "names"),
    [
        (2, "training", "optimizer_step torch_norms ddp tensor_parallel zero fsdp pipeline"),
        (4, "fully_sharded", "meshes"),
        (2, "captured", "compile dynamo scan checkpoint"),
        *MORE,
    ],
)
def test_training_is_that_of_one_device(count, program, names):
    out = run_spanning([str(FOLDER / f"{program}_programs.py"), *names.split()], count)
    assert f"passed {names}" in out


def test_each_process_of_a_host_has_one_of_its_chips(tmp_path):
    """By the variables that libtpu reads, as the plugin does here."""
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent("""
        import os, torch, torch_xla, torch_xla.core.xla_model as xm, torch_xla.runtime as xr
        def run(index):
            total = xm.all_reduce(xm.REDUCE_SUM, torch.ones((), device="xla"))
            seen = [os.environ[f"TPU_{name}"] for name in ("VISIBLE_CHIPS", "PROCESS_BOUNDS")]
            assert seen == [str(index), "1,2,1"], seen
            xm.master_print(xr.device_type(), total.item())
        if __name__ == "__main__":
            torch_xla.launch(run)
        """)
    )
    library = spanning.environment(2)["PJRT_LIBRARY_PATH"]
    named = {"PJRT_DEVICE": "TPU", "TPU_LIBRARY_PATH": library, "PJRT_LIBRARY_PATH": ""}
    out = run_spanning([str(program)], 2, SPANNING_PLATFORM="tpu", TPU_NUM_DEVICES="2", **named)
    assert out.split() == ["TPU", "2.0"]


PROGRAM = """
import os, signal, time, torch, torch.distributed as dist, torch_xla
import torch_xla.core.xla_model as xm, torch_xla.runtime as xr
import torch_xla.distributed.xla_backend
from torch_xla.debug import metrics
from torch_xla._XLAC import _computation_stats
def run(index):
{}
if __name__ == "__main__":
    torch_xla.launch(run, start_method="fork")
"""


def run_body(folder: pathlib.Path, body: str, code: int = 0, **environment: str) -> str:
    """What two replicas print that run `body`."""
    path = folder / "program.py"
    path.write_text(PROGRAM.format(textwrap.indent(textwrap.dedent(body), "    ")))
    limit = {"XLA_COLLECTIVE_TIMEOUT": "20", **environment}
    return run_spanning([str(path)], 2, code, **limit)


def test_steps_compile_once_and_nothing_leaves_the_device(tmp_path):
    out = run_body(
        tmp_path,
        """
        dist.init_process_group("xla", init_method="xla://")
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        model = torch.nn.parallel.DistributedDataParallel(model.to("xla"))
        optimizer = torch.optim.Adam(model.parameters())
        compiled = []
        for step in range(4):
            optimizer.zero_grad()
            model(torch.randn(4, 8, device="xla")).square().mean().backward()
            optimizer.step()
            torch_xla.sync()
            compiled.append(_computation_stats()[0])
        assert compiled[-1] == compiled[2], compiled  # DDP makes other buckets after the first
        left = {name for name in metrics.counter_names() if name.startswith("aten::")}
        assert left <= {"aten::_local_scalar_dense"}, left  # DDP reads a number at its start
        assert xr.world_size() == xr.global_runtime_device_count() == 2
        print("passed")
        """,
    )
    assert out.count("passed") == 2


def test_a_program_in_stablehlos_own_words(tmp_path):
    out = run_body(
        tmp_path,
        """
        y = xm.all_reduce(xm.REDUCE_SUM, torch.ones(3, device="xla"))
        z = xm.all_reduce(xm.REDUCE_MAX, torch.ones(3, device="xla"))
        text = torch_xla._XLAC._pending_graph(0, "stablehlo")
        assert text.count('"stablehlo.all_reduce"(') == 2 and "_c10d_functional" not in text
        assert text.count("replica_groups = dense<[[0, 1]]>") == 2, text
        assert text.count('"stablehlo.optimization_barrier"(') == 4  # one behind the other
        """,
    )
    assert "Error" not in out


@pytest.mark.parametrize(
    ("platform", "body", "words"),
    [
        ("tpu", "x = torch.ones(4 + index, device='xla')", ()),
        (
            "spanning",
            "x = torch.ones(4, device='xla')\nif index: x = xm.all_gather(x)",
            ("all_reduce(f32[4]", "all_gather_into_tensor(f32[1,4]"),
        ),
    ],
)
def test_different_exchanges_are_found_before_they_are_made(tmp_path, platform, body, words):
    out = run_body(
        tmp_path,
        f"{body}\ny = xm.all_reduce(xm.REDUCE_SUM, x)\nprint(y.sum().item())",
        code=1,
        SPANNING_PLATFORM=platform,
        XLA_IR_DEBUG="1",
    )
    assert "replicas are about to exchange different things: number " in out
    assert "on rank 0" in out and "on rank 1" in out and "program.py:" in out
    assert all(word in out for word in words), out


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "time.sleep(60)"])
def test_who_does_not_come_is_named(tmp_path, end):
    out = run_body(
        tmp_path,
        f"""
        xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device="xla")).sum().item()
        if index == 1:
            {end}
        xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device="xla")).sum().item()
        """,
        code=1,
        XLA_COLLECTIVE_TIMEOUT="8",
    )
    assert "SIGKILL" in out or "the launch of a program of ranks [0, 1]: " in out, out


def test_parts_of_other_sizes(tmp_path):
    out = run_body(
        tmp_path,
        """
        dist.init_process_group("xla", init_method="xla://")
        sizes = [1, 2] if index == 0 else [2, 3]
        own = torch.arange(float(sum(sizes)), device="xla") + 10 * index
        got = torch.zeros(sizes[0] + sizes[1], device="xla")
        dist.all_to_all_single(got, own, sizes, sizes)
        assert got.tolist() == ([0, 10, 11] if index == 0 else [1, 2, 12, 13, 14]), got
        try:
            name = dist.group.WORLD.group_name
            torch.ops._c10d_functional.all_to_all_single(own, sizes, sizes, name)
        except NotImplementedError as error:
            assert "pad them" in str(error)
            print("passed")
        """,
    )
    assert out.count("passed") == 2

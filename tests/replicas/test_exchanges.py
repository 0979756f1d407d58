"""Replicas in processes of their own: what they exchange is right, and what goes wrong ends on each
of them with an error that says what."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap
import time

import pytest
from quick_options import COMPILING_QUICKLY

import torch_xla.runtime as xr

pytestmark = pytest.mark.skipif(
    xr.device_type() != "CPU", reason="processes meet on the CPU's platform alone"
)

FOLDER = pathlib.Path(__file__).parent
SHARDED = "training models accumulation mixed_precision offloaded memory"


def run(
    program: list[str], count: int, code: int = 0, timeout: float = 280, **environment: str
) -> str:
    """What a program of `count` replicas prints, on both streams."""
    done = subprocess.run(
        [sys.executable, *program],
        capture_output=True,
        text=True,
        env={**os.environ, "CPU_NUM_DEVICES": str(count), **COMPILING_QUICKLY, **environment},
        timeout=timeout,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def torchrun(count: int, program: list[str]) -> str:
    return run(
        ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", *program], 1
    )


@pytest.mark.parametrize("count", [2, 3, 4])
def test_exchanges_are_those_of_numpy(count):
    names = ["groups", "large", "functions", "uneven", "channels", "overlap"]
    if count == 3 or os.environ.get("EXCHANGES") == "all":
        names += ["reductions", "moves", "reads", "messages", "devices", "pieces"]
    out = run([str(FOLDER / "exchange_programs.py"), *names], count)
    assert f"passed {' '.join(names)}" in out


@pytest.mark.parametrize("count", [1, 2])
def test_exchanges_inside_of_functions(count):
    out = run([str(FOLDER / "captured_programs.py")], count)
    assert "passed compile dynamo scan checkpoint" in out


@pytest.mark.parametrize("start", ["launch", "torchrun"])
def test_training_is_that_of_one_device(start):
    program = str(FOLDER / "training_programs.py")
    names = (
        "optimizer_step torch_norms ddp tensor_parallel zero torch_zero fsdp fsdp_of_others "
        "pipeline"
    )
    if start == "launch":
        out = run([program], 2)
    else:  # the same but for how replicas find each other
        names = "optimizer_step ddp fsdp"
        out = torchrun(2, [program, *names.split()])
    assert f"passed {names}" in out


def test_layers_in_uneven_parts():
    out = run([str(FOLDER / "training_programs.py"), "tensor_parallel"], 3)  # 16 wide
    assert "passed tensor_parallel" in out


@pytest.mark.parametrize(("count", "names"), [(2, SHARDED), (4, "meshes")])
def test_fully_shard(count, names):
    out = run([str(FOLDER / "fully_sharded_programs.py"), *names.split()], count)
    assert f"passed {names}" in out


@pytest.mark.parametrize("count", [2, 4])
def test_replicas_in_threads(count):
    out = run([str(FOLDER / "thread_programs.py")], count)
    assert all(
        f"passed {name}" in out
        for name in ("exchanges", "training", "failures", "channels", "ends")
    )


@pytest.mark.parametrize("way", ["ends", "failures"])
def test_programs_with_threads_wait_for_nobody_at_their_end(way):
    out = run([str(FOLDER / "thread_programs.py"), way], 2, timeout=150)  # of 600 that they may
    assert f"passed {way}" in out


@pytest.mark.parametrize("start", ["torchrun", "accelerate"])
def test_programs_of_hugging_face(start):
    pytest.importorskip("accelerate", reason="Hugging Face's packages are not installed")
    pytest.importorskip("transformers", reason="Hugging Face's packages are not installed")
    program = str(FOLDER / "trainer_program.py")
    if start == "torchrun":
        assert "passed" in torchrun(2, [program])
    else:
        # Without a function's name accelerate fails in its own launcher, unless it was configured.
        options = ["--tpu", "--main_training_function", "main"]
        assert "passed" in run(["-m", "accelerate.commands.launch", *options, program], 2)


@pytest.mark.parametrize(("saving", "loading"), [(2, 3), (2, 1), (1, 2)])
def test_checkpoints_of_some_are_read_by_others(tmp_path, saving, loading):
    program = str(FOLDER / "checkpoint_program.py")
    for task, count in (("save", saving), ("load", loading)):
        out = run([program, task, str(tmp_path / "checkpoint")], count)
        assert out.count(f"passed {task} {count}") == count


@pytest.mark.parametrize("start", ["launch", "torchrun"])
def test_what_the_others_wait_for_is_exchanged_at_the_end(tmp_path, start):
    path = tmp_path / "program.py"
    path.write_text("""
import torch, torch_xla, torch_xla.core.xla_model as xm
def run(index):
    total = xm.all_reduce(xm.REDUCE_SUM, torch.ones(3, device="xla") + index)
    if index == 0:
        print("total", total.tolist())
if __name__ == "__main__":
    torch_xla.launch(run)
""")
    out = run([str(path)], 2) if start == "launch" else torchrun(2, [str(path)])
    assert "total [3.0, 3.0, 3.0]" in out


def test_other_ways_to_start_processes(tmp_path):
    """Forked ones too; each in its turn adds its number and an end, and none between them."""
    path = tmp_path / "program.py"
    path.write_text("""
import pathlib, sys, time, torch, torch_xla, torch_xla.core.xla_model as xm
import torch_xla.distributed.xla_multiprocessing as xmp
def run(index, executor, wrapper, path):
    def in_turn():
        with path.open("a") as out: print("begin", index, file=out)
        time.sleep(0.1)
        with path.open("a") as out: print("end", index, file=out)
        return index
    assert executor.run(in_turn) == index
    weight = wrapper.to(torch_xla.device()).weight
    total = xm.all_reduce(xm.REDUCE_SUM, weight.detach() * 0 + index)
    assert total.tolist() == [[1.0, 1.0]]
    print("passed", flush=True)
if __name__ == "__main__":
    path = pathlib.Path(sys.argv[1])
    args = xmp.MpSerialExecutor(), xmp.MpModelWrapper(torch.nn.Linear(2, 1)), path
    torch_xla.launch(run, args, start_method="fork")
    xmp.spawn(run, args, join=False, daemon=True, start_method="forkserver").join()
    lines = path.read_text().splitlines()
    for first, second in zip(lines[::2], lines[1::2], strict=True):
        assert first.replace("begin", "end") == second, lines
""")
    assert run([str(path), str(tmp_path / "turns")], 2).count("passed") == 4


def failing(body: str, **environment: str) -> str:
    """What a launch of two prints whose replicas run `body`, and fail."""
    program = f"""
import os, signal, sys, time, torch, torch_xla, torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
def run(index):
{textwrap.indent(textwrap.dedent(body), "    ")}
"""
    path = pathlib.Path(environment.pop("folder")) / "program.py"
    # Forked, replicas need not import all again; other tests spawn them.
    path.write_text(
        program + '\nif __name__ == "__main__":\n    torch_xla.launch(run, start_method="fork")\n'
    )
    return run([str(path)], 2, code=1, timeout=200, **environment)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("x = torch.ones(4 + index, device='xla')", ("f32[4], sum", "f32[5], sum")),
        (
            "x = torch.ones(4, device='xla', dtype=(torch.float32, torch.float64)[index])",
            ("f32[4], sum", "f64[4], sum"),
        ),
        (
            "x = torch.ones(4, device='xla')\nif index: xm.all_gather(x)",
            ("all_reduce(f32[4], sum", "all_gather_into_tensor(f32[1,4], 2"),
        ),
    ],
)
def test_different_exchanges_are_found_before_they_are_made(tmp_path, body, words):
    out = failing(
        f"{body}\ny = xm.all_reduce(xm.REDUCE_SUM, x)\nprint(y.sum().item())",
        folder=str(tmp_path),
        XLA_COLLECTIVE_TIMEOUT="20",
    )
    assert "replicas are about to exchange different things: number 1 of this program is" in out
    assert all(word in out for word in words), out
    assert "on rank 0" in out and "on rank 1" in out


def test_another_reduction_is_found(tmp_path):
    out = failing(
        """
        x = torch.ones(4, device="xla")
        y = xm.all_reduce((xm.REDUCE_SUM, xm.REDUCE_MAX)[index], x)
        y.sum().item()
        """,
        folder=str(tmp_path),
    )
    assert "all_reduce(f32[4], sum" in out and "all_reduce(f32[4], max" in out


def test_a_replica_that_raises_ends_all(tmp_path):
    start = time.monotonic()
    out = failing(
        """
        xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device="xla")).sum().item()
        if index == 1:
            raise LookupError("on one of them")
        xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device="xla")).sum().item()
        """,
        folder=str(tmp_path),
    )
    assert "LookupError: on one of them" in out or "all_reduce of ranks [0, 1]" in out
    assert time.monotonic() - start < 60


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), signal.SIGKILL)", "return"])
def test_a_replica_that_is_killed_or_returns_early_ends_all(tmp_path, end):
    out = failing(
        f"""
        xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device="xla")).sum().item()
        if index == 1:
            {end}
        xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device="xla")).sum().item()
        """,
        folder=str(tmp_path),
    )
    assert "SIGKILL" in out or "all_reduce of ranks [0, 1]" in out


def test_who_is_missing_is_named(tmp_path):
    out = failing(
        """
        if index == 0:
            xm.rendezvous("here")
        time.sleep(60)
        """,
        folder=str(tmp_path),
        XLA_COLLECTIVE_TIMEOUT="3",
    )
    assert "rendezvous here: after 3 s replica 1 is not here" in out


def test_who_does_not_come_to_an_exchange_is_named(tmp_path):
    out = failing(
        """
        xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device="xla")).sum().item()
        if index == 1:
            time.sleep(60)
        xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device="xla")).sum().item()
        """,
        folder=str(tmp_path),
        XLA_COLLECTIVE_TIMEOUT="10",
    )
    assert "all_reduce of ranks [0, 1]: " in out
    assert "; rank 1 did not come" in out


def test_who_is_slow_at_an_exchange_is_named(tmp_path):
    path = tmp_path / "program.py"
    path.write_text("""
import time, torch, torch_xla, torch_xla.core.xla_model as xm
from torch_xla.debug import metrics
def exchange():
    xm.all_reduce(xm.REDUCE_SUM, torch.ones(2, device="xla")).sum().item()
def run(index):
    exchange()
    time.sleep((0, 12, 1)[index])  # the last one has waited less than the first when that warns
    exchange()
    assert index == 1 or metrics.counter_value("SlowExchange") == 1
    exchange()
if __name__ == "__main__":
    torch_xla.launch(run)
""")
    out = run([str(path)], 3, XLA_WAIT_WARNING="2")
    said = "a thread has waited 2 s for _c10d_functional::all_reduce of ranks [0, 1, 2], to which "
    assert out.count(f"{said}rank 1 has not come, and goes on waiting") == 2, out


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "dist.send(x, 1) if index == 0 else dist.recv(x[1:], 0)\ntorch_xla.sync(wait=True)",
            "rank 0 sent float32 of size [3], and float32 of size [2] was to be received",
        ),
        (
            "time.sleep(30) if index == 0 else dist.recv(x, 0)\ntorch_xla.sync(wait=True)",
            "xla::recv: nothing came from rank 0: ",
        ),
        (
            "dist.send(x, 1 - index, group=dist.new_group([0, 1]), tag=-1)",
            "tag must be from 0 to 268435455, got -1",
        ),
        (
            "time.sleep(30) if index == 0 else dist.recv(x)",
            "xla::recv: nothing came from any rank: ",
        ),
        (
            "if index == 0:\n    xm.send(x, 3)\n    xm.recv(x, 3)",
            "recv: replica 0 is the sender on channel 3, and can't be its receiver too",
        ),
        (
            "if index == 0: xm.send(x, 3)\nxm.rendezvous('sent')\nif index == 1: xm.send(x, 3)",
            "send: channel 3 has a sender, replica 0, and this is replica 1",
        ),
        (
            "if index == 0: xm.send(x, 3)\nxm.all_reduce(xm.REDUCE_SUM, x).sum().item()",
            "no replica became the receiver on channel 3 within 4 s",
        ),
        ("xm.send(x, -1)", "send: channel_id must be from 0 to 268435455, got -1"),
    ],
)
def test_messages_that_go_wrong(tmp_path, body, words):
    program = f"""
import torch.distributed as dist, torch_xla.distributed.xla_backend
dist.init_process_group("xla", init_method="xla://")
x = torch.ones(3, device="xla")
{body}
"""
    assert words in failing(program, folder=str(tmp_path), XLA_COLLECTIVE_TIMEOUT="4")


def test_groups_of_another_backend_are_refused(tmp_path):
    out = failing(
        """
        import torch.distributed as dist
        dist.init_process_group("gloo")
        dist.all_reduce(torch.ones(2, device="xla"))
        """,
        folder=str(tmp_path),
    )
    assert "can't exchange tensors of the device xla" in out


def test_a_launch_in_a_replica_and_after_a_device_was_used(tmp_path):
    out = failing("torch_xla.launch(run)", folder=str(tmp_path))
    assert "this is a replica already" in out
    path = tmp_path / "used.py"
    path.write_text(
        "import torch, torch_xla\ntorch.ones(1, device='xla')\ntorch_xla.launch(print)\n"
    )
    assert "touch no device before" in run([str(path)], 2, code=1)

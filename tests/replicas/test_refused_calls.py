"""What replicas can't exchange is an error at the call that says what to do, and what nobody
receives is told at the end."""

from __future__ import annotations

import os
import pathlib
import socket
import subprocess
import sys

import pytest
from test_exchanges import run, torchrun

import torch_xla.runtime as xr
from torch_xla._replicas import world

pytestmark = pytest.mark.skipif(
    xr.device_type() != "CPU", reason="processes meet on the CPU's platform alone"
)

FOLDER = pathlib.Path(__file__).parent


def test_what_cant_be_exchanged_is_refused_at_the_call():
    assert "passed xm groups" in run([str(FOLDER / "refused_programs.py")], 2)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"RANK": "2"}, "RANK must be from 0 to WORLD_SIZE - 1, 1, got 2"),
        ({"RANK": "one"}, "RANK must be a number, got 'one'"),
        ({"LOCAL_RANK": "1"}, "LOCAL_RANK must be from 0 to LOCAL_WORLD_SIZE - 1, 0, got 1"),
        ({}, "MASTER_ADDR is not set, though WORLD_SIZE is 2"),
    ],
)
def test_places_that_there_are_not(monkeypatch, variables, words):
    place = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    for name, value in {**place, **variables}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(ValueError, match=words):
        world.check_place()


def test_a_place_that_two_processes_have():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = "import torch_xla.core.xla_model as xm\nxm.rendezvous('here')\nprint('passed')"

    def start(rank: int) -> subprocess.Popen[str]:
        place = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
        return subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, **place, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    first, *others = [start(0), start(1), start(1)]
    printed = [process.communicate(timeout=120)[0] for process in (first, *others)]
    assert [process.returncode for process in others].count(0) == 1, printed
    assert sum("passed" in each for each in printed) == 2, printed
    assert sum("is replica 1 of the job, as process" in each for each in printed) == 1, printed
    assert all(
        "RANK must be another number for each process" in each
        for each in printed[1:]
        if "passed" not in each
    )


@pytest.mark.parametrize("start", ["launch", "torchrun"])
def test_what_nobody_receives_is_told_at_the_end(tmp_path, start):
    """Neither who is at the other end of a channel, nor that somebody takes what comes."""
    path = tmp_path / "program.py"
    path.write_text("""
import torch, torch_xla, torch_xla.core.xla_model as xm
def run(index):
    x = torch.ones(3, device="xla")
    other = 1 - index
    for _ in range(3):
        xm.send(x, 20 + index)
    xm.recv(x, 20 + other)
    assert x.tolist() == [1.0] * 3
    xm.send(x, 10 + index)
    torch_xla.sync()
if __name__ == "__main__":
    torch_xla.launch(run)
""")
    out = run([str(path)], 2) if start == "launch" else torchrun(2, [str(path)])
    for index in range(2):
        told = f"what replica {index} sent on channel "
        assert f"{told}{10 + index} was received by nobody" in out
        assert f"{told}{20 + index} to replica {1 - index} was received by nobody" in out


def test_what_a_replica_that_is_alone_does_not_receive_is_told_at_its_end():
    program = "import torch, torch_xla.core.xla_model as xm\nxm.send(torch.ones(2), 3)"
    out = run(["-c", program], 1)
    assert "what replica 0 sent on channel 3 was received by nobody" in out

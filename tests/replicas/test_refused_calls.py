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


def meet(rank: int, port: int, **settings: str) -> subprocess.Popen[str]:
    """A process that meets one other. Replica 0, which has the job's store, stays until it is told
    to go on."""
    program = (
        "import torch_xla.core.xla_model as xm\n"
        "xm.rendezvous('here')\n"
        "print('passed')\n"
        "xm.is_master_ordinal() and input()"
    )
    place = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, **place, **address, **settings},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_a_place_that_two_processes_have():
    port = free_port()
    first, *others = [meet(rank, port) for rank in (0, 1, 1)]
    printed = [process.communicate(timeout=120)[0] for process in others]
    assert "passed" in first.communicate("go on\n", timeout=120)[0]
    assert sorted(process.returncode for process in others) == [0, 1], printed
    passed, refused = sorted(printed, key=lambda text: "passed" not in text)
    assert "passed" in passed
    assert "is replica 1 of the job, as process" in refused
    assert "RANK must be another number for each process" in refused


def test_who_waits_for_the_store_says_so():
    settings = {"XLA_WAIT_WARNING": "1", "XLA_COLLECTIVE_TIMEOUT": "2"}
    alone = [meet(rank, free_port(), **settings) for rank in range(2)]
    for rank, process in enumerate(alone):
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 1, out
        assert f"after 1 s replica {rank} goes on waiting for the 2 of the job" in out


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

"""Replicas on several hosts, which are network namespaces: they train as one device does, read what
other hosts wrote, and all of them end when one host or replica is gone."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Callable, Iterator

import hosts
import pytest
from processes import run_in_process
from quick_options import COMPILING_QUICKLY
from test_exchanges import run

import torch_xla.runtime as xr

pytestmark = [
    pytest.mark.skipif(xr.device_type() != "CPU", reason="processes meet on the CPU alone"),
    pytest.mark.skipif(bool(hosts.reason_not_to_be()), reason=hosts.reason_not_to_be()),
]

FOLDER = pathlib.Path(__file__).parent
PROGRAMS = str(FOLDER / "host_programs.py")
RESUMING = str(FOLDER / "resuming_program.py")
ENVIRONMENT = {
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    # They start together, but on a machine that has other things to do.
    "XLA_COLLECTIVE_TIMEOUT": "60",
    **COMPILING_QUICKLY,
}


@pytest.fixture
def make_hosts() -> Iterator[Callable[[int], hosts.Hosts]]:
    made: list[hosts.Hosts] = []

    def make(count: int) -> hosts.Hosts:
        for before in made:
            before.remove()
        made.append(hosts.Hosts(count))
        made[-1].make()
        return made[-1]

    yield make
    for each in made:
        each.remove()


def wait_for(*paths: pathlib.Path) -> None:
    deadline = time.monotonic() + 120
    while not all(path.exists() for path in paths):
        assert time.monotonic() < deadline, f"none of {paths} came"
        time.sleep(0.1)


def test_hosts_train_as_one_device_and_read_what_others_wrote(make_hosts, tmp_path):
    names = ["places", "fsdp", "save", "slow"]  # data-parallel training is below
    folder = {"CHECKPOINT": str(tmp_path / "checkpoint"), **ENVIRONMENT}
    two = make_hosts(2)
    two.torchrun([PROGRAMS, *names], XLA_WAIT_WARNING="2", **folder)
    first, second = two.run_out(200)
    assert f"passed {' '.join(names)}" in first
    assert "passed save 2" in first and "passed save 2" in second
    # Of a slow one the others say for whom they wait.
    late = "rendezvous late: after 2 s replica 1 is not here, and replica 0 goes on waiting"
    assert late in first and "is not here" not in second
    assert "a thread has waited 2 s for the launch of" in first

    checkpoint = str(FOLDER / "checkpoint_program.py")
    assert "passed load 1" in run([checkpoint, "load", folder["CHECKPOINT"]], 1)
    four = make_hosts(4)
    four.start_each([PROGRAMS, "places", "load"], **folder)
    printed = four.run_out(200)
    assert all("passed load 4" in out for out in printed)
    assert "passed places load" in printed[0]


def test_a_host_that_is_cut_off_ends_all(make_hosts, tmp_path):
    seconds = 8
    two = make_hosts(2)
    environment = {
        **ENVIRONMENT,
        "XLA_COLLECTIVE_TIMEOUT": str(seconds),
        "CHECKPOINT": str(tmp_path),
    }
    two.start_each([PROGRAMS, "endless"], **environment)
    wait_for(*(tmp_path / f"rank{rank}" for rank in range(2)))
    two.cut(1)
    # The exchange ends after this time, and what is asked of the store then after as much again.
    printed = two.wait(2 * seconds + 15)
    assert all("all_reduce of ranks [0, 1]: " in out for out in printed), printed
    assert "rank 1 did not come" in printed[0]
    assert [process.returncode for process in two.processes] == [1, 1]


def test_a_replica_that_is_killed_ends_all_hosts(make_hosts, tmp_path):
    two = make_hosts(2)
    two.torchrun([RESUMING, str(tmp_path)], **ENVIRONMENT)
    first, second = two.wait(150)
    assert "all_reduce of ranks [0, 1]: " in first and "rank 1 did not come" in first
    assert "Signal 9 (SIGKILL) received" in second
    # The checkpoint is a whole one, and nothing else is left of its writer.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint.pt", "died"]
    run_in_process("import sys, torch; torch.load(sys.argv[1])", str(tmp_path / "checkpoint.pt"))


def test_training_goes_on_from_its_checkpoint_when_restarted(make_hosts, tmp_path):
    two = make_hosts(2)
    # An agent that starts its process again before the other one has noticed needs one more.
    two.torchrun([RESUMING, str(tmp_path)], restarts=3, **ENVIRONMENT)
    first, second = two.run_out(300)
    lives = [line for line in first.splitlines() if line.startswith("begins")]
    assert lives[0] == "begins at step 0" and set(lives[1:]) == {"begins at step 6"}
    assert "passed" in first
    assert "failed (exitcode: -9)" in second


def test_replicas_grow_by_nothing_from_step_to_step():
    program = str(FOLDER / "long_training.py")
    assert "4000 steps of 2 replicas" in run([program, "--steps", "4000"], 2, **ENVIRONMENT)


def test_hosts_are_removed_with_what_runs_there(make_hosts):
    one = make_hosts(1)
    one.start(0, ["-c", "import time; time.sleep(600)"])
    deadline = time.monotonic() + 20
    while not one.pids():
        assert time.monotonic() < deadline
    with pytest.raises(AssertionError, match="runs on after"):
        one.wait(0.1)
    one.remove()
    assert one.processes[0].returncode == -9
    assert one.pids() == []
    assert not list(pathlib.Path("/run/netns").glob(f"xla{os.getpid()}*"))

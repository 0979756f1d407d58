"""Replicas of one host compile a program once, and whatever becomes of who compiles it, the others
go on."""

from __future__ import annotations

import fcntl
import os
import pathlib
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

import torch_xla.runtime as xr

pytestmark = pytest.mark.skipif(
    xr.device_type() != "CPU", reason="processes meet on the CPU's platform alone"
)

# Trains on every replica, which tells what it compiled, what it took from the disk, and what came
# out.
TRAIN = """
import sys, torch, torch_xla, torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch_xla.debug import metrics

def train(index):
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 3).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(xr.global_ordinal())
    for _ in range(3):
        loss = model(torch.randn(4, 8, generator=generator).to("xla")).logsumexp(1).mean()
        loss.backward()
        xm.optimizer_step(optimizer)
        optimizer.zero_grad()
        torch_xla.sync()
    weight = xm.all_gather(model.weight.detach()).abs().sum().item()
    hits = xr.persistent_cache_stats()["hits"]
    compiled = metrics.counter_value("UncachedCompile") or 0
    sys.stdout.write(f"replica {compiled} {hits} {weight:.5f}\\n")

if __name__ == "__main__":
    torch_xla.launch(train, start_method="fork")
"""


# Numbers of each replica's own, one of which is equal to another by chance.
OWN_NUMBERS = """
import sys, torch, torch_xla
import torch_xla.runtime as xr
from torch_xla.debug import metrics

def run(index):
    x = torch.arange(12.0).reshape(4, 3)
    def compute(x):
        row = x[2] + x[:, 1].narrow(0, 1, 1)
        return row * index + (row * 2).clamp(min=index / 10) - float(index) + x[1:][:1].sum()
    got = compute(x.to("xla"))
    torch_xla.sync()
    torch.testing.assert_close(got.cpu(), compute(x))
    hits = xr.persistent_cache_stats()["hits"]
    sys.stdout.write(f"replica {metrics.counter_value('UncachedCompile') or 0} {hits} 0\\n")

if __name__ == "__main__":
    torch_xla.launch(run, start_method="fork")
"""


def train(
    folder: pathlib.Path,
    count: int,
    start: str = "launch",
    program: str = TRAIN,
    **environment: str,
) -> Counts:
    """What the replicas tell."""
    script = folder / "train.py"
    script.write_text(program)
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    done = subprocess.run(
        [sys.executable, *(torchrun if start == "torchrun" else []), str(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "CPU_NUM_DEVICES": str(count), **environment},
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = Counts(done.stdout, done.stderr)
    assert len(counts.compiled) == count and len(counts.weights) == 1
    return counts


class Counts:
    def __init__(self, out: str, err: str) -> None:
        lines = [line.split() for line in out.splitlines() if line.startswith("replica ")]
        self.compiled = [int(line[1]) for line in lines]
        self.hits = [int(line[2]) for line in lines]
        self.weights = {line[3] for line in lines}
        self.warnings = [line for line in err.splitlines() if "warning" in line]


WAITS = "for another process to compile the same program"


def entries(directory: pathlib.Path) -> int:
    return len(list(directory.glob("*.xlaprogram")))


@pytest.mark.parametrize(("count", "start"), [(2, "launch"), (4, "launch"), (2, "torchrun")])
def test_a_program_is_compiled_once_per_host(tmp_path, count, start):
    cache = tmp_path / "cache"
    counts = train(tmp_path, count, start, XLA_PERSISTENT_CACHE_PATH=str(cache))
    programs = entries(cache)
    assert sum(counts.compiled) == programs > 0
    found = zip(counts.compiled, counts.hits, strict=True)
    assert all(compiled + hits == programs for compiled, hits in found)
    assert not counts.warnings and not list(cache.glob("*.tmp"))


def test_a_number_of_a_replica_is_no_program_of_its_own(tmp_path):
    cache = str(tmp_path / "cache")
    counts = train(tmp_path, 4, program=OWN_NUMBERS, XLA_PERSISTENT_CACHE_PATH=cache)
    assert sum(counts.compiled) == 1 and sum(counts.hits) == 3


def test_the_default_cache_has_what_replicas_share(tmp_path):
    default = {"XLA_PERSISTENT_CACHE": "1", "XDG_CACHE_HOME": str(tmp_path)}
    counts = train(tmp_path, 2, **default)
    assert sum(counts.compiled) == entries(tmp_path / "torch_xla" / "programs") > 0
    again = train(tmp_path, 2, **default)
    assert sum(again.compiled) == 0 and again.weights == counts.weights


def test_without_a_cache_each_compiles_for_itself(tmp_path):
    counts = train(tmp_path, 2, XLA_PERSISTENT_CACHE="0", XDG_CACHE_HOME=str(tmp_path))
    assert counts.compiled[0] == counts.compiled[1] > 0 and counts.hits == [0, 0]
    assert not (tmp_path / "torch_xla").exists()


def program(repetitions: int) -> str:
    """Of one replica that meets no other one; prints whether the result is right, and how many
    programs XLA compiled."""
    return f"""
import torch, torch_xla
from torch_xla.debug import metrics
x = torch.eye(4, device="xla")
for i in range({repetitions}):
    x = (x @ x).sin() + x.flip(i % 2)
print(torch.isfinite(x).all().item(), metrics.counter_value("UncachedCompile") or 0)
"""


SMALL, LARGE = program(3), program(300)  # the second takes seconds to compile


def start_replica(
    rank: int, cache: pathlib.Path, program: str, **environment: str
) -> subprocess.Popen[str]:
    place = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
    meeting = {"LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    cached = {"XLA_PERSISTENT_CACHE_PATH": str(cache), "XLA_WAIT_WARNING": "1"}
    return subprocess.Popen(
        [sys.executable, "-P", "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **place, **meeting, **cached, **environment},
    )


@pytest.fixture
def busy_cache(tmp_path) -> Iterator[pathlib.Path]:
    """A cache whose programs another process seems to compile, all of them and for ever."""
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o700)
    with open(cache / "compiling.xlalock", "w") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield cache


def test_who_has_waited_long_enough_compiles(busy_cache):
    out, err = start_replica(0, busy_cache, SMALL, XLA_COMPILE_WAIT="2").communicate()
    assert out.split() == ["True", "1"], err
    assert err.count("another process has not compiled a program within 2 s") == 1
    assert entries(busy_cache) == 1


@pytest.mark.parametrize(
    "environment",
    [
        {"XLA_COMPILE_WAIT": "0"},
        {"XLA_PERSISTENT_CACHE_READ_ONLY": "1"},
        {"XLA_PERSISTENT_CACHE_PATH": "", "XLA_PERSISTENT_CACHE": "0"},
        {"LOCAL_WORLD_SIZE": "1"},
    ],
)
def test_who_shares_nothing_waits_for_nobody(busy_cache, environment):
    out, err = start_replica(0, busy_cache, SMALL, **environment).communicate()
    assert out.split() == ["True", "1"], err
    assert WAITS not in err


def test_a_directory_of_others_is_not_shared(busy_cache):
    busy_cache.chmod(0o777)
    out, err = start_replica(0, busy_cache, SMALL).communicate()
    assert out.split() == ["True", "1"], err
    assert "others may write to it (mode 0777)" in err and WAITS not in err
    assert entries(busy_cache) == 0


def test_a_full_disk_is_one_warning_and_the_end_of_sharing(tmp_path):
    # A limit on the size of files is what a full disk looks like to the writer.
    limited = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limited += "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
    limited += SMALL + SMALL.replace("eye(4", "eye(5")
    out, err = start_replica(0, tmp_path, limited, PYTHONDONTWRITEBYTECODE="1").communicate()
    assert out.splitlines() == ["True 1", "True 2"], err
    assert err.count("writing") == 1 and entries(tmp_path) == 0


def wait_until_compiling(cache: pathlib.Path) -> None:
    """Returns when somebody holds a lock; looks without taking it."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if (cache / "compiling.xlalock").exists():
            with open(cache / "compiling.xlalock", "r+") as file:
                asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                found = fcntl.fcntl(file, fcntl.F_GETLK, asked)
            if struct.unpack("hhqqi4x", found)[0] != fcntl.F_UNLCK:
                return
        time.sleep(0.002)
    raise AssertionError("nobody compiles")


def read_until(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    assert any(words in line for line in process.stderr), words


@pytest.fixture
def compiling_replica(tmp_path) -> Iterator[subprocess.Popen[str]]:
    """The first of two, stopped in mid-compilation."""
    process = start_replica(0, tmp_path, LARGE)
    try:
        wait_until_compiling(tmp_path)
        process.send_signal(signal.SIGSTOP)
        yield process
    finally:
        process.kill()
        process.communicate()


def test_who_waits_for_a_process_that_is_killed_compiles(tmp_path, compiling_replica):
    second = start_replica(1, tmp_path, LARGE)
    read_until(second, WAITS)
    assert entries(tmp_path) == 0
    compiling_replica.kill()
    out, err = second.communicate(timeout=200)
    assert out.split() == ["True", "1"], err
    assert entries(tmp_path) == 1 and "XLA_COMPILE_WAIT" not in err


def test_who_waits_for_a_process_that_goes_on_compiles_nothing(tmp_path, compiling_replica):
    second = start_replica(1, tmp_path, LARGE)
    read_until(second, WAITS)
    compiling_replica.send_signal(signal.SIGCONT)
    out, err = second.communicate(timeout=200)
    assert out.split() == ["True", "0"], err
    assert compiling_replica.communicate()[0].split() == ["True", "1"]


def test_waiting_ends_with_an_interrupt(tmp_path, compiling_replica):
    # What a shell starts in the background ignores interrupts, and so would this.
    heeding = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    second = start_replica(1, tmp_path, heeding + LARGE)
    read_until(second, WAITS)
    second.send_signal(signal.SIGINT)
    out, err = second.communicate(timeout=30)
    assert out == "" and "KeyboardInterrupt" in err
    assert second.returncode == -signal.SIGINT
    assert compiling_replica.poll() is None

"""Trains for many steps, and fails if memory, descriptors or threads of the replicas, or of the
process that has started them and keeps the job's store, have grown. `make endurance` has 20,000
steps of 4 replicas, a test some hundred.

    CPU_NUM_DEVICES=4 python tests/replicas/long_training.py --steps 20000
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import os
import pathlib
import sys
import time

import torch
from torch import nn

import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

# What is kept grows in the first 2,000 steps (histories, samples of metrics: some 2 MB), and now
# and then by a worker's buffers, once. A leak shows in the third quarter of the steps and in the
# fourth: one of 0.1 KB for each step in 20,000.
MOST_MEGABYTES = 0.5
MEETING_STEPS = 50


class _Mallinfo(ctypes.Structure):
    """The C library's `struct mallinfo2`."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd",
            "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


def allocated_megabytes() -> float:
    """What this process has allocated and not freed. Its pages tell less: those that the compiler
    has freed are filled first."""
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = _Mallinfo
    info = mallinfo2()
    return float(info.uordblks + info.hblkhd) / 2**20


@dataclasses.dataclass(frozen=True)
class Usage:
    """What a process holds."""

    megabytes: float
    allocated_megabytes: float
    descriptors: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> Usage:
        process = pathlib.Path("/proc", str(pid))
        pages = int((process / "statm").read_text().split()[1])
        return cls(
            megabytes=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
            allocated_megabytes=allocated_megabytes() if pid == os.getpid() else 0.0,
            descriptors=len(list((process / "fd").iterdir())),
            threads=len(list((process / "task").iterdir())),
        )

    def __str__(self) -> str:
        return (
            f"{self.megabytes:.1f} MB of pages, {self.allocated_megabytes:.2f} MB allocated, "
            f"{self.descriptors} descriptors, {self.threads} threads"
        )

    def has_grown_to(self, later: Usage) -> bool:
        return (
            later.megabytes > self.megabytes + MOST_MEGABYTES
            or later.allocated_megabytes > self.allocated_megabytes + MOST_MEGABYTES
            or later.descriptors > self.descriptors
            or later.threads > self.threads
        )


def usages() -> dict[str, Usage]:
    """Of all replicas, and of the process that has started them."""
    names = xm.mesh_reduce("usage", (f"rank {xr.global_ordinal()}", Usage.of(os.getpid())), list)
    return {**dict(names), "store": Usage.of(os.getppid())}


def train(steps: int) -> list[dict[str, Usage]]:
    """Usages after a half, three quarters and all of the steps."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)).to("xla")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    generator = torch.Generator().manual_seed(xr.global_ordinal())
    found = []
    for step in range(1, steps + 1):
        x = torch.randn(16, 8, generator=generator).to("xla")
        optimizer.zero_grad()
        loss = (model(x).squeeze(1) - x.sum(1)).square().mean()
        loss.backward()
        xm.optimizer_step(optimizer)
        torch_xla.sync()
        if step % MEETING_STEPS == 0:
            mean = xm.mesh_reduce("loss", loss.item(), lambda losses: sum(losses) / len(losses))
            assert mean < 100
        if step in (steps // 2, steps * 3 // 4, steps):
            found.append(usages())
    return found


def run(index: int, steps: int) -> None:
    del index
    start = time.monotonic()
    half, three_quarters, whole = train(steps)
    seconds = time.monotonic() - start
    if xr.global_ordinal() == 0:
        lines = [f"{steps} steps of {xr.world_size()} replicas in {seconds:.0f} s"]
        lines += [f"{name}: {half[name]}; {three_quarters[name]}; {whole[name]}" for name in half]
        sys.stdout.write("\n".join(lines) + "\n")
    grown = [
        name
        for name, usage in three_quarters.items()
        if half[name].has_grown_to(usage) and usage.has_grown_to(whole[name])
    ]
    xm.rendezvous("told")
    assert not grown, f"{', '.join(grown)} has grown"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20000)
    torch_xla.launch(run, args=(parser.parse_args().steps,))

"""What the benchmarks share: paired timings of two ways to do a thing, and the table they print.

The two ways take turns, so that a machine whose speed drifts drifts for both. Two clocks are read:
the wall, and the CPU time of the whole process, which other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

# A program that an earlier run left on the disk would not be compiled.
os.environ["XLA_PERSISTENT_CACHE"] = "0"
# The models are those that the tests train.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))


@dataclasses.dataclass
class Timings:
    """Seconds of each sample, by both clocks."""

    wall: list[float] = dataclasses.field(default_factory=list)
    cpu: list[float] = dataclasses.field(default_factory=list)

    def median(self) -> float:
        return statistics.median(self.wall)

    def best(self) -> float:
        return min(self.wall)

    def best_cpu(self) -> float:
        return min(self.cpu)

    def sample(self, run: Callable[[], object]) -> None:
        """Add one run to the samples."""
        cpu = time.process_time()
        wall = time.perf_counter()
        run()
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)


def take_turns(
    runs: Sequence[Callable[[], object]],
    samples: int,
    warmups: int = 1,
    after: Callable[[], object] = lambda: None,
) -> list[Timings]:
    """Time each of `runs`, one sample of each at a time; `after` follows each, untimed."""
    timings = [Timings() for _ in runs]
    for i in range(warmups + samples):
        for run, timing in zip(runs, timings, strict=True):
            if i < warmups:
                run()
            else:
                timing.sample(run)
            after()
    return timings


def add_spare_core(parser: argparse.ArgumentParser) -> None:
    """The option that asks for `leave_a_core_to_the_host`."""
    parser.add_argument(
        "--spare-core", action="store_true", help="one core for the host, the others for the device"
    )


def leave_a_core_to_the_host() -> None:
    """Start the device with threads on all cores but the last, and keep the last for this thread.

    Where a program's threads fill every core, recording takes its time from them however well the
    two overlap. Call this before the first use of the device and of PyTorch's own threads: eager
    PyTorch has the one core then.
    """
    import torch

    import torch_xla

    *cores, last = sorted(os.sched_getaffinity(0))
    if not cores:
        sys.exit("a core for the host needs two cores or more")
    os.sched_setaffinity(0, cores)
    torch_xla.device_count()  # the plugin's threads and ours inherit where they may run
    os.sched_setaffinity(0, [last])
    torch.set_num_threads(1)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table, its columns aligned."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        first = cells[0].ljust(widths[0])
        rest = (cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))
        return "| " + " | ".join([first, *rest]) + " |"

    rule = ["-" * widths[0]] + ["-" * (width - 1) + ":" for width in widths[1:]]
    print(f"\n{title}\n", line(header), line(rule), *map(line, rows), sep="\n")


def ratio(value: float, limit: float | None = None) -> str:
    """A ratio, marked where it is over its limit."""
    return f"{value:.2f}x" + (" !" if limit is not None and value > limit else "")

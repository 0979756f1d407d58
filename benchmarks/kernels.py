"""What programs take to execute for every family of kernels, beside eager PyTorch on the CPU: each
dtype, three sizes, forward and with the gradients.

The two take turns. Of ours it is the execution that counts, without recording, compilation and the
wait's wake-up. What eager PyTorch refuses is left out. The limit is on the median of the ratios;
what is over it is measured again at the end, longer and in fresh processes, and the median of all
counts: which large arrays the C library takes anew from the system for each program depends on
what a process happened to allocate before. The smallest kernels take less than a launch, which is
measured beside each: a row is over the limit by more than that, or it is not over.

The cores are kept awake by processes that run when nobody else does: a virtual machine takes 50 us
and more to wake one, which eager PyTorch, whose second thread spins, never pays here and a
training loop seldom does. `--asleep` measures without.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
from kernel_cases import FAMILIES, Family
from measure import print_table, ratio
from torch import Tensor

import torch_xla
from torch_xla import _XLAC

LIMIT = 1.5
DTYPES = ("float32", "bfloat16", "float16", "float64")
SIZES = ("small", "middle", "large")
HEADER = ("kernel", "eager ms", "xla ms", "launch", "median", "best")
# Where a launch takes less, what is measured of something shorter is the clock and the caches.
LEAST_SECONDS = 50e-6
# More than XLA's CPU plugin runs without waking another thread.
LAUNCHED_ELEMENTS = 4096
# OpenMP's threads go on spinning for some milliseconds after eager PyTorch's last work.
SETTLING_SECONDS = 0.005
# Of so many in a row the best is a sample: the first finds cold caches, and threads asleep.
IN_A_ROW = 5


@dataclasses.dataclass
class Row:
    """Execution times of one kernel, in seconds, the ratio of the medians and of the best, and what
    a program of next to nothing took at the same time."""

    name: str
    eager: float
    ours: float
    ratio: float
    best: float
    launch: float


class Kernel:
    """One family at one size and dtype on one device."""

    def __init__(self, family: Family, size: Sequence[int], dtype: torch.dtype, device: str):
        torch.manual_seed(0)
        given = [x.to(dtype) if x.is_floating_point() else x for x in family.operands(*size)]
        self.function = family.function
        self.operands = [x.to(device).requires_grad_(x.is_floating_point()) for x in given]
        self.incoming: Tensor | None = None

    def forward(self) -> object:
        with torch.no_grad():
            return self.function(*self.operands)

    def backward(self) -> object:
        result = self.function(*self.operands)
        assert isinstance(result, Tensor)
        if self.incoming is None:
            self.incoming = torch.ones_like(result)
            if result.device.type == "xla":
                torch_xla.sync(wait=True)
        leaves = [x for x in self.operands if x.requires_grad]
        return result, torch.autograd.grad(result, leaves, self.incoming, allow_unused=True)


def seconds_executing() -> float:
    data = _XLAC._metric_data("ExecuteTime")
    return data[1] * 1e-9 if data is not None else 0.0


def execution(run: Callable[[], object]) -> float:
    """Seconds that the program of what `run` records takes."""
    before = seconds_executing()
    kept = run()
    torch_xla.sync(wait=True)
    del kept
    return seconds_executing() - before


def eagerly(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measured(
    eager: Callable[[], object], ours: Callable[[], object], samples: int, seconds: float
) -> tuple[float, float, float, float, float]:
    """Medians of both and of their ratio, the ratio of the best, and the median of a launch.

    There are fewer samples where they would take longer than `seconds`.
    """
    nothing = torch.ones(LAUNCHED_ELEMENTS, device="xla").neg
    for _ in range(2):
        eagerly(eager)
        execution(ours)
        execution(nothing)
    pairs: list[tuple[float, float]] = []
    launches: list[float] = []
    start = time.perf_counter()
    while len(pairs) < samples:
        theirs = min(eagerly(eager) for _ in range(IN_A_ROW))
        time.sleep(SETTLING_SECONDS)
        pairs.append((theirs, min(execution(ours) for _ in range(IN_A_ROW))))
        launches.append(min(execution(nothing) for _ in range(IN_A_ROW)))
        if len(pairs) >= 2 and time.perf_counter() - start > seconds:
            break
    return (
        statistics.median(theirs for theirs, _ in pairs),
        statistics.median(own for _, own in pairs),
        statistics.median(own / theirs for theirs, own in pairs),
        min(own for _, own in pairs) / min(theirs for theirs, _ in pairs),
        statistics.median(launches),
    )


@dataclasses.dataclass
class Case:
    """One row to be measured."""

    family: str
    dtype: str
    size: Sequence[int]
    with_gradient: bool

    def title(self) -> str:
        suffix = " + gradient" if self.with_gradient else ""
        return f"{self.family}{suffix}, {self.dtype}, {'x'.join(map(str, self.size))}"

    def row(self, samples: int, seconds: float) -> Row | None:
        """Nothing of what eager PyTorch refuses."""
        torch_xla.sync(wait=True)
        kernels = [
            Kernel(FAMILIES[self.family], self.size, getattr(torch, self.dtype), device)
            for device in ("cpu", "xla")
        ]
        torch_xla.sync(wait=True)
        eager, ours = (k.backward if self.with_gradient else k.forward for k in kernels)
        try:
            eager()
        except (RuntimeError, NotImplementedError) as error:
            print(f"left out: {self.title()}: {str(error).splitlines()[0]}", file=sys.stderr)
            return None
        return Row(self.title(), *measured(eager, ours, samples, seconds))


def cases(names: Sequence[str], arguments: argparse.Namespace) -> Iterator[Case]:
    for name in names:
        family = FAMILIES[name]
        for dtype in arguments.dtype.split(","):
            for label, size in zip(SIZES, family.sizes, strict=True):
                if label not in arguments.size:
                    continue
                yield Case(name, dtype, size, False)
                if family.has_gradient and not arguments.forward:
                    yield Case(name, dtype, size, True)


def rows(names: Sequence[str], arguments: argparse.Namespace) -> list[Row]:
    found: list[Row] = []
    again: list[tuple[int, Case]] = []
    for case in cases(names, arguments):
        row = case.row(arguments.samples, arguments.seconds)
        if row is None:
            continue
        if arguments.verbose:
            print(f"{row.ratio:7.2f}x {row.best:7.2f}x {row.name}", file=sys.stderr, flush=True)
        if is_over(row, LIMIT):
            again.append((len(found), case))
        found.append(row)
    for place, case in again:
        found[place] = median_of_processes(case, found[place], arguments)
    return found


def median_of_processes(case: Case, first: Row, arguments: argparse.Namespace) -> Row:
    measurements = [first]
    for _ in range(arguments.again):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as fresh:
            row = fresh.submit(case.row, 2 * arguments.samples + 1, 4 * arguments.seconds).result()
        assert row is not None
        measurements.append(row)
    return sorted(measurements, key=lambda row: row.ratio)[len(measurements) // 2]


def is_over(row: Row, limit: float) -> bool:
    """Not by what launching a program costs."""
    return row.ratio > limit and row.ours - row.eager * limit > max(LEAST_SECONDS, row.launch)


@contextlib.contextmanager
def cores_awake() -> Iterator[None]:
    """A process on each core that spins while no other wants to run there."""
    children = [spinning_on(core) for core in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def spinning_on(core: int) -> int:
    """The number of a child that spins until it is killed or its parent is gone."""
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.sched_setaffinity(0, {core})
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        while os.getppid() == parent:
            pass
        os._exit(0)
    return child


def main() -> None:
    """Print the table, worst first, and how many are over the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.4, help="at most so long for a row")
    parser.add_argument("--again", type=int, default=4, help="measure what is over so often again")
    parser.add_argument("--only", default="", help="parts of the names of families, by commas")
    parser.add_argument("--dtype", default=",".join(DTYPES))
    parser.add_argument("--size", default=",".join(SIZES), help="small, middle, large")
    parser.add_argument("--forward", action="store_true", help="without gradients")
    parser.add_argument("--over", type=float, default=0.0, help="print rows above this ratio")
    parser.add_argument("--asleep", action="store_true", help="let cores sleep that have no work")
    parser.add_argument("--verbose", action="store_true", help="print each as it is measured")
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    names = [name for name in FAMILIES if any(part in name for part in parts)]
    with contextlib.nullcontext() if arguments.asleep else cores_awake():
        found = sorted(rows(names, arguments), key=lambda row: -row.ratio)
    cells = [
        [
            row.name,
            f"{row.eager * 1e3:.3f}",
            f"{row.ours * 1e3:.3f}",
            f"{row.launch * 1e3:.3f}",
            ratio(row.ratio, LIMIT if is_over(row, LIMIT) else None),
            ratio(row.best),
        ]
        for row in found
        if row.ratio >= arguments.over
    ]
    print_table("Execution of kernels", HEADER, cells)
    over = sum(is_over(row, LIMIT) for row in found)
    print(f"{len(found)} kernels of {len(names)} families, {over} over {LIMIT}x")


if __name__ == "__main__":
    main()

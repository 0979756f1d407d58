"""Whether recording the next step overlaps the execution of this one.

Recording alone and execution alone are measured on steps that are waited for; then 50 steps run
without a read. A step of these may take little more than the larger of the two.
"""

from __future__ import annotations

import argparse
import statistics
import time

from measure import (
    Timings,
    add_spare_core,
    leave_a_core_to_the_host,
    print_table,
    ratio,
    take_turns,
)
from workloads import MODELS, TrainingStep

import torch_xla
from torch_xla import _XLAC

LIMIT = 1.1


def seconds_executed() -> float:
    """The sum of all executions so far."""
    data = _XLAC._metric_data("ExecuteTime")
    return data[1] * 1e-9 if data is not None else 0.0


def time_apart(step: TrainingStep, samples: int) -> tuple[float, float]:
    """The seconds of recording, the barrier's call included, and of execution."""
    recording, execution = Timings(), []

    def record() -> None:
        step.run()
        torch_xla.sync()

    for _ in range(samples):
        before = seconds_executed()
        start = time.perf_counter()
        record()
        recording.wall.append(time.perf_counter() - start)
        torch_xla.sync(wait=True)
        execution.append(seconds_executed() - before)
    return recording.median(), statistics.median(execution)


def time_together(step: TrainingStep, steps: int, samples: int) -> float:
    """The seconds of a step among `steps` that are waited for once."""

    def run() -> None:
        for _ in range(steps):
            step.run()
            torch_xla.sync()
        torch_xla.sync(wait=True)

    return take_turns([run], samples)[0].median() / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50, help="steps without a read")
    parser.add_argument("--samples", type=int, default=3, help="samples of that many steps")
    parser.add_argument("--only", default="", help="models whose name contains this")
    add_spare_core(parser)
    args = parser.parse_args()
    if args.spare_core:
        leave_a_core_to_the_host()
    rows = []
    for name in MODELS:
        if args.only.lower() not in name.lower():
            continue
        step = TrainingStep(name, torch_xla.device())
        for _ in range(3):
            step.run()
            torch_xla.sync(wait=True)
        recording, execution = time_apart(step, args.steps)
        together = time_together(step, args.steps, args.samples)
        larger = max(recording, execution)
        rows.append(
            [name]
            + [f"{seconds * 1e3:.2f}" for seconds in (recording, execution, together)]
            + [ratio(together / larger, LIMIT), ratio(together / (recording + execution))]
        )
    header = ["ms per step", "recording", "execution", "together", "of the larger", "of the sum"]
    print_table(f"{args.steps} steps without a read; limit {LIMIT}x of the larger", header, rows)


if __name__ == "__main__":
    main()

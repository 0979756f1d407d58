"""Whether recording the next step overlaps the execution of this one.

Recording alone and execution alone are measured on 50 steps that are waited for, by turns with 50
steps without a read. A step of these may take little more than the larger of the two.
"""

from __future__ import annotations

import argparse
import statistics
import time

from measure import add_spare_core, leave_a_core_to_the_host, print_table, ratio
from workloads import MODELS, TrainingStep

import torch_xla
from torch_xla import _XLAC

LIMIT = 1.1


def seconds_executed() -> float:
    """The sum of all executions so far."""
    data = _XLAC._metric_data("ExecuteTime")
    return data[1] * 1e-9 if data is not None else 0.0


def time_apart(step: TrainingStep, steps: int) -> tuple[float, float]:
    """The mean seconds of recording, the barrier's call included, and of execution."""
    recording = 0.0
    before = seconds_executed()
    for _ in range(steps):
        start = time.perf_counter()
        step.run()
        torch_xla.sync()
        recording += time.perf_counter() - start
        torch_xla.sync(wait=True)
    return recording / steps, (seconds_executed() - before) / steps


def time_together(step: TrainingStep, steps: int) -> float:
    """The seconds of a step among `steps` that are waited for once."""
    start = time.perf_counter()
    for _ in range(steps):
        step.run()
        torch_xla.sync()
    torch_xla.sync(wait=True)
    return (time.perf_counter() - start) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50, help="steps without a read")
    parser.add_argument("--samples", type=int, default=5, help="samples of that many steps")
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
        samples = [
            (*time_apart(step, args.steps), time_together(step, args.steps))
            for _ in range(args.samples)
        ]
        recording, execution, together = map(statistics.median, zip(*samples, strict=True))
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

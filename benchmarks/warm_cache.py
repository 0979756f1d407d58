"""GPT-2's first training step in a process that finds its programs on the disk, beside one that
compiles them.

Each sample is a pair of fresh processes that share an empty cache directory. Timed is the step from
its first recorded operation until its results are there, the device and the model being ready; the
second step too, since the optimizer makes its state in the first. The second process loads the
programs in the background while it makes its model.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

from measure import print_table, ratio

LIMIT = 0.15


def time_steps() -> None:
    """Print the seconds of the first two steps, and how many programs XLA compiled."""
    from workloads import TrainingStep

    import torch_xla
    from torch_xla.debug import metrics

    step = TrainingStep("GPT-2", torch_xla.device())
    torch_xla.sync(wait=True)
    seconds = []
    compiled_before = metrics.metric_data("CompileTime")
    for _ in range(2):
        start = time.perf_counter()
        step.run()
        torch_xla.sync(wait=True)
        seconds.append(time.perf_counter() - start)
    compiled = metrics.metric_data("CompileTime")
    count = (compiled[0] if compiled else 0) - (compiled_before[0] if compiled_before else 0)
    print(*seconds, count)


def run_child(directory: str) -> list[float]:
    environment = os.environ | {"XLA_PERSISTENT_CACHE_PATH": directory}
    command = [sys.executable, __file__, "--child"]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return [float(word) for word in result.stdout.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=3, help="pairs of fresh processes")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        time_steps()
        return
    cold, warm = [], []
    for _ in range(args.samples):
        with tempfile.TemporaryDirectory() as directory:
            cold.append(run_child(directory))
            warm.append(run_child(directory))
    rows = []
    for i, name in enumerate(("first step", "second step")):
        empty, full = (statistics.median(run[i] for run in runs) for runs in (cold, warm))
        limit = LIMIT if i == 0 else None
        rows.append([name, f"{empty:.2f}", f"{full:.3f}", ratio(full / empty, limit)])
    rows.append(["programs compiled", f"{cold[0][2]:.0f}", f"{warm[0][2]:.0f}", ""])
    print_table("GPT-2 with a cache on the disk", ["s", "empty", "warm", "warm / empty"], rows)


if __name__ == "__main__":
    main()

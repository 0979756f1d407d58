"""One program on four devices of the CPU beside the same work on one: a training step of GPT-2, in
processes of their own that take turns.

    python benchmarks/spmd.py
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import torch
from measure import print_table, ratio
from workloads import TrainingStep

import torch_xla
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from torch_xla.debug import metrics

WAYS = ("data", "fsdp", "tensor")
LIMITS = {"step": 1.3, "record": 1.1, "compile": 1.5}


def place(step: TrainingStep, way: str) -> None:
    """Say how the tensors of a step lie."""
    count = xr.global_runtime_device_count()
    mesh = xs.Mesh(range(count), (count,), ("all",))
    for t in (step.inputs, step.targets) if way != "tensor" else ():
        xs.mark_sharding(t, mesh, ("all", *[None] * (t.dim() - 1)))
    for p in step.model.parameters() if way != "data" else ():
        if p.dim() > (0 if way == "fsdp" else 1) and p.shape[0] % count == 0:
            xs.mark_sharding(p, mesh, ("all", *[None] * (p.dim() - 1)))


def measure(way: str, samples: int) -> dict[str, float]:
    """Milliseconds of a step and of its recording, seconds of all compilations."""
    torch.manual_seed(0)
    if way != "one":
        xr.use_spmd()
    step = TrainingStep("GPT-2", torch_xla.device())
    if way != "one":
        place(step, way)
    times, recordings = [], []
    for _ in range(samples + 3):
        start = time.perf_counter()
        step.run()
        recordings.append(time.perf_counter() - start)
        torch_xla.sync(wait=True)
        times.append(time.perf_counter() - start)
    compiled = metrics.metric_data("CompileTime")
    return {
        "step": statistics.median(times[3:]) * 1e3,
        "record": statistics.median(recordings[3:]) * 1e3,
        "compile": compiled[1] * 1e-9 if compiled is not None else 0.0,
    }


def run(way: str, samples: int) -> dict[str, float]:
    count = "1" if way == "one" else "4"
    done = subprocess.run(
        [sys.executable, __file__, "--way", way, "--samples", str(samples)],
        env={**os.environ, "CPU_NUM_DEVICES": count, "XLA_PERSISTENT_CACHE": "0"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    """Print the table, or the figures of one way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--way", choices=["one", *WAYS], help="only this, as JSON")
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--turns", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.way is not None:
        print(json.dumps(measure(arguments.way, arguments.samples)))
        return
    figures: dict[str, list[dict[str, float]]] = {way: [] for way in ("one", *WAYS)}
    for _ in range(arguments.turns):
        for way, runs in figures.items():
            runs.append(run(way, arguments.samples))
    best = {
        way: {key: min(one[key] for one in runs) for key in runs[0]}
        for way, runs in figures.items()
    }
    rows = []
    for way in ("one", *WAYS):
        cells = [
            f"{best[way][key]:.1f} ({ratio(best[way][key] / best['one'][key], limit)})"
            for key, limit in LIMITS.items()
        ]
        rows.append([way, *cells])
    print_table(
        "GPT-2's training step on four devices",
        ["split", "step ms", "record ms", "compile s"],
        rows,
    )


if __name__ == "__main__":
    main()

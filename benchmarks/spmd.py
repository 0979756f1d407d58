"""One program on four devices of the CPU beside the same work on one: a training step of GPT-2, in
processes of their own that take turns. Beside the times stand the bytes that devices exchange, as
they are in the compiled program and as they are on paper, and the memory of each device.

    python benchmarks/spmd.py
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from measure import print_table, ratio
from split_gpt2 import WAYS, by_heads, exchanged, exchanged_on_paper, place
from workloads import TrainingStep

import torch_xla
import torch_xla.runtime as xr
from torch_xla import _XLAC
from torch_xla.debug import metrics

LIMITS = {"step": 1.3, "record": 1.1, "compile": 1.5}
NUM_DEVICES = 4


def make_step(way: str) -> TrainingStep:
    """The step, with its tensors placed."""
    torch.manual_seed(0)
    if way != "one":
        xr.use_spmd()
    step = TrainingStep("GPT-2", torch_xla.device())
    by_heads(step.model)
    if way != "one":
        place(way, step.model, step.inputs, step.targets)
    return step


def times(step: TrainingStep, samples: int) -> dict[str, float]:
    """Milliseconds of a step and of its recording, seconds of all compilations."""
    steps, recordings = [], []
    for _ in range(samples + 3):
        start = time.perf_counter()
        step.run()
        recordings.append(time.perf_counter() - start)
        torch_xla.sync(wait=True)
        steps.append(time.perf_counter() - start)
    compiled = metrics.metric_data("CompileTime")
    return {
        "step": statistics.median(steps[3:]) * 1e3,
        "record": statistics.median(recordings[3:]) * 1e3,
        "compile": compiled[1] * 1e-9 if compiled is not None else 0.0,
    }


def program(way: str, step: TrainingStep, folder: Path) -> dict[str, object]:
    """Of the second step's program, which XLA writes to a folder: bytes exchanged, and memory."""
    num_tokens = step.inputs.numel()
    for _ in range(2):
        step.run()
        torch_xla.sync(wait=True)
    texts = folder.glob("*after_optimizations.txt")
    memory = _XLAC._last_program_memory()
    on_paper = {} if way == "one" else exchanged_on_paper(way, step.model, num_tokens)
    return {
        "exchanged": exchanged(max((path.read_text() for path in texts), key=len)),
        "on paper": on_paper,
        "argument": memory["argument_size_in_bytes"],
        "temp": memory["temp_size_in_bytes"],
    }


def run(*arguments: str, way: str, **environment: str) -> dict[str, float]:
    """What a process of its own prints."""
    count = 1 if way == "one" else NUM_DEVICES
    done = subprocess.run(
        [sys.executable, __file__, "--way", way, *arguments],
        env={
            **os.environ,
            "CPU_NUM_DEVICES": str(count),
            "XLA_PERSISTENT_CACHE": "0",
            **environment,
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def print_times(samples: int, turns: int) -> None:
    figures: dict[str, list[dict[str, float]]] = {way: [] for way in ("one", *WAYS)}
    for _ in range(turns):
        for way, runs in figures.items():
            runs.append(run("--samples", str(samples), way=way))
    best = {
        way: {key: min(one[key] for one in runs) for key in runs[0]}
        for way, runs in figures.items()
    }
    rows = [
        [
            way,
            *[
                f"{best[way][key]:.1f} ({ratio(best[way][key] / best['one'][key], limit)})"
                for key, limit in LIMITS.items()
            ],
        ]
        for way in ("one", *WAYS)
    ]
    header = ["split", "step ms", "record ms", "compile s"]
    print_table("GPT-2's training step on four devices", header, rows)


def program_rows() -> Iterator[list[str]]:
    def megabytes(found: object) -> str:
        sizes = dict(found) if isinstance(found, dict) else {}
        return ", ".join(f"{kind} {size / 1e6:.2f}" for kind, size in sorted(sizes.items()))

    for way in ("one", *WAYS):
        with tempfile.TemporaryDirectory() as folder:
            flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text=true"
            said = run("--folder", folder, way=way, XLA_FLAGS=flags)
        memory = [f"{said[kind] / 1e6:.1f}" for kind in ("argument", "temp")]
        yield [way, megabytes(said["exchanged"]), megabytes(said["on paper"]), *memory]


def main() -> None:
    """Print the tables, or the figures of one way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--way", choices=["one", *WAYS], help="only this, as JSON")
    parser.add_argument("--folder", type=Path, help="of its program, which XLA writes there")
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--turns", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.way is None:
        print_times(arguments.samples, arguments.turns)
        header = ["split", "exchanged, MB", "on paper, MB", "arguments, MB", "temporary, MB"]
        print_table("Its program, on each device", header, list(program_rows()))
        return
    step = make_step(arguments.way)
    if arguments.folder is not None:
        print(json.dumps(program(arguments.way, step, arguments.folder)))
    else:
        print(json.dumps(times(step, arguments.samples)))


if __name__ == "__main__":
    main()

"""Where the time of a training step goes, beside eager PyTorch.

Of the first step: recording, lowering to text, and XLA's compilation. Of a later one: recording,
the barrier (walking the graph and finding its program), execution, the whole step when it is waited
for, and a step in a row that is waited for once. `bare` is the step's own executable run in a loop,
before and after each such row. Each model runs in a process of its own, and once more on each side
for its peak memory.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import statistics
import subprocess
import sys
import time

import torch
from measure import (
    Timings,
    add_spare_core,
    leave_a_core_to_the_host,
    print_table,
    ratio,
    take_turns,
)
from workloads import MODELS, TrainingStep

# Of the step to eager PyTorch.
LIMITS = {"MLP": 1.2, "MNIST CNN": 1.5, "ResNet-18": 1.5, "GPT-2": 1.3}
# Steps that are waited for once: at least so many, and as many as eager PyTorch runs in this time,
# so that filling the queue and draining it weigh little: the first step after a pause takes 1 ms.
LEAST_IN_A_ROW = 10
SECONDS_IN_A_ROW = 1.0
# OpenMP's threads go on spinning for some 10 ms after eager PyTorch's last work, on cores that what
# follows at once would have to share.
SETTLING_SECONDS = 0.05
Figures = dict[str, float]


def seconds_in(metric: str) -> float:
    """The sum of a time metric."""
    from torch_xla import _XLAC

    data = _XLAC._metric_data(metric)
    return data[1] * 1e-9 if data is not None else 0.0


def time_first_step(step: TrainingStep) -> Figures:
    """Our own part of the first steps and XLA's; the optimizer's state may cost another compile."""
    import torch_xla

    compiled_before = seconds_in("CompileTime")
    lowered_before = seconds_in("LoweringTime")
    recording = Timings()
    for _ in range(2):
        recording.sample(step.run)
        torch_xla.sync(wait=True)
    lowering = seconds_in("LoweringTime") - lowered_before
    compiling = seconds_in("CompileTime") - compiled_before
    return {"first_record": recording.wall[0], "lower": lowering, "compile": compiling}


def time_parts(step: TrainingStep, samples: int) -> Figures:
    """The parts of a later step, each step waited for."""
    import torch_xla

    record, barrier, execute, whole = Timings(), Timings(), [], []
    for _ in range(samples):
        executed_before = seconds_in("ExecuteTime")
        start = time.perf_counter()
        record.sample(step.run)
        barrier.sample(torch_xla.sync)
        torch_xla.sync(wait=True)
        whole.append(time.perf_counter() - start)
        execute.append(seconds_in("ExecuteTime") - executed_before)
    return {
        "record": record.median(),
        "record_cpu": record.best_cpu(),
        "barrier": barrier.median(),
        "execute": statistics.median(execute),
        "alone": statistics.median(whole),
    }


def time_in_a_row(eager_step: TrainingStep, step: TrainingStep, samples: int) -> Figures:
    """Steps in a row, eager and lazy, and the step's executable in a loop, by turns."""
    import torch_xla

    warm = Timings()
    for _ in range(5):  # the first of all takes several times as long
        warm.sample(eager_step.run)
    in_a_row = max(LEAST_IN_A_ROW, math.ceil(SECONDS_IN_A_ROW / warm.best()))
    bare: list[float] = []

    def run(step: TrainingStep) -> None:
        for _ in range(in_a_row):
            step.run()
            torch_xla.sync()
        torch_xla.sync(wait=True)

    def run_bare() -> None:
        bare.append(time_bare(step, in_a_row))

    eager, _, xla, _ = take_turns(
        [lambda: run(eager_step), run_bare, lambda: run(step), run_bare],
        samples,
        after=lambda: time.sleep(SETTLING_SECONDS),
    )
    figures = {"eager": eager.median(), "step": xla.median()}
    figures |= {"best_eager": eager.best(), "best_step": xla.best()}
    figures = {name: seconds / in_a_row for name, seconds in figures.items()}
    bare = bare[-2 * samples :]  # those that did not warm up
    # The machine's speed changes from one second to the next, and is less after eager PyTorch.
    around = [statistics.fmean(pair) for pair in zip(bare[::2], bare[1::2], strict=True)]
    beside = [row / in_a_row / alone for row, alone in zip(xla.wall, around, strict=True)]
    figures |= {"bare": statistics.median(bare), "best_bare": min(bare)}
    return figures | {"step_to_bare": statistics.median(beside)}


def time_bare(step: TrainingStep, launches: int) -> float:
    """The step's executable, launched in a loop without a host around it: seconds per launch, as
    the mean that a row of steps has too."""
    import torch_xla
    from torch_xla import _XLAC

    step.run()
    seconds = _XLAC._time_launches(_XLAC._current_device(), launches)
    torch_xla.sync(wait=True)
    return statistics.fmean(seconds)


def measure(name: str, samples: int) -> Figures:
    """All times of one model, in seconds."""
    import torch_xla

    step = TrainingStep(name, torch_xla.device())
    eager_step = TrainingStep(name, torch.device("cpu"))
    torch_xla.sync(wait=True)
    figures = time_first_step(step)
    figures |= time_parts(step, samples)
    return figures | time_in_a_row(eager_step, step, samples)


def measure_memory(name: str, device: str) -> Figures:
    """How much the process grew beyond what was resident before the model was made."""
    if device == "xla":
        import torch_xla

        torch_xla.device_count()  # the plugin is resident too
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    step = TrainingStep(name, torch.device(device))
    for _ in range(5):
        step.run()
        if device == "xla":
            torch_xla.sync(wait=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"bytes": (peak - before) * 1024.0}


def run_child(*args: str) -> Figures:
    """The figures that another run of this file prints."""
    command = [sys.executable, __file__, *args]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{result.stderr}")
    figures: Figures = json.loads(result.stdout.splitlines()[-1])
    return figures


def print_results(results: dict[str, Figures]) -> None:
    """Three tables: against eager, the parts of a step, the first step."""

    def ms(seconds: float) -> str:
        return f"{seconds * 1e3:.1f}"

    rows = [
        [
            name,
            ms(f["eager"]),
            ms(f["step"]),
            ratio(f["step"] / f["eager"], LIMITS[name]),
            ratio(f["best_step"] / f["best_eager"]),
            f"{LIMITS[name]:.1f}x",
            f"{f['eager_bytes'] / 2**20:.0f}",
            f"{f['xla_bytes'] / 2**20:.0f}",
        ]
        for name, f in results.items()
    ]
    header = ["training step", "eager ms", "xla ms", "median", "best", "limit"]
    print_table("Against eager PyTorch", [*header, "eager MB", "xla MB"], rows)
    rows = [
        [
            name,
            ms(f["record"]),
            ms(f["record_cpu"]),
            ms(f["barrier"]),
            ms(f["execute"]),
            ms(f["alone"]),
            ms(f["bare"]),
            ratio(f["step_to_bare"], 1.1),
            ratio(f["best_step"] / f["best_bare"]),
        ]
        for name, f in results.items()
    ]
    header = ["ms", "record", "record cpu", "barrier", "execute", "alone", "bare"]
    print_table("Parts of a step", [*header, "step / bare", "best"], rows)
    rows = [
        [
            name,
            ms(f["first_record"]),
            ms(f["lower"]),
            ms(f["compile"]),
            f"{(f['first_record'] + f['lower']) / f['compile']:.0%}",
        ]
        for name, f in results.items()
    ]
    header = ["ms", "record", "lower", "XLA compile", "ours / XLA's"]
    print_table("The first step, and the second where it compiles too", header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=7, help="samples per figure")
    parser.add_argument("--only", default="", help="models whose name contains this")
    add_spare_core(parser)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        if args.spare_core:
            leave_a_core_to_the_host()
        what, name = args.child
        is_time = what == "time"
        print(json.dumps(measure(name, args.samples) if is_time else measure_memory(name, what)))
        return
    results: dict[str, Figures] = {}
    for name in MODELS:
        if args.only.lower() not in name.lower():
            continue
        cores = ["--spare-core"] if args.spare_core else []
        figures = run_child("--samples", str(args.samples), *cores, "--child", "time", name)
        figures["eager_bytes"] = run_child("--child", "cpu", name)["bytes"]
        figures["xla_bytes"] = run_child("--child", "xla", name)["bytes"]
        results[name] = figures
    print_results(results)


if __name__ == "__main__":
    main()

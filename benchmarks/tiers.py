"""What compiling a program quickly first saves and costs: the compiler's options by themselves, and
the time from nothing to the end of the first steps, with tiers and without."""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from typing import Any

import torch
from measure import print_table, ratio
from workloads import MODELS, TrainingStep

LEVEL_0: dict[str, Any] = {"xla_backend_optimization_level": 0}
NO_FUSION_EMITTERS: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False}
WAYS: dict[str, dict[str, Any]] = {
    "all optimizations": {},
    "level 0": LEVEL_0,  # the library's own (src/runtime/platform_options.cpp)
    "no fusion emitters": NO_FUSION_EMITTERS,
    "no expensive passes": {"xla_llvm_disable_expensive_passes": True},
    "level 0, no fusion emitters": {**LEVEL_0, **NO_FUSION_EMITTERS},
}
LAUNCHES = 8
OPTIMIZER = "AdamW"


class OptimizerStep:
    """AdamW over a hundred parameters, alternately matrices and vectors."""

    def __init__(self, device: torch.device) -> None:
        shapes = [(32, 32) if i % 2 == 0 else (32,) for i in range(100)]
        self.parameters = [torch.randn(shape).to(device).requires_grad_() for shape in shapes]
        for parameter in self.parameters:
            parameter.grad = torch.randn(parameter.shape).to(device)
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-3)

    def run(self) -> None:
        self.optimizer.step()


def make(name: str) -> TrainingStep | OptimizerStep:
    import torch_xla

    torch_xla.sync(wait=True)
    torch_xla._XLAC._clear_compilation_cache()
    device = torch.device("xla")
    step = OptimizerStep(device) if name == OPTIMIZER else TrainingStep(name, device)
    torch_xla.sync(wait=True)
    return step


@dataclasses.dataclass
class Cost:
    compiling: float  # seconds in XLA until a step compiles no more
    cpu: float  # of the process, until then
    step: float  # seconds of the best launch


def measure_options(name: str, options: dict[str, Any]) -> Cost:
    import torch_xla
    from torch_xla import _XLAC

    torch_xla.set_custom_compile_options(options)
    step = make(name)
    data = _XLAC._metric_data("CompileTime")
    compiled = data[1] if data is not None else 0.0
    cpu = time.process_time()
    for _ in range(2):
        step.run()
        torch_xla.sync(wait=True)
    cost = Cost(
        (_XLAC._metric_data("CompileTime")[1] - compiled) * 1e-9, time.process_time() - cpu, 0.0
    )
    step.run()
    cost.step = min(_XLAC._time_launches(_XLAC._current_device(), LAUNCHES))
    torch_xla.sync(wait=True)
    torch_xla.set_custom_compile_options({})
    return cost


def measure_run(name: str, is_tiered: bool, counts: list[int]) -> list[float]:
    """Seconds from the first line of the training to the end of so many steps."""
    import torch_xla

    torch_xla.settings.tiered_compilation = is_tiered
    step = make(name)
    seconds = []
    start = time.perf_counter()
    for i in range(max(counts)):
        step.run()
        torch_xla.sync()
        if i + 1 in counts:
            torch_xla.sync(wait=True)
            seconds.append(time.perf_counter() - start)
    torch_xla.settings.tiered_compilation = False
    return seconds


def print_options(names: list[str], samples: int) -> None:
    rows = []
    for name in names:
        costs: dict[str, list[Cost]] = {way: [] for way in WAYS}
        for _ in range(samples):
            for way, options in WAYS.items():
                costs[way].append(measure_options(name, options))
        best = {
            way: Cost(
                *(min(column) for column in zip(*map(dataclasses.astuple, all_), strict=True))
            )
            for way, all_ in costs.items()
        }
        full = best["all optimizations"]
        for way, cost in best.items():
            rows.append(
                [
                    name,
                    way,
                    f"{cost.compiling:.2f}",
                    ratio(cost.compiling / full.compiling),
                    ratio(cost.cpu / full.cpu),
                    f"{cost.step * 1e3:.2f}",
                    ratio(cost.step / full.step),
                ]
            )
    header = ["steps of", "compiled with", "compiling s", "of all", "cpu", "launch ms", "of all"]
    print_table("options", header, rows)


def print_runs(names: list[str], samples: int, counts: list[int]) -> None:
    rows = []
    for name in names:
        plain, tiered = [], []
        for _ in range(samples):
            plain.append(measure_run(name, False, counts))
            tiered.append(measure_run(name, True, counts))
        for i, count in enumerate(counts):
            without = statistics.median(run[i] for run in plain)
            with_tiers = statistics.median(run[i] for run in tiered)
            cells = [f"{without:.2f}", f"{with_tiers:.2f}", ratio(with_tiers / without)]
            rows.append([name, str(count), *cells])
    print_table("from nothing", ["steps of", "how many", "s", "with tiers s", "of it"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--only", default="", help="names, by commas")
    parser.add_argument("--counts", default="1,10,100", help="of steps, by commas")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else [*MODELS, OPTIMIZER]
    measure_options(OPTIMIZER, {})  # the compiler's own start
    print_options(names, args.samples)
    print_runs(names, args.samples, [int(count) for count in args.counts.split(",")])


if __name__ == "__main__":
    main()

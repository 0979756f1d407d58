"""What compiling an optimizer's steps costs until they compile no more, beside AdamW's fused form.

Each row makes its parameters anew, and the first row of all is dropped: it pays for the compiler's
own start. Programs of earlier rows are forgotten, and none comes from the disk.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Callable, Iterable

import torch
from measure import print_table, ratio

# Of the fused form's compilation, for as many parameters.
LIMIT = 1.3
SIDE = 32
MOST_STEPS = 6

MakeOptimizer = Callable[[Iterable[torch.Tensor]], torch.optim.Optimizer]
REFERENCE = "AdamW, fused"


def ways(kind: type[torch.optim.Optimizer], **options: float) -> dict[str, MakeOptimizer]:
    """The optimizer as PyTorch runs it by default, and with a loop over the parameters."""
    name = kind.__name__
    return {
        f"{name}, default": lambda parameters: kind(parameters, **options),
        f"{name}, one by one": lambda parameters: kind(parameters, foreach=False, **options),
    }


OPTIMIZERS: dict[str, MakeOptimizer] = {
    REFERENCE: lambda parameters: torch.optim.AdamW(parameters, lr=1e-3, fused=True),
    **ways(torch.optim.AdamW, lr=1e-3),
    **ways(torch.optim.Adam, lr=1e-3, weight_decay=0.01),
    **ways(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.01),
    **ways(torch.optim.RMSprop, lr=1e-3, momentum=0.9, weight_decay=0.01),
    **ways(torch.optim.Adagrad, lr=1e-3, weight_decay=0.01),
}


@dataclasses.dataclass
class Cost:
    """Of the steps until one compiles nothing."""

    compiling: float  # seconds in XLA
    lowering: float  # seconds in ours
    cpu: float  # seconds of the process, for recording and running too
    compiled: int


def seconds_in(metric: str) -> float:
    from torch_xla import _XLAC

    data = _XLAC._metric_data(metric)
    return data[1] * 1e-9 if data is not None else 0.0


def measure(make: MakeOptimizer, count: int) -> Cost:
    """Of an optimizer of so many parameters, alternately matrices and vectors."""
    import torch_xla

    shapes = [(SIDE, SIDE) if i % 2 == 0 else (SIDE,) for i in range(count)]
    # Made on the host: a program that draws them all takes longer to compile than any optimizer.
    parameters = [torch.randn(shape).to("xla").requires_grad_() for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape).to("xla")
    optimizer = make(parameters)
    torch_xla.sync(wait=True)
    torch_xla._XLAC._clear_compilation_cache()
    compiling, lowering = seconds_in("CompileTime"), seconds_in("LoweringTime")
    cpu = time.process_time()
    first = compiled = torch_xla._XLAC._computation_stats()[0]
    for _ in range(MOST_STEPS):
        optimizer.step()
        torch_xla.sync(wait=True)
        before, compiled = compiled, torch_xla._XLAC._computation_stats()[0]
        if compiled == before:
            break
    return Cost(
        seconds_in("CompileTime") - compiling,
        seconds_in("LoweringTime") - lowering,
        time.process_time() - cpu,
        compiled - first,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--parameters", default="50,100,200", help="how many, by commas")
    parser.add_argument("--only", default="", help="rows whose names have this in them")
    args = parser.parse_args()
    makers = {k: make for k, make in OPTIMIZERS.items() if args.only in k or k == REFERENCE}
    measure(OPTIMIZERS[REFERENCE], 1)
    for count in map(int, args.parameters.split(",")):
        costs: dict[str, list[Cost]] = {name: [] for name in makers}
        for _ in range(args.samples):
            for name, make in makers.items():
                costs[name].append(measure(make, count))
        reference = statistics.median(cost.compiling for cost in costs[REFERENCE])
        reference_cpu = statistics.median(cost.cpu for cost in costs[REFERENCE])
        rows = []
        for name, samples in costs.items():
            compiling = statistics.median(cost.compiling for cost in samples)
            lowering = statistics.median(cost.lowering for cost in samples)
            cpu = statistics.median(cost.cpu for cost in samples)
            limit = None if name == REFERENCE else LIMIT
            rows.append(
                [
                    name,
                    f"{compiling:.2f}",
                    f"{lowering:.2f}",
                    ratio(compiling / reference, limit),
                    f"{cpu:.2f}",
                    ratio(cpu / reference_cpu, limit),
                    str(max(cost.compiled for cost in samples)),
                ]
            )
        print_table(
            f"{count} parameters",
            ["optimizer", "compiling s", "lowering s", "to fused", "cpu s", "to fused", "programs"],
            rows,
        )


if __name__ == "__main__":
    main()

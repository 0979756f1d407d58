"""What recording an operation costs, beside dispatching it eagerly on the CPU.

Each row runs the same Python lines on an xla tensor and on a CPU tensor of 8x8 elements. On xla
nothing is executed: the graph is dropped, and freeing it is part of the figure. The last rows are a
training step of a 12-layer transformer, small enough that eager PyTorch is bound by dispatch too;
there the barrier that ends the step is not part of the figure and has a row of its own in
`train.py`.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable

import torch
from measure import Timings, print_table, ratio, take_turns
from models import GPT2, TransformerConfig
from torch import nn

import torch_xla

Body = Callable[[int], object]


@dataclasses.dataclass(frozen=True)
class Case:
    """One row: `make(device)` gives a function that runs the body some number of times."""

    name: str
    limit: float  # of the ratio to eager PyTorch
    ops_per_turn: int
    make: Callable[[torch.device], Body]


def tensors_only(device: torch.device) -> Body:
    start, other = torch.ones(8, 8, device=device), torch.ones(8, 8, device=device)

    def body(turns: int) -> None:
        x = start
        for _ in range(turns):
            x = x + other
            x = x * other

    return body


def with_scalar(device: torch.device) -> Body:
    start = torch.ones(8, 8, device=device)

    def body(turns: int) -> None:
        x = start
        for _ in range(turns):
            x = x + 1.5
            x = x * 0.5

    return body


def matmul(device: torch.device) -> Body:
    start, other = torch.ones(8, 8, device=device), torch.eye(8, device=device)

    def body(turns: int) -> None:
        x = start
        for _ in range(turns):
            x = x @ other
            x = x.relu()

    return body


def in_place(device: torch.device) -> Body:
    start, other = torch.ones(8, 8, device=device), torch.ones(8, 8, device=device)

    def body(turns: int) -> None:
        x = start.clone()
        for _ in range(turns):
            x.add_(other)
            x.mul_(other)

    return body


def views(device: torch.device) -> Body:
    start = torch.ones(8, 8, device=device)

    def body(turns: int) -> None:
        for _ in range(turns):
            start.view(4, 16)
            start[2]
            start.t()
            start[1:5]

    return body


def writes_through_views(device: torch.device) -> Body:
    start, row = torch.ones(8, 8, device=device), torch.ones(8, device=device)

    def body(turns: int) -> None:
        x = start.clone()
        for _ in range(turns):
            x[2].add_(row)
            x[1:5].mul_(row)

    return body


def layer_mix(device: torch.device) -> Body:
    linear, norm = nn.Linear(8, 8), nn.LayerNorm(8)
    linear.to(device), norm.to(device)
    start = torch.ones(8, 8, device=device)

    def body(turns: int) -> None:
        x = start
        with torch.no_grad():
            for _ in range(turns):
                x = nn.functional.gelu(nn.functional.softmax(norm(linear(x)), dim=-1))

    return body


CASES = [
    Case("tensors only", 1.0, 2, tensors_only),
    Case("with a scalar", 1.0, 2, with_scalar),
    Case("matmul and relu", 1.0, 2, matmul),
    Case("in-place", 1.5, 2, in_place),
    Case("views", 1.5, 4, views),
    Case("writes through views", 1.5, 4, writes_through_views),
    Case("linear, layer_norm, softmax, gelu", 1.0, 4, layer_mix),
]


def time_case(case: Case, device: torch.device, ops: int, samples: int) -> list[Timings]:
    """Samples of eager PyTorch and of recording."""
    turns = ops // case.ops_per_turn
    bodies = [case.make(torch.device("cpu")), case.make(device)]
    torch_xla.sync(wait=True)
    runs = [lambda body=body: body(turns) for body in bodies]
    return take_turns(runs, samples, warmups=3)


class TransformerStep:
    """A training step in its three parts, on one device."""

    def __init__(self, device: torch.device, foreach: bool) -> None:
        torch.manual_seed(0)
        config = TransformerConfig(num_layers=12, width=32, num_heads=2, max_length=8)
        self.model = GPT2(config).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, foreach=foreach)
        self.tokens = torch.randint(config.vocabulary, (1, 9)).to(device)
        self.loss = torch.zeros(())
        self.parts = [Timings(), Timings(), Timings(), Timings()]

    def forward(self) -> None:
        logits = self.model(self.tokens[:, :-1])
        self.loss = nn.functional.cross_entropy(logits.flatten(0, 1), self.tokens[:, 1:].flatten())

    def backward(self) -> None:
        self.optimizer.zero_grad()
        self.loss.backward()

    def update(self) -> None:
        self.optimizer.step()

    def run(self) -> None:
        """One step; the whole is the last of the parts."""
        *parts, whole = self.parts
        for timing, part in zip(parts, (self.forward, self.backward, self.update), strict=True):
            timing.sample(part)
        whole.wall.append(sum(timing.wall[-1] for timing in parts))
        whole.cpu.append(sum(timing.cpu[-1] for timing in parts))


def time_transformer(device: torch.device, foreach: bool, samples: int) -> list[list[Timings]]:
    """For each part of the step, samples of eager PyTorch and of recording."""
    steps = [TransformerStep(torch.device("cpu"), foreach), TransformerStep(device, foreach)]
    for i in range(3 + samples):
        if i == 3:
            for step in steps:
                step.parts = [Timings() for _ in step.parts]
        for step in steps:
            step.run()
            torch_xla.sync(wait=True)
    return [list(pair) for pair in zip(*(step.parts for step in steps), strict=True)]


def row(name: str, limit: float, timings: list[Timings], scale: float) -> list[str]:
    """A line of the table; `scale` turns seconds into the row's unit."""
    eager, xla = timings
    return [
        name,
        f"{eager.median() * scale:.2f}",
        f"{xla.median() * scale:.2f}",
        ratio(xla.median() / eager.median(), limit),
        ratio(xla.best() / eager.best()),
        f"{eager.best_cpu() * scale:.2f}",
        f"{xla.best_cpu() * scale:.2f}",
        ratio(xla.best_cpu() / eager.best_cpu()),
        f"{limit:.1f}x",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=15, help="samples per row")
    parser.add_argument("--ops", type=int, default=2000, help="operations per sample")
    parser.add_argument("--only", default="", help="rows whose name contains this")
    args = parser.parse_args()
    # Eager PyTorch's own threads would be counted as CPU time while they wait for work.
    torch.set_num_threads(1)
    device = torch_xla.device()
    header = ["per op", "eager us", "xla us", "median", "best"]
    header += ["eager cpu", "xla cpu", "cpu time", "limit"]
    rows = []
    for case in CASES:
        if args.only in case.name:
            timings = time_case(case, device, args.ops, args.samples)
            rows.append(row(case.name, case.limit, timings, 1e6 / args.ops))
    if rows:
        print_table("Recording, per operation", header, rows)
    rows = []
    for foreach in (True, False):
        kind = "foreach" if foreach else "one by one"
        names = ["forward", "backward", f"AdamW, {kind}", f"whole step, {kind}"]
        if any(args.only in name for name in names):
            parts = time_transformer(device, foreach, args.samples)
            rows += [row(name, 1.0, pair, 1e3) for name, pair in zip(names, parts, strict=True)]
    if rows:
        header[:3] = ["12-layer transformer", "eager ms", "xla ms"]
        print_table("Recording a training step", header, rows)


if __name__ == "__main__":
    main()

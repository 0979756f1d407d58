"""Recurrent layers beside eager PyTorch on the CPU: steps, forward and with the gradients, and what
the first step takes to compile at several lengths.

The two take turns. Of ours a step is everything from the first line to the results' being there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from measure import print_table, ratio, take_turns
from torch import nn

import torch_xla

LIMIT = 1.2
FEATURES = 64
CELLS: dict[str, Callable[..., nn.RNNBase]] = {
    "LSTM": nn.LSTM,
    "GRU": nn.GRU,
    "RNN": nn.RNN,
    "LSTM, bidirectional": lambda *sizes: nn.LSTM(*sizes, bidirectional=True),
    "LSTM, projected": lambda *sizes: nn.LSTM(*sizes, proj_size=FEATURES // 2),
    "LSTM, 2 layers": lambda *sizes: nn.LSTM(*sizes, num_layers=2),
}


class Step:
    """A layer on one device, on sequences of random numbers."""

    def __init__(self, cell: str, width: int, batch: int, length: int, device: str) -> None:
        torch.manual_seed(0)
        self.model = CELLS[cell](FEATURES, width).to(device)
        self.input = torch.randn(length, batch, FEATURES).to(device)
        self.device = device

    def forward(self) -> None:
        with torch.no_grad():
            result = self.model(self.input)[0]
            self._wait()
        del result

    def backward(self) -> None:
        self.model.zero_grad()
        self.model(self.input)[0].sum().backward()
        self._wait()

    def _wait(self) -> None:
        if self.device == "xla":
            torch_xla.sync(wait=True)


def step_rows(only: str, samples: int) -> list[list[str]]:
    rows = []
    for cell in CELLS:
        if only not in cell:
            continue
        for width, batch, length in ((64, 16, 64), (64, 16, 128), (256, 32, 64)):
            steps = [Step(cell, width, batch, length, device) for device in ("cpu", "xla")]
            torch_xla.sync(wait=True)
            cells = [f"{cell} {width}, batch {batch}, {length} steps"]
            for eager, ours in (
                (steps[0].forward, steps[1].forward),
                (steps[0].backward, steps[1].backward),
            ):
                theirs, own = take_turns([eager, ours], samples, warmups=3)
                cells += [
                    f"{theirs.median() * 1e3:.2f}",
                    f"{own.median() * 1e3:.2f}",
                    ratio(own.median() / theirs.median(), LIMIT),
                    ratio(own.best() / theirs.best()),
                ]
            rows.append(cells)
    return rows


def compile_rows(only: str) -> list[list[str]]:
    rows = []
    for cell in CELLS:
        if only not in cell:
            continue
        cells = [cell]
        for length in (16, 32, 256, 512):
            step = Step(cell, 64, 16, length, "xla")
            torch_xla.sync(wait=True)
            start = time.perf_counter()
            step.backward()
            cells.append(f"{time.perf_counter() - start:.2f}")
        rows.append(cells)
    return rows


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--only", default="", help="part of the names of cells")
    arguments = parser.parse_args()
    header = ["forward: eager ms", "xla ms", "median", "best"]
    print_table(
        "Steps",
        ["layer", *header, *(name.replace("forward", "with gradients") for name in header)],
        step_rows(arguments.only, arguments.samples),
    )
    print_table(
        "First step with gradients, seconds",
        ["layer", "16 steps", "32", "256", "512"],
        compile_rows(arguments.only),
    )


if __name__ == "__main__":
    main()

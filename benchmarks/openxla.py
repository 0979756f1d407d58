"""A call of `torch.compile(backend="openxla")` that compiles nothing: the host's time for a
12-layer forward pass, of calls in a row that are not waited for.

Beside it, the same model with a backend that does nothing: what PyTorch's guards and the bytecode
that it makes take of every call, whatever the backend; and the pass recorded anew.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable

import torch
from measure import print_table, ratio, take_turns
from models import GPT2, TransformerConfig

import torch_xla

LIMIT_SECONDS = 30e-6
IN_A_ROW = 10


def do_nothing(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
    """A backend whose calls return what the first one did."""
    results: list[object] = []

    def call(*args: torch.Tensor) -> object:
        if not results:
            results.append(module(*args))
        return results[0]

    return call


def call_in_a_row(call: Callable[[torch.Tensor], object], tokens: torch.Tensor) -> None:
    for _ in range(IN_A_ROW):
        call(tokens)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--samples", type=int, default=100, help=f"times {IN_A_ROW} calls of each kind"
    )
    args = parser.parse_args()
    torch.manual_seed(0)
    config = TransformerConfig(num_layers=12, width=32, num_heads=2, max_length=8)
    model = GPT2(config).eval().to("xla")
    tokens = torch.randint(config.vocabulary, (1, 8)).to("xla")
    kinds = {
        "recorded": model,
        "a backend that does nothing": torch.compile(model, backend=do_nothing),
        "openxla": torch.compile(model, backend="openxla"),
    }
    with torch.no_grad():
        runs = [functools.partial(call_in_a_row, call, tokens) for call in kinds.values()]
        timings = take_turns(runs, args.samples, 5, after=lambda: torch_xla.sync(wait=True))
    figures = {
        name: (timing.median() / IN_A_ROW, timing.best() / IN_A_ROW)
        for name, timing in zip(kinds, timings, strict=True)
    }
    pairs = zip(figures["openxla"], figures["a backend that does nothing"], strict=True)
    median, best = (ours - nothing for ours, nothing in pairs)
    figures["what openxla adds to nothing"] = median, best
    rows = []
    for name, (median, best) in figures.items():
        limit = ratio(median / LIMIT_SECONDS, 1.0) if "openxla" in name else ""
        rows.append([name, f"{median * 1e6:.0f}", f"{best * 1e6:.0f}", limit])
    print_table("A call of a 12-layer forward pass", ["", "us", "best us", "of the limit"], rows)


if __name__ == "__main__":
    main()

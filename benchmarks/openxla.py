"""A call of `torch.compile(backend="openxla")` that compiles nothing: the host's time for a
12-layer forward pass, of calls in a row that are not waited for.

Beside it, the same model with a backend that does nothing: what PyTorch's guards and the bytecode
that it makes take of every call, whatever the backend; both again without guards on modules
(docs/compiling.md); and the pass recorded anew.
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
UNGUARDED = {"guard_filter_fn": torch.compiler.skip_guard_on_all_nn_modules_unsafe}
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


Figures = dict[str, tuple[float, float]]


def time_calls(
    kinds: dict[str, Callable[..., object]], tokens: torch.Tensor, samples: int
) -> Figures:
    """The median and the best seconds of a call of each kind, measured by turns."""
    runs = [functools.partial(call_in_a_row, call, tokens) for call in kinds.values()]
    timings = take_turns(runs, samples, 5, after=lambda: torch_xla.sync(wait=True))
    return {
        name: (timing.median() / IN_A_ROW, timing.best() / IN_A_ROW)
        for name, timing in zip(kinds, timings, strict=True)
    }


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
    figures: Figures = {}
    with torch.no_grad():
        figures |= time_calls({"recorded": model}, tokens, args.samples)
        for what, options in (("", None), (", modules unguarded", UNGUARDED)):
            torch.compiler.reset()
            nothing, openxla = f"a backend that does nothing{what}", f"openxla{what}"
            kinds = {
                nothing: torch.compile(model, backend=do_nothing, options=options),
                openxla: torch.compile(model, backend="openxla", options=options),
            }
            figures |= time_calls(kinds, tokens, args.samples)
            pairs = zip(figures[openxla], figures[nothing], strict=True)
            median, best = (ours - empty for ours, empty in pairs)
            figures[f"what openxla adds to nothing{what}"] = median, best
    rows = []
    for name, (median, best) in figures.items():
        limit = ratio(median / LIMIT_SECONDS, 1.0) if "openxla" in name else ""
        rows.append([name, f"{median * 1e6:.0f}", f"{best * 1e6:.0f}", limit])
    print_table("A call of a 12-layer forward pass", ["", "us", "best us", "of the limit"], rows)


if __name__ == "__main__":
    main()

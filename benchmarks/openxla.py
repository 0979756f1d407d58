"""A call of `torch.compile(backend="openxla")` that compiles nothing: the host's time for a
12-layer forward pass on a device that is idle, since after each call it is waited for.

Beside it, the same model with a backend that does nothing: what PyTorch's guards and the bytecode
that it makes take of every call, whatever the backend; both again without guards on modules
(docs/compiling.md); and the pass recorded anew. Of a call of openxla, the part that is torch_xla's
is the call of the graph; AOTAutograd's wrapper is around it.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from unittest import mock

import torch
from measure import print_table, ratio, take_turns
from models import GPT2, TransformerConfig

import torch_xla
from torch_xla.core import dynamo_bridge

LIMIT_SECONDS = 30e-6
UNGUARDED = {"guard_filter_fn": torch.compiler.skip_guard_on_all_nn_modules_unsafe}
WARMUPS = 5


def do_nothing(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
    """A backend whose calls return what the first one did."""
    results: list[object] = []

    def call(*args: torch.Tensor) -> object:
        if not results:
            results.append(module(*args))
        return results[0]

    return call


def wait() -> None:
    torch_xla.sync(wait=True)


Figures = dict[str, tuple[float, float]]


def time_calls(
    kinds: dict[str, Callable[..., object]], tokens: torch.Tensor, samples: int
) -> Figures:
    """The median and the best seconds of a call of each kind, measured by turns."""
    runs = [functools.partial(call, tokens) for call in kinds.values()]
    timings = take_turns(runs, samples, WARMUPS, after=wait)
    return {
        name: (timing.median(), timing.best()) for name, timing in zip(kinds, timings, strict=True)
    }


def time_own_part(
    model: torch.nn.Module, tokens: torch.Tensor, samples: int
) -> tuple[float, float]:
    """The median and the best seconds of the graph's call within a call."""
    seconds = []
    extract = dynamo_bridge.extract_compiled_graph

    def extract_timed(*args: object) -> Callable[..., object]:
        graph = extract(*args)

        def call(*tensors: torch.Tensor) -> object:
            start = time.perf_counter()
            results = graph(*tensors)
            seconds.append(time.perf_counter() - start)
            return results

        return call

    torch.compiler.reset()
    compiled = torch.compile(model, backend="openxla")
    with mock.patch.object(dynamo_bridge, "extract_compiled_graph", extract_timed):
        for _ in range(WARMUPS + samples):
            compiled(tokens)
            wait()
    return statistics.median(seconds[WARMUPS:]), min(seconds[WARMUPS:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=400, help="calls of each kind")
    args = parser.parse_args()
    torch.manual_seed(0)
    config = TransformerConfig(num_layers=12, width=32, num_heads=2, max_length=8)
    model = GPT2(config).eval().to("xla")
    tokens = torch.randint(config.vocabulary, (1, 8)).to("xla")
    figures: Figures = {}
    with torch.no_grad():
        figures |= time_calls({"recorded": model}, tokens, args.samples)
        for what, options in (("", {}), (", modules unguarded", UNGUARDED)):
            torch.compiler.reset()
            nothing, openxla = f"a backend that does nothing{what}", f"openxla{what}"
            # torch.compile takes the entries that it knows out of the dictionary.
            kinds = {
                nothing: torch.compile(model, backend=do_nothing, options=dict(options)),
                openxla: torch.compile(model, backend="openxla", options=dict(options)),
            }
            figures |= time_calls(kinds, tokens, args.samples)
            pairs = zip(figures[openxla], figures[nothing], strict=True)
            median, best = (ours - empty for ours, empty in pairs)
            figures[f"what openxla adds to nothing{what}"] = median, best
        figures["torch_xla's part of openxla"] = time_own_part(model, tokens, args.samples)
    rows = []
    for name, (median, best) in figures.items():
        limit = ratio(median / LIMIT_SECONDS, 1.0) if "openxla" in name else ""
        rows.append([name, f"{median * 1e6:.0f}", f"{best * 1e6:.0f}", limit])
    print_table("A call of a 12-layer forward pass", ["", "us", "best us", "of the limit"], rows)


if __name__ == "__main__":
    main()

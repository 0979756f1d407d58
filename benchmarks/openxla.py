"""A call of `torch.compile(backend="openxla")` that compiles nothing: the host's time for a
12-layer forward pass on a device that is idle, since after each call it is waited for.

Beside it, the same model with a backend that does nothing: what PyTorch's guards and the bytecode
that it makes take of every call, whatever the backend; both again without guards on modules
(docs/compiling.md); and the pass recorded anew. Of a call of openxla, the part that is torch_xla's
is the call of the graph; AOTAutograd's wrapper is around it.

Each kind has Dynamo for itself, which would try the guards of the other kind's entry first. Before
each call the graph is launched, so that all kinds find the processor's caches alike.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from unittest import mock

import torch
from measure import Timings, print_table, ratio
from models import GPT2, TransformerConfig

import torch_xla
from torch_xla.core import dynamo_bridge

LIMIT_SECONDS = 30e-6
OWN = "torch_xla's part of openxla"
UNGUARDED = {"guard_filter_fn": torch.compiler.skip_guard_on_all_nn_modules_unsafe}
WARMUPS = 5
ROUNDS = 4


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


def capture(model: torch.nn.Module, tokens: torch.Tensor) -> Callable[[], object]:
    """The call of the graph alone, with the arguments that openxla's calls give it."""
    calls: list[Callable[[], object]] = []
    extract = dynamo_bridge.extract_compiled_graph

    def extract_and_keep(*args: object) -> Callable[..., object]:
        graph = extract(*args)

        def call(*tensors: torch.Tensor) -> object:
            calls.append(functools.partial(graph, *tensors))
            return graph(*tensors)

        return call

    with mock.patch.object(dynamo_bridge, "extract_compiled_graph", extract_and_keep):
        torch.compile(model, backend="openxla")(tokens)
    return calls[0]


def time_kinds(
    kinds: dict[str, Callable[[], Callable[[], object]]],
    launch: Callable[[], object],
    samples: int,
) -> dict[str, Timings]:
    """Seconds of calls of each kind, which its function makes anew for each round."""
    timings = {name: Timings() for name in kinds}
    for _ in range(ROUNDS):
        for name, make in kinds.items():
            torch.compiler.reset()
            call = make()
            for _ in range(WARMUPS):
                call()
                wait()
            for _ in range(samples // ROUNDS):
                launch()
                wait()
                timings[name].sample(call)
                wait()
    return timings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=800, help="calls of each kind")
    args = parser.parse_args()
    torch.manual_seed(0)
    config = TransformerConfig(num_layers=12, width=32, num_heads=2, max_length=8)
    model = GPT2(config).eval().to("xla")
    tokens = torch.randint(config.vocabulary, (1, 8)).to("xla")

    def compiled(backend: object, options: dict[str, object]) -> Callable[[], object]:
        # torch.compile takes the entries that it knows out of the dictionary.
        whole = torch.compile(model, backend=backend, options=dict(options))
        return functools.partial(whole, tokens)

    nothing, openxla, unguarded = "a backend that does nothing", "openxla", ", modules unguarded"
    with torch.no_grad():
        launch = capture(model, tokens)
        kinds = {"recorded": lambda: functools.partial(model, tokens), OWN: lambda: launch}
        for what, options in (("", {}), (unguarded, UNGUARDED)):
            kinds[nothing + what] = functools.partial(compiled, do_nothing, options)
            kinds[openxla + what] = functools.partial(compiled, openxla, options)
        timings = time_kinds(kinds, launch, args.samples)
    figures = {name: (timing.median(), timing.best()) for name, timing in timings.items()}
    for what in ("", unguarded):
        pairs = zip(figures[openxla + what], figures[nothing + what], strict=True)
        median, best = (ours - empty for ours, empty in pairs)
        figures[f"what openxla adds to nothing{what}"] = median, best
    rows = []
    for name, (median, best) in figures.items():
        limit = ratio(median / LIMIT_SECONDS, 1.0) if "openxla" in name else ""
        rows.append([name, f"{median * 1e6:.0f}", f"{best * 1e6:.0f}", limit])
    print_table("A call of a 12-layer forward pass", ["", "us", "best us", "of the limit"], rows)


if __name__ == "__main__":
    main()

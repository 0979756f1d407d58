"""A call of `torch.compile(backend="openxla")` that compiles nothing: the host's time for a
12-layer forward pass on a device that is idle, since after each call it is waited for.

What the backend takes is timed inside of the calls: from where Dynamo's guards and bytecode call
what the backend made until that returns. Beside it the whole calls, of openxla and of a backend
that does nothing, both again without guards on modules (docs/compiling.md); and the pass recorded
anew. The time of the guards alone differs by more, from run to run, than the backend takes.

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
from torch._dynamo.backends.registry import lookup_backend

import torch_xla
from torch_xla._torch import dynamo_graphs

LIMIT_SECONDS = 30e-6
UNGUARDED = {"guard_filter_fn": torch.compiler.skip_guard_on_all_nn_modules_unsafe}
WARMUPS = 5
ROUNDS = 4


class Backend:
    """A backend, and how long what it made takes of each call."""

    def __init__(self, compile: Callable[..., Callable[..., object]]) -> None:
        self._compile = compile
        self.inside = Timings()
        self.is_timed = False

    def __call__(self, module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        graph = self._compile(module, inputs)

        def call(*args: torch.Tensor) -> object:
            if not self.is_timed:
                return graph(*args)
            results: list[object] = []
            self.inside.sample(lambda: results.append(graph(*args)))
            return results[0]

        return call


def do_nothing(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., object]:
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
    extract = dynamo_graphs.extract_compiled_graph

    def extract_and_keep(*args: object, **options: bool) -> Callable[..., object]:
        graph = extract(*args, **options)

        def call(*tensors: torch.Tensor) -> object:
            calls.append(functools.partial(graph, *tensors))
            return graph(*tensors)

        return call

    with mock.patch.object(dynamo_graphs, "extract_compiled_graph", extract_and_keep):
        torch.compile(model, backend="openxla")(tokens)
    return calls[0]


def time_kinds(
    kinds: dict[str, Callable[[], Callable[[], object]]],
    backends: dict[str, Backend],
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
            for backend in backends.values():
                backend.is_timed = True
            for _ in range(samples // ROUNDS):
                launch()
                wait()
                timings[name].sample(call)
                wait()
            for backend in backends.values():
                backend.is_timed = False
    return timings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=800, help="calls of each kind")
    args = parser.parse_args()
    torch.manual_seed(0)
    config = TransformerConfig(num_layers=12, width=32, num_heads=2, max_length=8)
    model = GPT2(config).eval().to("xla")
    tokens = torch.randint(config.vocabulary, (1, 8)).to("xla")

    def compiled(backend: Backend, options: dict[str, object]) -> Callable[[], object]:
        # torch.compile takes the entries that it knows out of the dictionary.
        whole = torch.compile(model, backend=backend, options=dict(options))
        return functools.partial(whole, tokens)

    kinds = {"recorded": lambda: functools.partial(model, tokens)}
    backends = {}
    for what, options in (("", {}), (", modules unguarded", UNGUARDED)):
        for name, compile in (
            ("a backend that does nothing", do_nothing),
            ("openxla", lookup_backend("openxla")),
        ):
            backends[name + what] = backend = Backend(compile)
            kinds[name + what] = functools.partial(compiled, backend, options)
    with torch.no_grad():
        timings = time_kinds(kinds, backends, capture(model, tokens), args.samples)
    rows = []
    for name, timing in timings.items():
        rows.append([name, f"{timing.median() * 1e6:.0f}", f"{timing.best() * 1e6:.0f}", ""])
        if name.startswith("openxla"):
            inside = backends[name].inside
            limit = ratio(inside.median() / LIMIT_SECONDS, 1.0)
            row = [f"{inside.median() * 1e6:.0f}", f"{inside.best() * 1e6:.0f}", limit]
            rows.append(["of these in openxla", *row])
    print_table("A call of a 12-layer forward pass", ["", "us", "best us", "of the limit"], rows)


if __name__ == "__main__":
    main()

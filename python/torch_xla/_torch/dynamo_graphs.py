"""Graphs of Dynamo's and AOTAutograd's as programs.

A graph is recorded once, as one node with a program of its own. A call finds that program by its
key and launches it: the tensors of the model are not walked, whatever its size.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from torch_xla import _XLAC
from torch_xla._capture import regions
from torch_xla._settings import settings

_log = logging.getLogger("torch_xla")
Graph = Callable[..., Any]


# Where a result is: the index of a tensor that the graph returns, and what `as_strided` takes if it
# is a view of that.
Place = tuple[int, tuple[Any, ...] | None]


def _roots(results: regions.Tensors) -> tuple[list[torch.Tensor], list[Place]]:
    """What a graph returns in the place of `results`, of which some may share memory: the tensor of
    which those are views, once. And where in it they are."""
    uses = Counter(_XLAC._alias_id(result) for result in results)
    known: dict[int, int] = {}
    roots: list[torch.Tensor] = []
    places: list[Place] = []
    for result in results:
        memory = _XLAC._alias_id(result)
        root = result if result._base is None else result._base
        is_odd = result.dtype != root.dtype or result.is_conj() or result.is_neg()
        if uses[memory] == 1 or _XLAC._is_view(root) or is_odd:
            places.append((len(roots), None))
            roots.append(result)
            continue
        if memory not in known:
            known[memory] = len(roots)
            roots.append(root)
        places.append((known[memory], (result.shape, result.stride(), result.storage_offset())))
    return roots, places


def _at(roots: regions.Tensors, places: Sequence[Place]) -> list[torch.Tensor]:
    return [roots[i] if view is None else roots[i].as_strided(*view) for i, view in places]


def _program(model: Callable[..., Any], args: Sequence[Any], keeps_views: bool) -> Graph:
    """A function that runs the graph on arguments of the types of `args`."""
    tensors, rest = regions.flat(list(args))
    moved = [i for i, tensor in enumerate(tensors) if not _XLAC._is_xla_tensor(tensor)]
    device = torch.device("xla", regions.device_of(tensors))
    result_rest: Any = None
    places: list[Place] = []

    takes_token = _XLAC._has_groups()
    examples = [tensor.to(device) for tensor in tensors]
    if takes_token:
        examples.append(_XLAC._collective_token(device.index))

    def run(*stand_ins: torch.Tensor) -> Sequence[torch.Tensor]:
        if not takes_token:
            return run_model(*stand_ins)
        with regions.collectives_start_from(device.index, stand_ins[-1]):
            return run_model(*stand_ins[:-1])

    def run_model(*stand_ins: torch.Tensor) -> Sequence[torch.Tensor]:
        nonlocal result_rest, places
        with torch.no_grad():
            results, result_rest = regions.flat(model(*regions.unflat(stand_ins, rest)))
        results = [r if _XLAC._is_xla_tensor(r) else r.to(device) for r in results]
        if keeps_views:
            results, places = _roots(results)
        return results

    captured = regions.Captured(run, examples)
    others, spec = result_rest
    # Nearly always the results are one flat sequence of tensors.
    is_flat = all(child.is_leaf() for child in spec.children()) and others.count(None) == len(
        others
    )
    is_plain = is_flat and spec.type in (list, tuple)
    call: Graph = _XLAC._graph_call(
        *(captured.graph, captured.num_results, captured.written, moved),
        *(device, spec.type is list, takes_token),
    )
    if any(view is not None for _, view in places):
        return lambda *args: regions.unflat(_at(call(*args), places), result_rest)
    if is_plain:
        return call
    return lambda *args: regions.unflat(call(*args), result_rest)


@contextlib.contextmanager
def _sizes_may_be_bounded() -> Iterator[None]:
    """However they change, as Dynamo takes them for variables; unless users want each a program."""
    before = _XLAC._set_thread_bounded_sizes(True)
    if before is False or not settings.bounded_growth:
        _XLAC._set_thread_bounded_sizes(before)
    try:
        yield
    finally:
        _XLAC._set_thread_bounded_sizes(before)


def extract_compiled_graph(
    xla_model: torch.fx.GraphModule, xla_args: Sequence[Any], keeps_views: bool = False
) -> Any:
    """A callable that runs the graph `xla_model` as one program.

    Args:
        xla_model: takes and returns tensors, numbers and None.
        xla_args: the first call's arguments. Later tensors must be of the same types; numbers may
            differ, for another recording each. The first that asks for another one is reported by a
            warning of the logger "torch_xla", the rest by its infos. Recordings that differ in
            sizes alone share programs, as `torch_xla.compile(dynamic=True)` makes them.
        keeps_views: results that share memory share it after each call too. Without, each has its
            own, and is ready for the next graph: what autograd saves needs no more.

    A graph that needs values while it runs (an operation without a lowering, a size that depends on
    data) is recorded anew in each call instead, with a warning.
    """
    has_numbers = any(isinstance(arg, (int, float)) for arg in xla_args)
    programs: dict[Any, Graph] = {}

    def make(args: Sequence[Any]) -> Graph:
        try:
            return _program(xla_model, args, keeps_views)
        except RuntimeError as error:
            if "while the function was being captured" not in str(error):
                raise
            _log.warning("torch.compile: the graph needs values on the host; it runs uncompiled")
            return xla_model

    if not has_numbers:
        return make(xla_args)

    numbers = [arg for arg in xla_args if isinstance(arg, (int, float))]

    def call(*args: Any) -> Any:
        key = tuple(regions.type_of(arg) if isinstance(arg, torch.Tensor) else arg for arg in args)
        found = programs.get(key)
        if found is None:
            found = programs[key] = make(args)
            if len(programs) > 1:
                now = [arg for arg in args if isinstance(arg, (int, float))]
                _log.log(
                    logging.WARNING if len(programs) == 2 else logging.INFO,
                    "torch.compile: the graph is recorded for each size and number, so that %s "
                    "asks for another recording than %s (%d for this graph so far, at %s); the "
                    "programs of sizes are bounded where they can be",
                    now, numbers, len(programs), _XLAC._user_line()
                )  # fmt: skip
        with _sizes_may_be_bounded():
            return found(*args)

    return call


class GraphInputMatcher:
    """The inputs of a graph in the order of its parameters: those that `args` gives by position,
    and constants.

    Args:
        positions: for each parameter, the index in the call's arguments, or -1 for a constant.
        constants: the constants, in the order of the parameters that take them.
    """

    def __init__(self, positions: Sequence[int], constants: Sequence[torch.Tensor]) -> None:
        self._positions = list(positions)
        self._constants = list(constants)

    def __call__(self, args: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        constants = iter(self._constants)
        return [next(constants) if i < 0 else args[i] for i in self._positions]

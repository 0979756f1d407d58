"""`torch.compile(backend="openxla")`: PyTorch's backend of that name calls this module with the
graphs that Dynamo and AOTAutograd made.

A graph is recorded once, as one node with a program of its own. A call finds that program by its
key and launches it: the tensors of the model are not walked, whatever its size.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_xla import _XLAC, _regions

_log = logging.getLogger("torch_xla")


class _Program:
    """A graph for arguments of certain types."""

    def __init__(self, model: Callable[..., Any], args: Sequence[Any]) -> None:
        tensors, self._rest = _regions.flat(list(args))
        self._is_moved = [not _XLAC._is_xla_tensor(tensor) for tensor in tensors]
        self._device = torch.device("xla", _regions.device_of(tensors))
        self._result_rest: Any = None

        def run(*stand_ins: torch.Tensor) -> Sequence[torch.Tensor]:
            with torch.no_grad():
                results, self._result_rest = _regions.flat(
                    model(*_regions.unflat(stand_ins, self._rest))
                )
            return [r if _XLAC._is_xla_tensor(r) else r.to(self._device) for r in results]

        self._captured = _regions.Captured(run, self._on_device(tensors))
        self._graph = self._captured.graph
        self._num_results = self._captured.num_results
        # Nearly always the results are one flat sequence.
        result_rest: Any = self._result_rest
        others, spec = result_rest
        is_flat = all(child.is_leaf() for child in spec.children())
        self._result_type: Any = None
        if is_flat and spec.type in (list, tuple) and others.count(None) == len(others):
            self._result_type = spec.type

    def _on_device(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [
            tensor.to(self._device) if is_moved else tensor
            for tensor, is_moved in zip(tensors, self._is_moved, strict=True)
        ]

    def _nested(self, results: list[torch.Tensor]) -> Any:
        """The results as the model gives them."""
        if self._result_type is not None:
            return self._result_type(results)
        return _regions.unflat(results, self._result_rest)

    def __call__(self, args: Sequence[Any]) -> Any:
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        if True in self._is_moved:
            tensors = self._on_device(tensors)
        results = _XLAC._run_graph(self._graph, tensors)
        if self._captured.written:
            for i, value in zip(self._captured.written, results[self._num_results :], strict=True):
                tensors[i].copy_(value)
            del results[self._num_results :]
        return self._nested(results)


def extract_compiled_graph(xla_model: torch.fx.GraphModule, xla_args: Sequence[Any]) -> Any:
    """A callable that runs the graph `xla_model` as one program.

    Args:
        xla_model: takes and returns tensors, numbers and None.
        xla_args: the first call's arguments. Later tensors must be of the same types; numbers may
            differ, for another program each.

    A graph that needs values while it runs (an operation without a lowering, a size that depends on
    data) is recorded anew in each call instead, with a warning.
    """
    has_numbers = any(isinstance(arg, (int, float)) for arg in xla_args)
    programs: dict[Any, Callable[[Sequence[Any]], Any]] = {}

    def make(args: Sequence[Any]) -> Callable[[Sequence[Any]], Any]:
        try:
            return _Program(xla_model, args)
        except RuntimeError as error:
            if "while the function was being captured" not in str(error):
                raise
            _log.warning("torch.compile: the graph needs values on the host; it runs uncompiled")
            return lambda later: xla_model(*later)

    if not has_numbers:
        program = make(xla_args)
        return lambda *args: program(args)

    def call(*args: Any) -> Any:
        key = tuple(_regions.type_of(arg) if isinstance(arg, torch.Tensor) else arg for arg in args)
        found = programs.get(key)
        if found is None:
            found = programs[key] = make(args)
        return found(args)

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

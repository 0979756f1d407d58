"""`torch.compile` without a backend on xla tensors: Inductor has no code for them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torch_xla._wrapping import to_wrap


def _tensors_of(graph: Any, inputs: Any) -> Iterator[torch.Tensor]:
    for value in inputs or ():
        if isinstance(value, torch.Tensor):
            yield value
    if isinstance(graph, torch.nn.Module):
        yield from graph.parameters()
        yield from graph.buffers()
    for node in getattr(getattr(graph, "graph", None), "nodes", ()):
        value = node.meta.get("example_value", node.meta.get("val"))
        if isinstance(value, torch.Tensor):
            yield value


def _refuse_xla(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def compile_fx(model_: Any, example_inputs_: Any, *args: Any, **kwargs: Any) -> Any:
        if any(t.device.type == "xla" for t in _tensors_of(model_, example_inputs_)):
            raise RuntimeError(
                "torch.compile: Inductor, the backend without a name, makes no code for xla "
                'tensors; say torch.compile(..., backend="openxla")'
            )
        return original(model_, example_inputs_, *args, **kwargs)

    return compile_fx


def change(module: Any) -> None:
    """Let Inductor say so."""
    module.compile_fx = _refuse_xla(to_wrap(module, "compile_fx"))

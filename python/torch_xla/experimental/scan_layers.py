"""`scan_layers`: equal layers as one loop, so that compiling N of them costs what one costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from torch_xla.experimental.scan import default_partition, scan


def _check_alike(layers: list[torch.nn.Module]) -> None:
    first = {name: t.shape for name, t in layers[0].state_dict(keep_vars=True).items()}
    for number, layer in enumerate(layers):
        this = {name: t.shape for name, t in layer.state_dict(keep_vars=True).items()}
        if type(layer) is not type(layers[0]) or this != first:
            raise ValueError(
                f"scan_layers: layer {number} is not like the first: all must be of one class, "
                "with parameters and buffers of equal names and sizes"
            )


def scan_layers(
    layers: Iterable[torch.nn.Module],
    input_data: Any,
    partition_fn: Callable[..., Any] = default_partition,
    is_layer_pure: bool = False,
) -> Any:
    """Apply `layers` one after the other: what one returns, the next is given.

    As `for layer in layers: x = layer(x)`, as one loop over the layers' stacked parameters.
    Gradients reach the parameters and `input_data`. Nothing that a layer writes (running
    statistics) is kept.

    Args:
        layers: modules of one class that differ in the values of their parameters alone.
        input_data: what the first is given; each layer must return the like.
        partition_fn: what is kept for the backward pass, as for `scan`.
        is_layer_pure: the layer does the same whenever it is called, so that it need not be again.

    Raises:
        ValueError: the layers are not alike.
    """
    modules = list(layers)
    if not modules:
        return input_data
    _check_alike(modules)
    first = modules[0]
    named = [dict(m.named_parameters()) | dict(m.named_buffers()) for m in modules]
    stacked = {name: torch.stack([tensors[name] for tensors in named]) for name in named[0]}

    def apply(x: Any, tensors: dict[str, torch.Tensor]) -> tuple[Any, None]:
        return torch.func.functional_call(first, tensors, (x,)), None

    if not stacked:
        for module in modules:
            input_data = module(input_data)
        return input_data
    if not is_layer_pure:
        return scan(apply, input_data, stacked, partition_fn)[0]
    # Kept with the module, so that another model's layers have a function of their own.
    pure = first.__dict__.setdefault("_xla_scanned", apply)
    return scan(pure, input_data, stacked, partition_fn, is_fn_pure=True)[0]

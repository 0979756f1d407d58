"""Tensor parallelism of PyTorch in one program over all devices: on a mesh of xla devices under
SPMD what it says of parameters and activations becomes annotations, and XLA puts in the exchanges.
Meshes of replicas take PyTorch's own way. Imported with it. Next: annotated_fully_shard.py, for
`fully_shard`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from torch_xla._spmd import placements


def _mark_parameters(
    module: nn.Module, mesh: Any, placement_of: Callable[[str, nn.Parameter], Any]
) -> None:
    """Move a module to the device and annotate its own parameters."""
    module.to("xla")
    for name, parameter in module.named_parameters(recurse=False):
        placements.annotate("parallelize_module", parameter, mesh, [placement_of(name, parameter)])


def _mark_all(values: Any, mesh: Any, layouts: Sequence[Any]) -> Any:
    """The values, those with a layout as tensors that lie so."""
    several = values if isinstance(values, tuple) else (values,)
    if len(several) != len(layouts):
        raise ValueError(
            f"parallelize_module: expected a layout for each of {len(several)} values, got "
            f"{layouts}"
        )
    marked = tuple(
        placements.annotated(value, mesh, [layout])
        if layout is not None and isinstance(value, torch.Tensor)
        else value
        for value, layout in zip(several, layouts, strict=True)
    )
    return marked if isinstance(values, tuple) else marked[0]


def _mark_first(values: tuple[Any, ...], mesh: Any, layouts: Sequence[Any]) -> tuple[Any, ...]:
    return (*_mark_all(values[:1], mesh, layouts), *values[1:])


def _hook(module: nn.Module, mesh: Any, inputs: Any, outputs: Any) -> nn.Module:
    if inputs is not None:
        module.register_forward_pre_hook(lambda _, values: _mark_first(values, mesh, inputs))
    if outputs is not None:
        module.register_forward_hook(lambda _m, _i, value: _mark_all(value, mesh, outputs))
    return module


def _refuse(style: Any, module: nn.Module) -> None:
    if not isinstance(module, (nn.Linear, nn.Embedding)):
        raise NotImplementedError(
            f"{type(style).__name__}: expected an nn.Linear or nn.Embedding, got "
            f"{type(module).__name__}"
        )


def _columns(style: Any, module: nn.Module, mesh: Any) -> nn.Module:
    from torch.distributed.tensor import Shard

    _refuse(style, module)
    dimension = 0 if isinstance(module, nn.Linear) else 1
    _mark_parameters(module, mesh, lambda _n, _p: Shard(dimension))
    return _hook(module, mesh, style.desired_input_layouts, style.output_layouts)


def _rows(style: Any, module: nn.Module, mesh: Any) -> nn.Module:
    from torch.distributed.tensor import Replicate, Shard

    _refuse(style, module)
    is_linear = isinstance(module, nn.Linear)
    dimension = 1 if is_linear else 0
    _mark_parameters(
        module, mesh, lambda name, _p: Replicate() if name == "bias" else Shard(dimension)
    )
    return _hook(module, mesh, [Shard(-1) if is_linear else Replicate()], style.output_layouts)


def _sequence(style: Any, module: nn.Module, mesh: Any) -> nn.Module:
    from torch.distributed.tensor import Replicate

    _mark_parameters(module, mesh, lambda _n, _p: Replicate())
    return _hook(module, mesh, style.sequence_sharding, style.sequence_sharding)


def _inputs(style: Any, module: nn.Module, mesh: Any) -> nn.Module:
    by_name = style.desired_input_kwarg_layouts

    def mark(_: nn.Module, values: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if style.desired_input_layouts is not None:
            values = _mark_all(values, mesh, style.desired_input_layouts)
        marked = {
            name: _mark_all(value, mesh, [by_name.get(name)]) for name, value in named.items()
        }
        return values, marked

    module.register_forward_pre_hook(mark, with_kwargs=True)
    return module


def _outputs(style: Any, module: nn.Module, mesh: Any) -> nn.Module:
    return _hook(module, mesh, None, style.desired_output_layouts)


_STYLES: dict[str, Callable[[Any, nn.Module, Any], nn.Module]] = {
    "ColwiseParallel": _columns,
    "RowwiseParallel": _rows,
    "SequenceParallel": _sequence,
    "PrepareModuleInput": _inputs,
    "PrepareModuleOutput": _outputs,
}


def change(module: Any) -> None:
    """Teach the module of PyTorch's styles."""
    for name, ours in _STYLES.items():
        style = getattr(module, name)
        style._apply = _either(style._apply, ours)


def _either(
    original: Callable[..., nn.Module], ours: Callable[[Any, nn.Module, Any], nn.Module]
) -> Callable[..., nn.Module]:
    @functools.wraps(original)
    def _apply(self: Any, module: nn.Module, device_mesh: Any) -> nn.Module:
        chosen = ours if placements.is_annotated(device_mesh) else original
        return chosen(self, module, device_mesh)

    return _apply

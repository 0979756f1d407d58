"""Tensor parallelism of PyTorch in one program over all devices: on a mesh of xla devices under
SPMD what it says of parameters and activations becomes annotations, and XLA puts in the exchanges.
Meshes of replicas take PyTorch's own way. Next: annotated_fully_shard.py, for `fully_shard`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from torch_xla._spmd import placements
from torch_xla._torch import annotated_fully_shard, late_changes


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


def _change_styles(module: Any) -> None:
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


class _NoPlace:
    """This process's place on a mesh that has not been told one, as those of process groups are."""

    def __get__(self, mesh: Any, owner: Any) -> Any:
        if mesh is None:
            return self
        if not placements.is_annotated(mesh):
            raise AttributeError(f"{owner.__name__} object has no attribute '_coordinate_on_dim'")
        raise NotImplementedError(
            f"under SPMD this process is all of {mesh} and has no place of its own on it, which "
            "DTensor.from_local and its kin (zeros, rand) ask for: distribute_tensor takes the "
            "whole tensor"
        )


def _change_meshes(module: Any) -> None:
    """A part of a mesh asks which rank this process is. Under SPMD it is all of them, and takes the
    part that begins with the first."""
    original = module.DeviceMesh._get_mesh_tensor_from_full_mesh

    @functools.wraps(original)
    def _get_mesh_tensor_from_full_mesh(full_mesh: Any, current_rank: int | None = None) -> Any:
        if current_rank is None and not dist.is_initialized():
            current_rank = 0
        return original(full_mesh, current_rank)

    module.DeviceMesh._get_mesh_tensor_from_full_mesh = staticmethod(
        _get_mesh_tensor_from_full_mesh
    )
    take_part = module.DeviceMesh._create_sub_mesh

    @functools.wraps(take_part)
    def _create_sub_mesh(self: Any, *args: Any) -> Any:
        if not placements.is_annotated(self):
            return take_part(self, *args)
        self._dim_group_names = []
        part = take_part(self, *args)
        del self._dim_group_names, part._dim_group_names  # neither has process groups
        return part

    module.DeviceMesh._create_sub_mesh = _create_sub_mesh
    module.DeviceMesh._coordinate_on_dim = _NoPlace()


def install() -> None:
    """Teach PyTorch's parallelism what it does on meshes under SPMD."""
    for module, change in (
        ("torch.distributed.device_mesh", _change_meshes),
        ("torch.distributed.tensor.parallel.style", _change_styles),
        ("torch.distributed.fsdp._fully_shard._fully_shard", annotated_fully_shard.change),
    ):
        late_changes.when_imported(module, change)

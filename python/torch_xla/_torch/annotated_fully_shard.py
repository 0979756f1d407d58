"""PyTorch's `fully_shard` in one program over all devices: on a mesh of xla devices under SPMD it
annotates parameters, which are gathered where the module computes, and their gradients."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from torch_xla._spmd import gradients, mode, placements, sharding
from torch_xla._torch import gathering, mixed_precision, stand_ins


@dataclasses.dataclass
class _Options:
    """Those of `fully_shard` that hold here, and what the others are by default."""

    mesh: Any
    reshard_after_forward: Any = None
    shard_placement_fn: Callable[[nn.Parameter], Any] | None = None
    mp_policy: Any = None
    offload_policy: Any = None
    ignored_params: set[nn.Parameter] | None = None
    dp_mesh_dims: Any = None

    def check(self) -> None:
        """Raises NotImplementedError for what XLA can't be told."""
        if type(self.reshard_after_forward) is int:
            _refuse(
                f"reshard_after_forward={self.reshard_after_forward}",
                "parameters are gathered whole or kept whole; pass True, False or None",
            )
        if self.offload_policy is not None and hasattr(self.offload_policy, "pin_memory"):
            _refuse(
                f"offload_policy={self.offload_policy}",
                "parameters stay on the devices; leave it out",
            )


def _refuse(argument: str, instead: str) -> None:
    raise NotImplementedError(f"fully_shard: {argument} is not supported under SPMD: {instead}")


def _names(what: str, dims: Any, mesh: Any) -> tuple[str, ...]:
    """Names of a mesh's dimensions, in its order."""
    wanted = (dims,) if isinstance(dims, str) else tuple(dims or ())
    known = tuple(mesh.mesh_dim_names or ())
    for name in wanted:
        if name not in known:
            raise ValueError(f"fully_shard: dp_mesh_dims.{what} must be of {mesh}, got {name!r}")
    return tuple(name for name in known if name in wanted)


def _shard_mesh(options: _Options) -> tuple[Any, int, int]:
    """The mesh of data parallelism; along how many of its dimensions, the first ones, parameters
    are the same, and along how many they are split."""
    mesh, dims = options.mesh, options.dp_mesh_dims
    if dims is None:
        return mesh, mesh.ndim - 1, 1
    _names("replicate", dims.replicate, mesh)
    split = _names("shard", dims.shard, mesh)
    return (mesh[split], 0, len(split)) if split else (mesh, mesh.ndim, 0)


def _managed(torchs: Any, module: nn.Module, ignored: set[int]) -> Iterator[tuple[nn.Module, str]]:
    """By owner and name the parameters of a module that no `fully_shard` within has taken."""
    inner = {
        id(p)
        for child in module.modules()
        if child is not module and isinstance(child, torchs.FSDPModule)
        for p in child.parameters()
    }
    for owner in module.modules():
        for name, parameter in owner.named_parameters(recurse=False):
            if id(parameter) not in ignored and id(parameter) not in inner:
                yield owner, name


def _placed(options: _Options, parameter: nn.Parameter) -> Sequence[Any]:
    from torch.distributed.tensor import Replicate, Shard

    choose = options.shard_placement_fn
    shard = choose(parameter) if choose is not None else None
    if shard is not None and not isinstance(shard, Shard):
        _refuse(f"shard_placement_fn that returns {shard!r}", "return a Shard or None")
    _, num_alike, num_split = _shard_mesh(options)
    return [*[Replicate()] * num_alike, *[shard or Shard(0)] * num_split]


def _split(options: _Options, parameter: nn.Parameter) -> gathering.Shardings:
    """Annotate a parameter; how it lies then, and where it is used."""
    mesh, _, _ = _shard_mesh(options)
    gradients.leave(parameter)  # stand_ins.py places those of a module all at once
    placements.annotate("fully_shard", parameter, mesh, _placed(options, parameter))
    parts = sharding.sharding_of(parameter)
    assert parts is not None  # as it was just said
    whole = placements.spec_on("fully_shard", parameter, mesh, None)
    waits = parameter.dim() > 1 and sharding.has_equal_parts(parts, parameter.shape)
    axes = sharding.axes_of(parts) - sharding.axes_of(whole)
    batch = sharding.ShardingSpec(parts.mesh, (tuple(sorted(axes)),))
    return gathering.Shardings(
        sharding.text_of_spec(parts),
        sharding.text_of_spec(whole),
        sharding.text_of_spec(batch) if waits else None,
        math.prod(parts.mesh.mesh_shape[axis] for axis in axes),
    )


def _annotate(torchs: Any, module: Any, options: _Options) -> Any:
    """What `fully_shard` does on such a mesh. `torchs` is PyTorch's module of it."""
    from torch.distributed._composable_state import _insert_module_state
    from torch.distributed.utils import _get_root_modules

    options.check()
    modules = [module] if isinstance(module, nn.Module) else _get_root_modules(list(module))
    ignored = {id(p) for p in options.ignored_params or ()}
    _, _, num_split = _shard_mesh(options)
    gathering.prepare(torch.device("xla", 0))
    for each in modules:
        each.to("xla")
        managed = list(_managed(torchs, each, ignored))
        dtype = mixed_precision.apply(each, managed, options.mp_policy)
        parameters: list[Any] = [getattr(owner, name) for owner, name in managed]
        shardings = {p: _split(options, p) for p in parameters if num_split and p.dim() > 0}
        is_split = mode.runtime_device_count() > 1
        stand_in_options = stand_ins.StandInOptions(
            dtype, shardings if is_split else {}, options.reshard_after_forward
        )
        stand_ins.install(each, stand_in_options, managed)
    # Its methods are those of a state that manages nothing.
    state = torchs.fully_shard.state(modules[0])
    for each in modules:
        _insert_module_state(each, state)
    torchs._apply_to_module(
        tuple(modules),
        torchs.cls_to_fsdp_cls,
        torchs.FSDPModule,
        "FSDP",
        torchs._unimplemented_deepcopy,
    )
    return module


def _all_devices() -> Any:
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("xla", (mode.runtime_device_count(),))


def change(torchs: Any) -> None:
    """Let PyTorch's `fully_shard` do so. Programs may have imported the function: what it calls is
    replaced within it."""
    function = torchs.fully_shard
    cell = function.__closure__[function.__code__.co_freevars.index("func")]
    original = cell.cell_contents

    @functools.wraps(original)
    def fully_shard(module: Any, *, mesh: Any = None, **options: Any) -> Any:
        if mesh is None and mode.is_spmd() and not dist.is_initialized():
            mesh = _all_devices()
        if not placements.is_annotated(mesh):
            return original(module, mesh=mesh, **options)
        return _annotate(torchs, module, _Options(mesh, **options))

    cell.cell_contents = fully_shard

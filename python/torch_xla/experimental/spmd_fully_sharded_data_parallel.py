"""Fully sharded data parallelism as one program over a mesh. On a mesh of one device every
parameter is whole."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torch_xla.distributed import spmd
from torch_xla.distributed.fsdp import wrap


def _shard_output(output: Any, mesh: spmd.Mesh, extra_data_axis: str | None = None) -> None:
    tensor = output[0] if isinstance(output, tuple) else output
    if not isinstance(tensor, torch.Tensor):
        raise RuntimeError(
            "SpmdFullyShardedDataParallel: the module's output is neither a tensor nor a tuple "
            "that begins with one; pass shard_output to say how it lies on the mesh"
        )
    batch = "fsdp" if extra_data_axis is None else (extra_data_axis, "fsdp")
    if tensor.dim() > 0:
        spmd.annotate_custom_sharding(tensor, mesh, (batch, *[None] * (tensor.dim() - 1)))


class SpmdFullyShardedDataParallel(nn.Module):
    """Spreads a module's parameters, and its output's batch, over the mesh's axis `fsdp`.

    Args:
        module: the module.
        mesh: the devices; the global mesh by default.
        shard_output: called with the output and the mesh, to mark how the output lies on it.
        auto_wrap_policy: which modules inside are wrapped on their own (`fsdp.wrap`).
        auto_wrapper_callable: what wraps them; this class by default.
        extra_data_axis: another axis over which the batch is spread.

    Raises:
        ValueError: there is no mesh, or it has no axis `fsdp`.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        mesh: spmd.Mesh | None = None,
        shard_output: Callable[[Any, spmd.Mesh], None] | None = None,
        auto_wrap_policy: Callable[..., bool] | None = None,
        auto_wrapper_callable: Callable[..., nn.Module] | None = None,
        extra_data_axis: str | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(module, nn.Module):
            raise TypeError(f"SpmdFullyShardedDataParallel: expected a module, got {module!r}")
        chosen = mesh or spmd.get_global_mesh()
        if chosen is None or chosen.get_axis_name_idx("fsdp") is None:
            raise ValueError(
                "SpmdFullyShardedDataParallel: expected a mesh with an axis named 'fsdp', got "
                f"{chosen}"
            )
        if extra_data_axis is not None and chosen.get_axis_name_idx(extra_data_axis) is None:
            raise ValueError(
                f"SpmdFullyShardedDataParallel: extra_data_axis must be an axis of {chosen}, got "
                f"{extra_data_axis!r}"
            )
        self._mesh = chosen
        self._shard_output = shard_output or functools.partial(
            _shard_output, extra_data_axis=extra_data_axis
        )
        if auto_wrap_policy is not None:
            wrapper = auto_wrapper_callable or functools.partial(
                SpmdFullyShardedDataParallel,
                mesh=chosen,
                shard_output=shard_output,
                extra_data_axis=extra_data_axis,
            )
            wrap.recursive_wrap(module, auto_wrap_policy, wrapper, only_wrap_children=True)
        for name, parameter in module.named_parameters():
            if parameter.device.type != "xla":
                raise ValueError(
                    "SpmdFullyShardedDataParallel: expected a module on an xla device, its "
                    f"parameter {name} is on {parameter.device}; move it first"
                )
            if parameter.dim() > 0:
                spmd.mark_sharding(parameter, chosen, ("fsdp", *[None] * (parameter.dim() - 1)))
        self._orig_module = module

    @property
    def module(self) -> nn.Module:
        """The module inside."""
        return self._orig_module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives, spread over the mesh."""
        output = self._orig_module(*args, **kwargs)
        self._shard_output(output, self._mesh)
        return output

    def __getattr__(self, name: str) -> Any:
        """The attributes of the module inside, too."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_orig_module"), name)

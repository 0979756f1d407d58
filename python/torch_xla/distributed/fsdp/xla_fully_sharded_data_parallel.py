"""The wrapper of fully sharded data parallelism, for one replica."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from torch_xla import _nested
from torch_xla._replicas import world
from torch_xla.distributed.fsdp import wrap


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


class XlaFullyShardedDataParallel(nn.Module):
    """Wraps a module whose parameters are spread over the replicas. Here the one replica has all.

    Args:
        module: the module.
        reshard_after_forward: give other replicas' parameters back after the forward pass.
        flatten_parameters: keep the parameters of a wrapped module as one.
        execute_sharding_on_init: spread the parameters at once.
        optimization_barrier_in_forward: keep the compiler from moving gathers ahead.
        optimization_barrier_in_backward: likewise in the backward pass.
        compute_dtype: the type in which the module computes; inputs, parameters and buffers are
            converted.
        buffer_dtype: the type of the buffers; `compute_dtype` by default.
        fp32_reduce_scatter: sum gradients in float32.
        shard_param_on_dim_0: spread along the first dimension.
        pin_layout_in_collective_ops: accepted for compatibility.
        coalesce_all_gather_ops: gather many parameters at once.
        auto_wrap_policy: which modules inside are wrapped on their own (`fsdp.wrap`).
        auto_wrapper_callable: what wraps them; this class by default.
        param_init_fn: called to make the parameters of a module on the meta device.
        kwargs: further arguments about the exchange between replicas.
    """

    def __init__(
        self,
        module: nn.Module,
        reshard_after_forward: bool = True,
        flatten_parameters: bool = False,
        execute_sharding_on_init: bool = True,
        optimization_barrier_in_forward: bool = True,
        optimization_barrier_in_backward: bool = True,
        compute_dtype: torch.dtype | None = None,
        buffer_dtype: torch.dtype | None = None,
        fp32_reduce_scatter: bool = False,
        shard_param_on_dim_0: bool = False,
        pin_layout_in_collective_ops: bool = True,
        coalesce_all_gather_ops: bool = False,
        auto_wrap_policy: Callable[..., bool] | None = None,
        auto_wrapper_callable: Callable[..., nn.Module] | None = None,
        param_init_fn: Callable[[nn.Module], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if world.world_size() != 1:
            raise NotImplementedError(
                f"XlaFullyShardedDataParallel: {world.world_size()} replicas are not supported yet"
            )
        if param_init_fn is not None:
            param_init_fn(module)
        if auto_wrap_policy is not None:
            wrapper = auto_wrapper_callable or XlaFullyShardedDataParallel
            wrap.recursive_wrap(
                module,
                auto_wrap_policy,
                wrapper,
                only_wrap_children=True,
                compute_dtype=compute_dtype,
                buffer_dtype=buffer_dtype,
            )
        self.module = module
        self.compute_dtype = compute_dtype
        self._dividing: list[Any] = []
        target = buffer_dtype or compute_dtype
        for buffer in module.buffers():
            if target is not None and buffer.is_floating_point():
                buffer.data = buffer.data.to(target)

    def __getattr__(self, name: str) -> Any:
        """The attributes of the module inside, too."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives; computed in `compute_dtype` if there is one."""
        if self.compute_dtype is None:
            return self.module(*args, **kwargs)
        dtype = self.compute_dtype

        def convert(values: list[Any]) -> list[Any]:
            return [value.to(dtype) for value in values]

        args, kwargs = _nested.replace((args, kwargs), _is_floating, convert)
        own = {name: p.to(dtype) for name, p in self._own_parameters()}
        return torch.func.functional_call(self.module, own, args, kwargs)

    def _own_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Those that are in no wrapper inside."""
        inner = tuple(
            f"{name}."
            for name, module in self.module.named_modules()
            if name and isinstance(module, XlaFullyShardedDataParallel)
        )
        for name, parameter in self.module.named_parameters():
            if not name.startswith(inner) and parameter.is_floating_point():
                yield name, parameter

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """That of the module inside, under its own names."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        """What `state_dict` gave."""
        return self.module.load_state_dict(state_dict, *args, **kwargs)

    def get_shard_metadata(self) -> dict[str, Any]:
        """What `consolidate_sharded_state_dicts` must know."""
        return {
            "rank": world.global_ordinal(),
            "world_size": world.world_size(),
            "shard_info": {name: list(p.shape) for name, p in self.module.named_parameters()},
        }

    def set_gradient_divide_factors(self, pre: float, post: float, recursive: bool = True) -> None:
        """Divide gradients by `pre` before the replicas sum them, and by `post` after that."""
        if pre <= 0 or post <= 0:
            raise ValueError(f"set_gradient_divide_factors: got {pre} and {post}")
        for module in self.modules() if recursive else [self]:
            if isinstance(module, XlaFullyShardedDataParallel):
                module._divide_by(pre * post)

    def _divide_by(self, divisor: float) -> None:
        for handle in self._dividing:
            handle.remove()
        self._dividing = [
            parameter.register_hook(lambda grad: grad / divisor)
            for _, parameter in self._own_parameters()
            if parameter.requires_grad and divisor != 1
        ]

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A context in which gradients are summed up here alone, without an exchange."""
        yield

    @torch.no_grad()
    def clip_grad_norm_(
        self, max_norm: float, norm_type: float = 2.0, groups: Any = None
    ) -> Tensor:
        """Scale the gradients of all replicas so that their norm is at most `max_norm`. Reads
        nothing on the host.

        Returns:
            The norm before.
        """
        del groups
        return nn.utils.clip_grad_norm_(self.parameters(), max_norm, norm_type)

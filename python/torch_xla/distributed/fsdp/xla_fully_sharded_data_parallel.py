"""The wrapper of fully sharded data parallelism."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from torch_xla import _barriers, _nested, _other_names
from torch_xla._replicas import functional, meetings, shards, world
from torch_xla._replicas.meetings import Group
from torch_xla.distributed.fsdp import wrap

FLOAT_DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def apply_to_tensors(fn: Callable[[Tensor], Any], container: Any) -> Any:
    """The container with `fn(tensor)` in the place of every tensor inside of it."""
    return _nested.replace(container, _is_tensor, lambda tensors: [fn(t) for t in tensors])


def collect_tensors(container: Any) -> list[Tensor]:
    """The tensors inside of a container."""
    return [tensor for _, tensor in _nested.walk(container, _is_tensor)]


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


class _Gather(torch.autograd.Function):
    """A parameter out of all replicas' rows; its gradient is the rows' mean over the replicas, or
    is held back until they exchange."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, shape: torch.Size, owner: Any, name: str) -> Tensor:
        ctx.owner, ctx.name, ctx.dtype = owner, name, rows.dtype
        return _gathered(rows, shape, owner.group)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        owner = ctx.owner
        held = owner.held_back.pop(ctx.name, None)
        if held is not None:
            grad_output = grad_output + held
        if not owner.exchanges_gradients:
            owner.held_back[ctx.name] = grad_output
            return None, None, None, None
        padded = shards.padded(grad_output, owner.group.size)
        if owner.sums_in_float32:
            padded = padded.float()
        rows = functional.reduce_scatter(padded, "sum", owner.group.size, owner.group.name)
        return (rows / owner.divisor).to(ctx.dtype), None, None, None


def _gathered(rows: Tensor, shape: torch.Size, group: Group) -> Tensor:
    return shards.whole(functional.all_gather(rows, group.size, group.name).flatten(0, 1), shape)


def _find_inside(wrapper: nn.Module, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
    """Names in a state know no wrappers: what is a wrapper's is its module's."""
    del wrapper, rest
    for name in [name for name in state_dict if name.startswith(prefix)]:
        state_dict[f"{prefix}module.{name[len(prefix) :]}"] = state_dict.pop(name)


class XlaFullyShardedDataParallel(nn.Module):
    """Wraps a module whose parameters are spread over the replicas: each has rows of them, and
    gathers the rest for a pass through the module.

    Args:
        module: the module.
        reshard_after_forward: give other replicas' rows back after the forward pass, and gather
            them again in the backward pass.
        flatten_parameters: accepted for compatibility: parameters stay apart.
        execute_sharding_on_init: launch what spreads the parameters at once.
        optimization_barrier_in_forward: keep the compiler from moving gathers ahead.
        optimization_barrier_in_backward: likewise in the backward pass.
        compute_dtype: the type in which the module computes; inputs, parameters and buffers are
            converted.
        buffer_dtype: the type of the buffers; `compute_dtype` by default.
        fp32_reduce_scatter: sum gradients in float32.
        shard_param_on_dim_0: accepted for compatibility: that is how parameters are spread.
        pin_layout_in_collective_ops: accepted for compatibility.
        coalesce_all_gather_ops: accepted for compatibility.
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
        self.group = meetings.whole_group()
        self.divisor = float(self.group.size)
        self.sums_in_float32 = fp32_reduce_scatter
        self._gathers_again = reshard_after_forward
        self._shapes: dict[str, torch.Size] = {}
        # In `no_sync`, this replica's gradients of whole parameters, by name.
        self.exchanges_gradients = True
        self.held_back: dict[str, Tensor] = {}
        if param_init_fn is not None:
            param_init_fn(module)
        if auto_wrap_policy is not None:
            wrapper = auto_wrapper_callable or XlaFullyShardedDataParallel
            wrap.recursive_wrap(
                module,
                auto_wrap_policy,
                wrapper,
                only_wrap_children=True,
                reshard_after_forward=reshard_after_forward,
                fp32_reduce_scatter=fp32_reduce_scatter,
                compute_dtype=compute_dtype,
                buffer_dtype=buffer_dtype,
            )
        self.module = module
        self.register_load_state_dict_pre_hook(_find_inside)  # type: ignore[no-untyped-call]
        self.compute_dtype = compute_dtype
        self._dividing: list[Any] = []
        self._place_buffers(buffer_dtype or compute_dtype)
        if self.group.size > 1:
            self._spread()
            if execute_sharding_on_init:
                _barriers.sync()

    def __getattr__(self, name: str) -> Any:
        """The attributes of the module inside, too."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)

    def _place_buffers(self, dtype: torch.dtype | None) -> None:
        """Each replica has all of them, on its device as the parameters' rows."""
        placed: dict[int, Tensor] = {}
        for owner in self.module.modules():
            for name, buffer in owner.named_buffers(recurse=False, remove_duplicate=False):
                device = "xla" if self.group.size > 1 else buffer.device
                of_floats = dtype if buffer.is_floating_point() else None
                placed.setdefault(id(buffer), buffer.to(device=device, dtype=of_floats))
                owner._buffers[name] = placed[id(buffer)]

    def _spread(self) -> None:
        """Keep this replica's rows of the parameters that are in no wrapper inside."""
        spread: dict[int, nn.Parameter] = {}
        for name, parameter in list(self._own_parameters(remove_duplicate=False)):
            if id(parameter) not in spread:
                rows = shards.own_rows(parameter.detach().to("xla"), self.group).clone()
                spread[id(parameter)] = nn.Parameter(rows, parameter.requires_grad)
            owner, _, key = name.rpartition(".")
            self.module.get_submodule(owner).register_parameter(key, spread[id(parameter)])
            self._shapes[name] = parameter.shape

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module gives; computed in `compute_dtype` if there is one."""
        dtype = self.compute_dtype
        if dtype is not None:
            args, kwargs = _nested.replace(
                (args, kwargs), _is_floating, lambda values: [v.to(dtype) for v in values]
            )
        if self.group.size > 1:
            return self._forward_gathered(args, kwargs)
        if dtype is None:
            return self.module(*args, **kwargs)
        own = {name: p.to(dtype) for name, p in self._own_parameters()}
        return torch.func.functional_call(self.module, own, args, kwargs)

    def _forward_gathered(self, args: Any, kwargs: Any) -> Any:
        rows: dict[int, Tensor] = {}  # by the parameter that was gathered from them
        whole: dict[int, Tensor] = {}  # by the parameter that has the rows
        own = {}
        for name, parameter in self._own_parameters(remove_duplicate=False):
            if id(parameter) not in whole:
                given = parameter.to(self.compute_dtype or parameter.dtype)
                gathered: Tensor = _Gather.apply(  # type: ignore[no-untyped-call]
                    given, self._shapes[name], self, name
                )
                whole[id(parameter)] = gathered
                rows[id(gathered)] = given.detach()
            own[name] = whole[id(parameter)]

        def pack(saved: Tensor) -> Any:
            return (rows[id(saved)], saved.shape) if id(saved) in rows else saved

        def unpack(packed: Any) -> Tensor:
            if isinstance(packed, Tensor):
                return packed
            own_rows, shape = packed
            return _gathered(own_rows, shape, self.group)

        hooks = torch.autograd.graph.saved_tensors_hooks(pack, unpack)
        with hooks if self._gathers_again else contextlib.nullcontext():
            return torch.func.functional_call(self.module, own, args, kwargs)

    def _inner(self) -> dict[str, XlaFullyShardedDataParallel]:
        """The wrappers inside by name, but for those inside of these."""
        found: dict[str, XlaFullyShardedDataParallel] = {}
        for name, module in self.module.named_modules():
            is_deeper = name.startswith(tuple(f"{outer}." for outer in found))
            if name and not is_deeper and isinstance(module, XlaFullyShardedDataParallel):
                found[name] = module
        return found

    def _own_parameters(self, remove_duplicate: bool = True) -> Iterator[tuple[str, nn.Parameter]]:
        """Those that are in no wrapper inside."""
        inner = tuple(f"{prefix}." for prefix in self._inner())
        for name, parameter in self.module.named_parameters(remove_duplicate=remove_duplicate):
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
            "shard_info": {name: list(shape) for name, shape in self._whole_shapes().items()},
        }

    def _whole_shapes(self) -> dict[str, torch.Size]:
        """Of all parameters before they were spread, by their names in `state_dict()`, which knows
        no wrappers."""
        inner = self._inner()
        shapes = {
            name: self._shapes.get(name, parameter.shape)
            for name, parameter in self.module.named_parameters(remove_duplicate=False)
            if not name.startswith(tuple(f"{prefix}." for prefix in inner))
        }
        for prefix, module in inner.items():
            shapes |= {f"{prefix}.{name}": shape for name, shape in module._whole_shapes().items()}
        return shapes

    assert_state = _other_names.Refused(
        "torch_xla.distributed.fsdp.XlaFullyShardedDataParallel.assert_state",
        "the wrapper has no states: autograd knows what was gathered",
        "leave it out",
    )

    @property
    def params_with_grad(self) -> list[nn.Parameter]:
        """The parameters that have a gradient."""
        return [parameter for parameter in self.parameters() if parameter.grad is not None]

    def get_original_names_and_sharded_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """This replica's rows of each parameter, by the names in `state_dict()`."""
        yield from self.module.named_parameters()

    def set_gradient_divide_factors(self, pre: float, post: float, recursive: bool = True) -> None:
        """Divide gradients by `pre` before the replicas sum them, and by `post` after that."""
        if pre <= 0 or post <= 0:
            raise ValueError(f"set_gradient_divide_factors: got {pre} and {post}")
        for module in self.modules() if recursive else [self]:
            if isinstance(module, XlaFullyShardedDataParallel):
                module._divide_by(pre * post)

    def _divide_by(self, divisor: float) -> None:
        self.divisor = divisor
        if self.group.size > 1:
            return
        for handle in self._dividing:
            handle.remove()
        self._dividing = [
            parameter.register_hook(lambda grad: grad / divisor)
            for _, parameter in self._own_parameters()
            if parameter.requires_grad and divisor != 1
        ]

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A context in whose passes gradients are not exchanged: each replica sums up its own, of
        whole parameters, which are in `grad` after the next pass outside of it."""
        wrappers = [m for m in self.modules() if isinstance(m, XlaFullyShardedDataParallel)]
        before = [wrapper.exchanges_gradients for wrapper in wrappers]
        for wrapper in wrappers:
            wrapper.exchanges_gradients = False
        try:
            yield
        finally:
            for wrapper, exchanges in zip(wrappers, before, strict=True):
                wrapper.exchanges_gradients = exchanges

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients, those that `no_sync` held back too."""
        super().zero_grad(set_to_none)
        for module in self.modules():
            if isinstance(module, XlaFullyShardedDataParallel):
                module.held_back.clear()

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
        parameters = [p for p in self.parameters() if p.grad is not None]
        if self.group.size == 1:
            return nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)
        norms = torch.stack([torch.linalg.vector_norm(p.grad, norm_type) for p in parameters])
        total = torch.linalg.vector_norm(norms, norm_type)
        if norm_type == float("inf"):
            total = functional.all_reduce(total, "max", self.group.name)
        else:
            powers = functional.all_reduce(total**norm_type, "sum", self.group.name)
            total = powers ** (1.0 / norm_type)
        scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad.mul_(scale)
        return total


__getattr__ = _other_names.refusing(__name__)

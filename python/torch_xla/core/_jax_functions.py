"""Functions of JAX as parts of recorded programs, for `xla_builder`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_xla import _hlo_types, _other_names

Dims = Sequence[int]


class JaxCallable:
    """A function of JAX as a function of xla tensors in any nesting.

    It is lowered once per types of its tensors and values of its other arguments, and recorded as
    part of the program. It has no gradients: see `assume_pure.j2t_autograd`.
    """

    def __init__(self, jax_func: Callable[..., Any], name: str | None = None) -> None:
        self._function = jax_func
        self.name = name or getattr(jax_func, "__name__", "jax_function")
        self._lowered: dict[Any, tuple[str, list[tuple[torch.dtype, Dims]], Any]] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        key = (spec, *(
            (leaf.dtype, leaf.shape) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves
        ))  # fmt: skip
        found = self._lowered.get(key)
        if found is None:
            found = self._lowered[key] = self._lower(leaves, spec)
        text, types, result_spec = found
        results = torch.ops.xla._call_module(tensors, text, _hlo_types.text_of(types))
        return pytree.tree_unflatten(results, result_spec)

    specialize = _other_names.Refused(
        "torch_xla.core.xla_builder.JaxCallable.specialize",
        "it is lowered by the first call with new types",
        "call it",
    )

    def _lower(self, leaves: list[Any], spec: Any) -> tuple[str, Any, Any]:
        import jax

        result_spec: list[Any] = []

        def function(*arrays: Any) -> list[Any]:
            remaining = iter(arrays)
            mixed = [next(remaining) if isinstance(x, torch.Tensor) else x for x in leaves]
            args, kwargs = pytree.tree_unflatten(mixed, spec)
            results, found = pytree.tree_flatten(self._function(*args, **kwargs))
            result_spec.append(found)
            return results

        examples = [
            jax.ShapeDtypeStruct(tuple(x.shape), _jax_dtype(x.dtype))
            for x in leaves
            if isinstance(x, torch.Tensor)
        ]
        # Every tensor is a parameter, used or not.
        lowered = jax.jit(function, keep_unused=True).lower(*examples)
        types = [(_torch_dtype(info.dtype), info.shape) for info in lowered.out_info]
        return lowered.as_text(), types, result_spec[-1]


def _jax_dtype(dtype: torch.dtype) -> Any:
    import jax.numpy as jnp

    return jnp.dtype("bool" if dtype == torch.bool else str(dtype).removeprefix("torch."))


def _torch_dtype(dtype: Any) -> torch.dtype:
    found = getattr(torch, str(dtype))
    assert isinstance(found, torch.dtype)
    return found


_callables: dict[Any, JaxCallable] = {}


def call_jax(
    jax_func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    name: str | None = None,
    override_hash: Any = None,
) -> Any:
    """Record `jax_func(*args, **kwargs)` on xla tensors; needs the package `jax`.

    Args:
        jax_func: a function on JAX's arrays; numbers and texts among its arguments are constants.
        args: tensors in any nesting, of dtypes that JAX has (64 bits only with `jax_enable_x64`).
        kwargs: likewise.
        name: for messages.
        override_hash: what the function is known by, for one that is made anew for each call.
    """
    key = jax_func if override_hash is None else override_hash
    found = _callables.get(key)
    if found is None:
        found = _callables[key] = JaxCallable(jax_func, name)
    return found(*args, **(kwargs or {}))

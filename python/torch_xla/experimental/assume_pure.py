"""`assume_pure`: functions that are called once per types of their arguments, and not again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from torch_xla import _other_names
from torch_xla._capture import regions
from torch_xla._capture.regions import PureFunction, Tensors
from torch_xla.core import xla_model as xm

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class _Signature:
    """The function for one nesting of arguments, with its numbers and other constants."""

    def __init__(self, function: Callable[..., Any], rest: Any) -> None:
        self.result_rest: Any = None

        def run(*tensors: torch.Tensor) -> Tensors:
            args, kwargs = regions.unflat(tensors, rest)
            results, result_rest = regions.flat(function(*args, **kwargs))
            self.result_rest = result_rest
            return results

        self.pure = PureFunction(run, "assume_pure")


def _found(made: dict[Any, T], rest: Any, make: Callable[[Callable[..., Any], Any], T], fn: F) -> T:
    """What was made of `fn` for this nesting of arguments with these constants, or is made now."""
    others, spec = rest
    key = (tuple(others), spec)
    if key not in made:
        made[key] = make(fn, rest)
    return made[key]


def assume_pure(fn: F, *, add_rng_seed_argument: bool = False) -> F:
    """`fn`, recorded when it meets arguments of new types, and from then on one node in the graph.

    What a call costs then does not depend on what `fn` does. It must be pure: its results follow
    from its arguments, and it does nothing else. Random numbers are new in each call.

    Parameters and other leaves that require gradients and that it takes from elsewhere are read
    anew in each call, and get gradients. All else that it takes from elsewhere is constant, with
    the values that it had when it was recorded; a warning says so if it requires gradients.

    Args:
        fn: takes and returns tensors in any nesting; other arguments are constants, and `fn` is
            recorded anew for each value.
        add_rng_seed_argument: the result takes a keyword `rng_seed`, a number or a tensor with
            one: calls with the same seed get the same random numbers, and the device's generator
            is left as it was. Without the keyword, or with None, they are new. A seed that is an
            xla tensor is read by the host.
    """
    signatures: dict[Any, _Signature] = {}

    @functools.wraps(fn)
    def pure(*args: Any, **kwargs: Any) -> Any:
        tensors, rest = regions.flat((args, kwargs))
        found = _found(signatures, rest, _Signature, fn)
        results = found.pure(tensors)
        return regions.unflat(results, found.result_rest)

    if not add_rng_seed_argument:
        return pure  # type: ignore[return-value]

    @functools.wraps(fn)
    def seeded(*args: Any, rng_seed: int | torch.Tensor | None = None, **kwargs: Any) -> Any:
        if rng_seed is None:
            return pure(*args, **kwargs)
        device = torch.device("xla", regions.device_of(regions.flat((args, kwargs))[0]))
        with xm.fork_rng(device):
            xm.set_rng_state(int(rng_seed), device)
            return pure(*args, **kwargs)

    return seeded  # type: ignore[return-value]


def assume_pure_torch(func: F, use_cache: bool = False) -> F:
    """`assume_pure`, under the name that it had for functions that do not go through JAX."""
    del use_cache  # functions are always recorded once per types of their arguments
    return assume_pure(func)


class PureModule(torch.nn.Module):
    """A module whose forward pass is pure: its parameters and buffers are arguments of a pure
    function, and it writes to none of them."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self._module = module

        def forward(
            tensors: dict[str, torch.Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]
        ) -> Any:
            return torch.func.functional_call(module, tensors, args, kwargs)

        self._forward = assume_pure(forward)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        tensors = dict(self._module.named_parameters()) | dict(self._module.named_buffers())
        return self._forward(tensors, args, kwargs)


def j2t_autograd(fn: Callable[..., Any], call_jax: Callable[..., Any] | None = None) -> Any:
    """`fn`, a function of JAX, as a function of xla tensors with gradients; needs the package
    `jax`.

    Args:
        fn: takes and returns arrays of floating types in any nesting; numbers and texts among its
            arguments are constants.
        call_jax: what calls functions of JAX; by default `xla_builder.call_jax`.
    """
    from torch_xla.core import xla_builder

    call = call_jax or xla_builder.call_jax
    functions: dict[Any, _JaxHalves] = {}

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        tensors, rest = regions.flat((args, kwargs))
        halves = _found(functions, rest, _JaxHalves, fn)
        results = _JaxCall.apply(halves, call, *tensors)  # type: ignore[no-untyped-call]
        return regions.unflat(results, halves.result_rest)

    return wrapped


class _JaxHalves:
    """A function of JAX on flat arrays, and its derivative, each as `call_jax` takes them."""

    def __init__(self, fn: Callable[..., Any], rest: Any) -> None:
        import jax
        from torch.utils import _pytree as pytree

        self.result_rest: Any = None
        residual_tree: list[Any] = []

        def flat_function(*arrays: Any) -> list[Any]:
            args, kwargs = regions.unflat(arrays, rest)
            results, spec = pytree.tree_flatten(fn(*args, **kwargs))
            self.result_rest = ([None] * len(results), spec)
            return results

        def forward(*arrays: Any) -> tuple[list[Any], list[Any]]:
            results, derivative = jax.vjp(flat_function, *arrays)
            leaves, tree = jax.tree_util.tree_flatten(derivative)
            residual_tree[:] = [tree]
            return results, leaves

        def backward(leaves: list[Any], grads: list[Any]) -> list[Any]:
            derivative = jax.tree_util.tree_unflatten(residual_tree[0], leaves)
            return list(derivative(grads))

        self.forward, self.backward = forward, backward


class _JaxCall(torch.autograd.Function):
    """One call of a `_JaxHalves`."""

    @staticmethod
    def forward(
        ctx: Any, halves: _JaxHalves, call: Callable[..., Any], *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        results, residuals = call(halves.forward, tensors)
        ctx.save_for_backward(*residuals)
        ctx.halves, ctx.call = halves, call
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        found = ctx.call(ctx.halves.backward, (list(ctx.saved_tensors), list(grads)))
        return (None, None, *found)


__getattr__ = _other_names.refusing(__name__)

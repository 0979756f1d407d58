"""`assume_pure`: functions that are called once per types of their arguments, and not again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from torch_xla import _regions
from torch_xla._regions import PureFunction, Tensors

F = TypeVar("F", bound=Callable[..., Any])


class _Signature:
    """The function for one nesting of arguments, with its numbers and other constants."""

    def __init__(self, function: Callable[..., Any], rest: Any) -> None:
        self.result_rest: Any = None

        def run(*tensors: torch.Tensor) -> Tensors:
            args, kwargs = _regions.unflat(tensors, rest)
            results, result_rest = _regions.flat(function(*args, **kwargs))
            self.result_rest = result_rest
            return results

        self.pure = PureFunction(run, "assume_pure")


def assume_pure(fn: F, *, add_rng_seed_argument: bool = False) -> F:
    """`fn`, recorded when it meets arguments of new types, and from then on one node in the graph.

    What a call costs then does not depend on what `fn` does. It must be pure: its results follow
    from its arguments, and it does nothing else. Tensors that it takes from elsewhere are
    constants, with the values that they had when it was recorded. Random numbers are new in each
    call.

    Args:
        fn: takes and returns tensors in any nesting; other arguments are constants, and `fn` is
            recorded anew for each value.
        add_rng_seed_argument: accepted for compatibility; random operations need no seed here.
    """
    del add_rng_seed_argument
    signatures: dict[Any, _Signature] = {}

    @functools.wraps(fn)
    def pure(*args: Any, **kwargs: Any) -> Any:
        tensors, rest = _regions.flat((args, kwargs))
        others, spec = rest
        key = (tuple(others), spec)
        found = signatures.get(key)
        if found is None:
            found = signatures[key] = _Signature(fn, rest)
        results = found.pure(tensors)
        return _regions.unflat(results, found.result_rest)

    return pure  # type: ignore[return-value]


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

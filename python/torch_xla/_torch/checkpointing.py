"""The barrier in `torch.utils.checkpoint`: what a part of the forward pass computes is not kept for
the backward pass but computed again.

XLA would see that the second computation is the first one's, and keep the first one's results after
all. A barrier that the compiler may not look behind, around what the second starts from, prevents
it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint

from torch_xla import _torch_differences
from torch_xla._wrapping import to_wrap


def _behind_barrier(values: Any) -> Any:
    from torch_xla._capture.optimization_barrier import behind_barrier

    return behind_barrier(values)


def install() -> None:
    """Put the barrier where `torch.utils.checkpoint` computes again."""
    module: Any = torch.utils.checkpoint
    generator = _torch_differences.checkpoint_generator(module)
    make_generator = to_wrap(module, generator, module.checkpoint)
    detach_variable = to_wrap(module, "detach_variable", module.CheckpointFunction.backward)

    @functools.wraps(make_generator)
    def with_barrier(fn: Callable[..., Any], *rest: Any, **kwargs: Any) -> Any:
        # The forward pass calls the user's function itself; this one computes it again.
        @functools.wraps(fn)
        def again(*args: Any, **keywords: Any) -> Any:
            args, keywords = _behind_barrier((args, keywords))
            return fn(*args, **keywords)

        return make_generator(again, *rest, **kwargs)

    @functools.wraps(detach_variable)
    def detached_behind_barrier(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        detached = detach_variable(inputs)
        with torch.no_grad():
            moved = _behind_barrier(detached)
        return tuple(
            m.requires_grad_(d.requires_grad) if isinstance(d, torch.Tensor) and m is not d else m
            for m, d in zip(moved, detached, strict=True)
        )

    setattr(module, generator, with_barrier)
    module.detach_variable = detached_behind_barrier

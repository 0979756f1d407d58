"""What programs pass to `torch.compile` as `backend=dynamo_backend2.dynamo_backend`: it is the
backend "openxla", which needs no JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def dynamo_backend(
    fx: torch.fx.GraphModule, args: Sequence[Any], **options: Any
) -> Callable[..., Any]:
    """Compile a graph of Dynamo's; `args` are its first arguments."""
    from torch._dynamo.backends.registry import lookup_backend

    return lookup_backend("openxla")(fx, list(args), **options)

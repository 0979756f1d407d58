"""Settings for a part of a test, and what programs and settings show."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import torch

import torch_xla


@contextlib.contextmanager
def setting(**values: bool | int | str) -> Iterator[None]:
    before = {name: getattr(torch_xla.settings, name) for name in values}
    for name, value in values.items():
        setattr(torch_xla.settings, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(torch_xla.settings, name, value)


def optimized_hlo(*tensors: torch.Tensor) -> str:
    """XLA's text of the program that computes the tensors, after all of its passes."""
    with setting(dump_post_optimizations=True):
        return torch_xla._XLAC._get_xla_tensors_hlo(list(tensors))


def calls_in(tensors: list[torch.Tensor]) -> set[str]:
    """The kernels of PyTorch and of ours that the program of these would call on the CPU."""
    text = torch_xla._XLAC._graph_of(tensors, "stablehlo")
    operators = set(re.findall(r'"op" = "([^"]+)"', text))
    own = "broadcast|correlate|cum|depthwise|group_norm|layer_norm|rms_norm|roll|scatter|transpose"
    return operators | set(re.findall(rf"torch_xla\.((?:{own})\w*)", text))

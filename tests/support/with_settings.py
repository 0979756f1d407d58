"""Settings for a part of a test, and what they show."""

from __future__ import annotations

import contextlib
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

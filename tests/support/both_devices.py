"""The same program on the CPU and on xla."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

Program = Callable[[str], Iterable[torch.Tensor]]


def check(program: Program) -> None:
    """`program(device)` gives the same tensors on both, which lie alike and were written to as
    often."""
    for want, got in zip(program("cpu"), program("xla"), strict=True):
        assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
        assert (got.storage_offset(), got._version) == (want.storage_offset(), want._version)
        torch.testing.assert_close(got.cpu(), want.detach(), equal_nan=True)

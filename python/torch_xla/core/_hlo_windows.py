"""What XLA does with windows, for `xla_builder`, in tensors' operations: padding, windows at
strides, and its general convolution."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Dims = Sequence[int]
Pair = tuple[int, int]


def pad(tensor: Tensor, value: Tensor, config: Sequence[tuple[int, int, int]]) -> Tensor:
    """`config` has (before, after, between) for each dimension; the first two may be negative."""
    sizes = [
        max(before, 0) + max(after, 0) + size + max(size - 1, 0) * between
        for size, (before, after, between) in zip(tensor.shape, config, strict=True)
    ]
    out = value.expand(sizes).clone()
    index = tuple(
        slice(max(before, 0), max(before, 0) + max(size - 1, 0) * (between + 1) + 1, between + 1)
        for size, (before, _, between) in zip(tensor.shape, config, strict=True)
    )
    out[index] = tensor
    crop = tuple(
        slice(max(-before, 0), size - max(-after, 0))
        for size, (before, after, _) in zip(sizes, config, strict=True)
    )
    return out[crop]


def padding_of(
    padding: Sequence[Pair] | str, sizes: Dims, window: Dims, strides: Dims
) -> Sequence[Pair]:
    """The pairs that a name stands for: "valid" for none, "same" for as many windows as strides fit
    into the sizes."""
    if not isinstance(padding, str):
        return padding
    if padding.lower() == "valid":
        return [(0, 0)] * len(sizes)
    if padding.lower() != "same":
        raise ValueError(f"padding must be valid, same or pairs, got {padding!r}")
    pairs = []
    for size, extent, stride in zip(sizes, window, strides, strict=True):
        total = max((-(-size // stride) - 1) * stride + extent - size, 0)
        pairs.append((total // 2, total - total // 2))
    return pairs


def windows(
    tensor: Tensor, fill: Tensor, sizes: Dims, strides: Dims, padding: Sequence[Pair] | str
) -> Tensor:
    """The windows, in as many dimensions as the tensor has, and their elements in as many more."""
    pairs = padding_of(padding, tensor.shape, sizes, strides)
    result = pad(tensor, fill, [(before, after, 0) for before, after in pairs])
    for i, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        result = result.unfold(i, size, stride)
    return result


def usual_places(rank: int) -> tuple[int, int, int, int, int, int, Dims, Dims, Dims]:
    """Where `conv` has the dimensions: of the input batch and features, of the kernel input and
    output features, of the output batch and features, and the spatial ones of the three."""
    spatial = range(2, rank)
    return 0, 1, 1, 0, 0, 1, spatial, spatial, spatial


def inverse(permutation: Dims) -> list[int]:
    """The order that undoes one."""
    return sorted(range(len(permutation)), key=lambda i: permutation[i])


def convolution(
    tensor: Tensor,
    kernel: Tensor,
    strides: Dims,
    padding: Sequence[Pair] | str,
    lhs_dilation: Dims | None,
    rhs_dilation: Dims | None,
    groups: int,
) -> Tensor:
    """Of (batch, features, spatial...) with (output features, input features, spatial...)."""
    count = tensor.dim() - 2
    between = [d - 1 for d in (lhs_dilation or [1] * count)]
    dilation = list(rhs_dilation or [1] * count)
    sizes = [s + max(s - 1, 0) * gap for s, gap in zip(tensor.shape[2:], between, strict=True)]
    extents = [(k - 1) * d + 1 for k, d in zip(kernel.shape[2:], dilation, strict=True)]
    pairs = padding_of(padding, sizes, extents, strides)
    zero = torch.zeros((), dtype=tensor.dtype, device=tensor.device)
    config = [(0, 0, 0), (0, 0, 0)]
    config += [(a, b, gap) for (a, b), gap in zip(pairs, between, strict=True)]
    return torch.convolution(
        pad(tensor, zero, config), kernel, None, list(strides), [0] * count, dilation, False,
        [0] * count, groups,
    )  # fmt: skip

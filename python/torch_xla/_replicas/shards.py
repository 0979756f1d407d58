"""Tensors of which each member of a group has its rows: the first dimension, with rows of zeros at
the end so that all have as many."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_xla._replicas.meetings import Group


def padded(tensor: Tensor, size: int) -> Tensor:
    """The tensor, of one dimension at least, with rows of zeros so that `size` divides it."""
    rows = tensor.reshape(1) if tensor.dim() == 0 else tensor
    missing = -rows.size(0) % size
    return rows if missing == 0 else torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])])


def own_rows(tensor: Tensor, group: Group) -> Tensor:
    """This member's part of the whole tensor."""
    return padded(tensor, group.size).chunk(group.size)[group.rank]


def whole(rows: Tensor, shape: Sequence[int]) -> Tensor:
    """A tensor of that shape out of all members' rows, one behind the other."""
    count = shape[0] if len(shape) else 1
    return rows[:count].reshape(tuple(shape))

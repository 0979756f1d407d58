"""XLA's general gather, scatter and sort, for `xla_builder`, in tensors' operations.

In their specifications' words: a gather takes a window of `slice_sizes` out of the operand at each
index vector; a scatter combines a window of updates with the operand there; a sort orders by a
function of two elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from torch_xla import _XLAC
from torch_xla._capture.loops import fori_loop

Dims = Sequence[int]
Combine = Callable[[Tensor, Tensor], Tensor]
# Whether the first operands come before the second ones: of (a0, b0, a1, b1, ...).
Compare = Callable[..., Tensor]


def _index_vectors(indices: Tensor, index_vector_dim: int) -> Tensor:
    """With the vectors along the last dimension."""
    if index_vector_dim == indices.dim():
        return indices.unsqueeze(-1)
    return indices.movedim(index_vector_dim, -1)


def _starts(vectors: Tensor, index_map: Dims, rank: int) -> list[Tensor]:
    """Where the windows begin, for each dimension of the operand."""
    if vectors.shape[-1] != len(index_map):
        raise ValueError(
            f"expected index vectors of {len(index_map)} numbers, one per dimension in "
            f"{tuple(index_map)}, got {vectors.shape[-1]}"
        )
    zero = torch.zeros(vectors.shape[:-1], dtype=torch.int64, device=vectors.device)
    starts = [zero] * rank
    for position, dimension in enumerate(index_map):
        starts[dimension] = vectors[..., position].to(torch.int64)
    return starts


def _window_positions(starts: Sequence[Tensor], sizes: Dims) -> list[Tensor]:
    """For each dimension of the operand the index of each element of each window; they broadcast to
    (windows..., sizes...)."""
    rank = len(sizes)
    found = []
    for dimension, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        within = [1] * rank
        within[dimension] = size
        offsets = torch.arange(size, device=start.device).reshape(within)
        found.append(start.reshape(*start.shape, *[1] * rank) + offsets)
    return found


def gather(
    operand: Tensor,
    indices: Tensor,
    slice_sizes: Dims,
    offset_dims: Dims,
    collapsed_slice_dims: Dims,
    start_index_map: Dims,
    index_vector_dim: int,
) -> Tensor:
    """Windows that would leave the operand are moved inside."""
    if len(slice_sizes) != operand.dim():
        raise ValueError(
            f"gather: expected a slice size for each of {operand.dim()} dimensions, got "
            f"{tuple(slice_sizes)}"
        )
    vectors = _index_vectors(indices, index_vector_dim)
    starts = [
        start.clamp(0, operand.shape[d] - slice_sizes[d])
        for d, start in enumerate(_starts(vectors, start_index_map, operand.dim()))
    ]
    windows = operand[tuple(_window_positions(starts, slice_sizes))]
    batch_rank = vectors.dim() - 1
    kept = [d for d in range(operand.dim()) if d not in set(collapsed_slice_dims)]
    windows = windows.reshape(*windows.shape[:batch_rank], *(slice_sizes[d] for d in kept))
    order = list(range(batch_rank))
    for position, place in enumerate(offset_dims):
        order.insert(place, batch_rank + position)
    return windows.permute(order)


def scatter(
    operand: Tensor,
    indices: Tensor,
    updates: Tensor,
    combine: Combine,
    update_window_dims: Dims,
    inserted_window_dims: Dims,
    scatter_dims_to_operand_dims: Dims,
    index_vector_dim: int,
) -> Tensor:
    """Windows that would leave the operand are left out."""
    rank = operand.dim()
    vectors = _index_vectors(indices, index_vector_dim)
    batch_dims = [d for d in range(updates.dim()) if d not in set(update_window_dims)]
    kept = [d for d in range(rank) if d not in set(inserted_window_dims)]
    if len(kept) != len(update_window_dims) or len(batch_dims) != vectors.dim() - 1:
        raise ValueError(
            f"scatter: the windows {tuple(update_window_dims)} of updates of {updates.dim()} "
            f"dimensions do not fit an operand of {rank} and indices {tuple(indices.shape)}"
        )
    sizes = [1] * rank
    for d, u in zip(kept, update_window_dims, strict=True):
        sizes[d] = updates.shape[u]
    windows = updates.permute(*batch_dims, *update_window_dims)
    starts = _starts(vectors, scatter_dims_to_operand_dims, rank)
    is_inside = torch.ones(vectors.shape[:-1], dtype=torch.bool, device=operand.device)
    for d, start in enumerate(starts):
        is_inside = is_inside & (start >= 0) & (start <= operand.shape[d] - sizes[d])
    shape = [*vectors.shape[:-1], *sizes]
    place = torch.zeros((), dtype=torch.int64, device=operand.device).expand(shape)
    for d, position in enumerate(_window_positions(starts, sizes)):
        place = place * operand.shape[d] + position
    # What is outside goes behind the end, and is cut off.
    outside = operand.numel()
    place = torch.where(is_inside.reshape(*is_inside.shape, *[1] * rank), place, outside)
    rows = (math.prod(vectors.shape[:-1]), math.prod(sizes))
    flat = torch.cat([operand.reshape(-1), operand.new_zeros(1)])
    result = _combined(flat, place.reshape(rows), windows.reshape(rows).to(operand.dtype), combine)
    return result[:-1].reshape(operand.shape)


def _combined(flat: Tensor, places: Tensor, values: Tensor, combine: Combine) -> Tensor:
    """`flat` with rows of values at rows of places, combined with what is there."""
    kind = _kind_of(combine, flat)
    if kind == "replace":
        return flat.scatter(0, places.reshape(-1), values.reshape(-1))
    if kind is not None:
        return flat.scatter_reduce(0, places.reshape(-1), values.reshape(-1), kind)

    # One after the other: only then may two be of one place.
    def turn(i: Tensor, result: Tensor) -> Tensor:
        row = i.reshape(1).to(torch.int64)
        place = places.index_select(0, row).reshape(-1)
        value = values.index_select(0, row).reshape(-1)
        return result.scatter(0, place, combine(result.gather(0, place), value))

    result: Tensor = fori_loop(0, places.shape[0], turn, flat) if len(places) else flat
    return result


def _kind_of(combine: Combine, like: Tensor) -> str | None:
    """The name of the combination for `scatter_reduce`, if it has one: functions are equal that
    record equal graphs."""
    a, b = (torch.ones(1, dtype=like.dtype, device="cpu").to(like.device) for _ in range(2))
    result = combine(a, b)
    if result is b:
        return "replace"
    try:
        key = _XLAC._graph_key_of([result])
    except RuntimeError:  # it uses an argument of a function that is being captured
        return None
    known: dict[str, Combine] = {
        "sum": torch.add, "prod": torch.mul, "amax": torch.maximum, "amin": torch.minimum,
    }  # fmt: skip
    for name, function in known.items():
        if key == _XLAC._graph_key_of([function(a, b)]):
            return name
    return None


def sort(operands: Sequence[Tensor], comparator: Compare, dimension: int) -> list[Tensor]:
    """All operands in the order that the comparator gives; equal elements keep theirs."""
    size = operands[0].shape[dimension]
    padded = 1 << max(size - 1, 0).bit_length()
    # The last of the values is the place, which orders equals, and puts what fills up to a power of
    # two at the end.
    values = [_filled(t.movedim(dimension, -1), padded) for t in operands]
    values.append(torch.arange(padded, device=values[0].device).expand(values[0].shape))
    # Batcher's bitonic network: every turn compares all pairs at one distance.
    block = 2
    while block <= padded:
        distance = block // 2
        while distance >= 1:
            values = _exchanged(values, comparator, size, block, distance)
            distance //= 2
        block *= 2
    return [v[..., :size].movedim(-1, dimension) for v in values[:-1]]


def _filled(t: Tensor, size: int) -> Tensor:
    rest = size - t.shape[-1]
    return torch.cat([t, t[..., :1].expand(*t.shape[:-1], rest)], dim=-1) if rest else t


def _exchanged(
    values: Sequence[Tensor], comparator: Compare, size: int, block: int, distance: int
) -> list[Tensor]:
    """Pairs that are `distance` apart in order: rising and falling in turns of `block`."""
    sizes = values[0].shape
    pairs = [v.reshape(*sizes[:-1], -1, 2, distance) for v in values]
    low, high = ([p[..., i, :] for p in pairs] for i in (0, 1))
    given = [t for pair in zip(low[:-1], high[:-1], strict=True) for t in pair]
    swapped = [t for pair in zip(high[:-1], low[:-1], strict=True) for t in pair]
    a, b = low[-1], high[-1]
    by_value = comparator(*given) | (~comparator(*swapped) & (a < b))
    is_first = torch.where((a < size) & (b < size), by_value, a < b)
    first = torch.arange(0, sizes[-1], device=a.device).reshape(-1, 2, distance)[:, 0]
    rises = (first & block) == 0
    keeps = is_first == rises
    return [
        torch.stack([torch.where(keeps, x, y), torch.where(keeps, y, x)], dim=-2).reshape(sizes)
        for x, y in zip(low, high, strict=True)
    ]


def leading_zeros(x: Tensor) -> Tensor:
    """How many bits before the first that is set, of each integer."""
    width = 8 * x.itemsize
    bits = x.view(torch.int64) if width == 64 else x.to(torch.int64) & ((1 << width) - 1)
    used = torch.zeros_like(bits)
    for i in range(width - 1):
        used = used + ((bits >> i) > 0)
    is_top_set = (bits >> (width - 1)) & 1
    return torch.where(is_top_set == 1, 0, width - used).to(x.dtype)

"""Drawings of which device has which part of a tensor, for terminals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch

from torch_xla import _XLAC, _other_names, runtime
from torch_xla._spmd.mode import runtime_device_count
from torch_xla._spmd.sharding import check_is_tensor, sharding_text, whole

_TILED = re.compile(r"\{devices=\[([\d,]+)\]([\d,]+)( last_tile_dim_replicate)?\}")
_ONE = re.compile(r"\{maximal device=(\d+)\}")
# Backgrounds of a terminal, from one tile to the next.
_COLORS = (41, 42, 44, 43, 45, 46)


def visualize_tensor_sharding(t: torch.Tensor, **kwargs: Any) -> str:
    """Print and return a drawing of how a tensor lies on its mesh; `kwargs` are those of
    `visualize_sharding`. One of which nothing was said is whole on every device.

    Raises:
        TypeError: it is no tensor.
        ValueError: it is not on an xla device, or has more than two dimensions.
    """
    check_is_tensor("visualize_tensor_sharding", t)
    if not _XLAC._is_xla_tensor(whole(t)):
        raise ValueError(
            "visualize_tensor_sharding: expected an xla tensor, got one of shape "
            f"{tuple(t.shape)} on {t.device}"
        )
    return visualize_sharding(sharding_text(t) or "{replicated}", **kwargs)


def visualize_sharding(
    sharding: str,
    use_color: bool = True,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
) -> str:
    """Print and return a drawing of a sharding of one or two dimensions.

    Args:
        sharding: as XLA prints it, and `_XLAC._get_xla_sharding_spec` returns it.
        use_color: give neighbouring tiles different backgrounds.
        scale: a factor for the sizes.
        min_width: the least characters for a tile, and
        max_width: the most for the drawing.

    Raises:
        TypeError: it is no text.
        ValueError: it has more dimensions, or is no sharding.
    """
    if not isinstance(sharding, str):
        raise TypeError(
            f"visualize_sharding: sharding must be a text as XLA prints it, got {sharding!r}"
        )
    text = _draw(_tiles(sharding), use_color, scale, min_width, max_width)
    print(text)
    return text


def _tiles(sharding: str) -> list[list[list[int]]]:
    """The devices of each tile, by rows."""
    if sharding in ("{replicated}", "{manual}"):
        return [[list(range(runtime_device_count()))]]
    if found := _ONE.fullmatch(sharding):
        return [[[int(found[1])]]]
    found = _TILED.fullmatch(sharding)
    if found is None:
        raise ValueError(f"visualize_sharding: {sharding!r} is no sharding")
    sizes = [int(size) for size in found[1].split(",")]
    devices = [int(number) for number in found[2].split(",")]
    copies = sizes.pop() if found[3] else 1
    while len(sizes) > 2 and sizes[-1] == 1:
        sizes.pop()
    if not 1 <= len(sizes) <= 2:
        raise ValueError(f"visualize_sharding: only 1 or 2 dimensions can be drawn: {sharding}")
    rows, columns = sizes if len(sizes) == 2 else (1, sizes[0])
    if rows * columns * copies != len(devices):
        raise ValueError(f"visualize_sharding: the tiles of {sharding} do not fit its devices")
    tiles = [devices[i : i + copies] for i in range(0, len(devices), copies)]
    return [tiles[i : i + columns] for i in range(0, len(tiles), columns)]


def _draw(
    tiles: Sequence[Sequence[Sequence[int]]],
    use_color: bool,
    scale: float,
    min_width: int,
    max_width: int,
) -> str:
    kind = runtime.device_type()
    labels = [[f"{kind} {','.join(map(str, tile))}" for tile in row] for row in tiles]
    columns = len(labels[0])
    wanted = max(int(min_width * scale), *(len(label) + 2 for row in labels for label in row))
    width = max(min(wanted, (max_width - 1) // columns - 1), 1)
    border = "+" + ("-" * width + "+") * columns
    height = max(int(3 * scale), 1)
    lines = [border]
    for r, row in enumerate(labels):
        for line in range(height):
            cells = [
                _cell(label if line == height // 2 else "", width, use_color, r + c)
                for c, label in enumerate(row)
            ]
            lines.append("|" + "|".join(cells) + "|")
        lines.append(border)
    return "\n".join(lines)


def _cell(label: str, width: int, use_color: bool, number: int) -> str:
    text = label[:width].center(width)
    return f"\x1b[{_COLORS[number % len(_COLORS)]}m{text}\x1b[0m" if use_color else text


__getattr__ = _other_names.refusing(__name__)

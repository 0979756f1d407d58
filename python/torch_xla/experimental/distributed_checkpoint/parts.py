"""The parts of tensors between their devices and a checkpoint's files."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import torch

from torch_xla import _XLAC


@dataclasses.dataclass
class Part:
    """A box of a tensor.

    Args:
        starts: where it begins, by dimension.
        sizes: its sizes.
        places: the places, in the order of the mesh's devices, of those that hold it. Empty: the
            tensor is moved as one.
        num_missing: how many pieces of it are still to be read.
    """

    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    places: list[int]
    num_missing: int = 0

    def read(self, t: torch.Tensor) -> torch.Tensor:
        """Its values, on the CPU."""
        return _XLAC._local_shard(t, self.places[0]) if self.places else t.cpu()


def parts_of(t: torch.Tensor) -> list[Part]:
    """The parts of an xla tensor, each once: those that its devices hold. What shares its memory
    with others of other shapes is one part."""
    if _XLAC._is_view(t) or t.is_conj() or t.is_neg():
        return [Part((0,) * t.dim(), tuple(t.shape), [])]
    parts: dict[tuple[int, ...], Part] = {}
    for place, (starts, sizes) in enumerate(_XLAC._shard_slices(t)):
        part = parts.setdefault(tuple(starts), Part(tuple(starts), tuple(sizes), []))
        part.places.append(place)
    return list(parts.values())


class Target:
    """An xla tensor that is given another value by its parts, and has it when the last one is
    there.

    Args:
        t: the tensor.
    """

    def __init__(self, t: torch.Tensor) -> None:
        self.t = t
        self.parts = {part.starts: part for part in parts_of(t)}
        self._num_unfinished = len(self.parts)
        self._load: _XLAC._ShardLoad | None = None

    def num_bytes(self, part: Part) -> int:
        return math.prod(part.sizes) * self.t.element_size()

    def put(self, part: Part, data: torch.Tensor) -> None:
        """Give a part its values, as far as they are there."""
        if not part.places:
            with torch.no_grad():
                self.t.copy_(data)
            return
        if self._load is None:
            self._load = _XLAC._ShardLoad(self.t)
        for place in part.places:
            self._load.put(place, data)

    def get(self, part: Part) -> torch.Tensor:
        """What `put` gave, on the CPU."""
        if self._load is None:
            return self.t.detach().cpu()
        return self._load.get(part.places[0])

    def finish_part(self) -> None:
        self._num_unfinished -= 1
        if self._num_unfinished == 0 and self._load is not None:
            self._load.finish()
            self._load = None


class PartsInHostMemory:
    """The parts that are being read, together no larger than the largest one of all: a part that is
    begun and has to make room goes to its devices as it is, and comes back when more of it is read.

    Args:
        targets: whose parts may come.
    """

    def __init__(self, targets: Iterable[Target]) -> None:
        sizes = [target.num_bytes(part) for target in targets for part in target.parts.values()]
        self.most_bytes = max(sizes, default=0)
        self.num_bytes = 0
        # In the order of their last use. By id, as parts of different tensors may be equal.
        self._held: dict[int, tuple[Target, Part, torch.Tensor]] = {}
        self._begun: set[int] = set()

    def get(self, target: Target, part: Part) -> torch.Tensor:
        """A part's values, to be written to; they hold until the next call."""
        held = self._held.pop(id(part), None)
        if held is None:
            size = target.num_bytes(part)
            while self._held and self.num_bytes + size > self.most_bytes:
                self._send_away()
            if id(part) in self._begun:
                data = target.get(part)
            else:
                data = torch.empty(part.sizes, dtype=target.t.dtype)
            self._begun.add(id(part))
            self.num_bytes += size
            held = (target, part, data)
        self._held[id(part)] = held
        return held[2]

    def _send_away(self) -> None:
        oldest = next(iter(self._held))
        target, part, data = self._held.pop(oldest)
        self.num_bytes -= target.num_bytes(part)
        target.put(part, data)

    def finish(self, target: Target, part: Part) -> None:
        """Send a part that is complete to its devices."""
        _, _, data = self._held.pop(id(part))
        self.num_bytes -= target.num_bytes(part)
        target.put(part, data)
        target.finish_part()

"""What programs ask about TPUs. Nothing here loads a plugin."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch_xla import _other_names
from torch_xla._settings import settings
from torch_xla._tpu_chips import (
    VERSIONS,
    chips,
    configure_one_chip_topology as configure_one_chip_topology,
    configure_topology as configure_topology,
)


def num_available_chips() -> int:
    """How many TPU chips this host has."""
    return len(chips())


class MeshShape(NamedTuple):
    """How many chips lie along each side of a host, as in `TPU_PROCESS_BOUNDS`."""

    x: int
    y: int
    z: int

    @classmethod
    def from_string(cls, mesh: str) -> MeshShape:
        """That of a text, as "2,2,1".

        Raises:
            ValueError: it has not three numbers.
        """
        sides = mesh.split(",")
        if len(sides) != 3:
            raise ValueError(f"MeshShape: expected three numbers with commas, got {mesh!r}")
        return cls(*map(int, sides))

    @property
    def size(self) -> int:
        """How many chips it has."""
        return math.prod(self)


def num_logical_cores_per_chip() -> int:
    """How many devices a chip of this host is: two up to version 3."""
    return 2 if version() <= 3 else 1


def num_available_devices() -> int:
    """How many TPU devices this host has: `TPU_NUM_DEVICES`, else two for each chip up to version
    3 and one for each later one."""
    if settings.tpu_num_devices:
        return int(settings.tpu_num_devices)
    return sum(2 if VERSIONS[number] <= 3 else 1 for number in chips())


def version() -> int:
    """The version of this host's TPU.

    Raises:
        RuntimeError: it has none.
    """
    found = chips()
    if not found:
        raise RuntimeError("this host has no TPU")
    return VERSIONS[found[0]]


__getattr__ = _other_names.refusing(__name__)

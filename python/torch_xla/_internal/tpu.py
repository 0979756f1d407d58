"""What programs ask about TPUs. Nothing here loads a plugin."""

from __future__ import annotations

import glob
import math
import os
from typing import NamedTuple

from torch_xla import _other_names
from torch_xla._settings import settings

# The vendor and device numbers under which the system lists TPU chips on the PCI bus, by version.
_VENDOR = "0x1ae0"
_VERSIONS = {"0x0027": 3, "0x005e": 4, "0x0063": 5, "0x0062": 5, "0x006f": 6}


def _chips() -> list[str]:
    """The device numbers of the TPU chips of this host."""
    numbers = []
    for vendor in glob.glob("/sys/bus/pci/devices/*/vendor"):
        with open(vendor) as file:
            if file.read().strip() != _VENDOR:
                continue
        with open(os.path.join(os.path.dirname(vendor), "device")) as file:
            number = file.read().strip()
        if number in _VERSIONS:
            numbers.append(number)
    return numbers


def num_available_chips() -> int:
    """How many TPU chips this host has."""
    return len(_chips())


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
    chips = _chips()
    return sum(2 if _VERSIONS[number] <= 3 else 1 for number in chips)


def version() -> int:
    """The version of this host's TPU.

    Raises:
        RuntimeError: it has none.
    """
    chips = _chips()
    if not chips:
        raise RuntimeError("this host has no TPU")
    return _VERSIONS[chips[0]]


__getattr__ = _other_names.refusing(__name__)

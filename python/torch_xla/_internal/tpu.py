"""What programs ask about TPUs. Nothing here loads a plugin."""

from __future__ import annotations

import glob
import os

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

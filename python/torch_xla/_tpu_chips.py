"""The TPU chips of this host, and what libtpu is told when each process of a job drives one."""

from __future__ import annotations

import glob
import os

# The vendor and device numbers under which the system lists TPU chips on the PCI bus, by version.
_VENDOR = "0x1ae0"
VERSIONS = {"0x0027": 3, "0x005e": 4, "0x0063": 5, "0x0062": 5, "0x006f": 6}

# How many of a host's chips lie along each side, by their number.
_BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1", 8: "2,4,1"}


def chips() -> list[str]:
    """The device numbers of the TPU chips of this host."""
    numbers = []
    for vendor in glob.glob("/sys/bus/pci/devices/*/vendor"):
        with open(vendor) as file:
            if file.read().strip() != _VENDOR:
                continue
        with open(os.path.join(os.path.dirname(vendor), "device")) as file:
            number = file.read().strip()
        if number in VERSIONS:
            numbers.append(number)
    return numbers


def configure_one_chip_topology() -> None:
    """Says to libtpu by environment variables that this process drives one chip and knows of no
    other; `TPU_VISIBLE_CHIPS` may say which. Before the device is first used; a variable that is
    set stays as it is."""
    os.environ.setdefault("TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1")
    os.environ.setdefault("TPU_PROCESS_BOUNDS", "1,1,1")
    os.environ.setdefault("TPU_VISIBLE_CHIPS", "0")


def configure_topology(local_rank: int, local_world_size: int, base_port: int = 8476) -> None:
    """Says to libtpu by environment variables that this process, the one of number `local_rank`,
    drives one chip of a host whose chips are driven by `local_world_size` processes in all, which
    find each other at the ports from `base_port` on. Before the device is first used. Whoever sets
    `TPU_PROCESS_BOUNDS` says all of it instead. `torch_xla.launch` and torchrun on one host need no
    call.

    Raises:
        ValueError: the host has fewer chips, or so many make no grid.
    """
    if "TPU_PROCESS_BOUNDS" in os.environ:
        return
    count = len(chips())
    if local_world_size not in _BOUNDS or 0 < count < local_world_size:
        raise ValueError(
            f"{local_world_size} processes can't drive a chip each of this host, which has "
            f"{count or 'none that it lists'}; start {', '.join(map(str, _BOUNDS))}, or set "
            "TPU_PROCESS_BOUNDS and what libtpu reads beside it"
        )
    ports = range(base_port, base_port + local_world_size)
    os.environ.update(
        TPU_CHIPS_PER_PROCESS_BOUNDS="1,1,1",
        TPU_PROCESS_BOUNDS=_BOUNDS[local_world_size],
        TPU_PROCESS_ADDRESSES=",".join(f"localhost:{port}" for port in ports),
        TPU_PROCESS_PORT=str(ports[local_rank]),
        TPU_VISIBLE_CHIPS=str(local_rank),
        CLOUD_TPU_TASK_ID=str(local_rank),
    )

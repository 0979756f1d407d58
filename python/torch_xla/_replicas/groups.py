"""Which replicas meet: groups as lists of their numbers, each of which is in one of them."""

from __future__ import annotations

from collections.abc import Sequence

from torch_xla import _XLAC, _devices
from torch_xla._devices import DeviceLike
from torch_xla._replicas import world

Groups = Sequence[Sequence[int]] | None


def check_groups(what: str, groups: Groups) -> None:
    members = [ordinal for group in groups or [[0]] for ordinal in group]
    if members != [0]:
        raise ValueError(
            f"{what}: the groups must hold each replica once; there is one, 0, got {groups}"
        )


def check_shares(what: str, count: int) -> None:
    if count != world.world_size():
        raise ValueError(
            f"{what}: expected as many parts as replicas, {world.world_size()}, got {count}"
        )


def create_optimized_replica_groups() -> list[list[int]] | None:
    """Groups of replicas that are close to each other on the machine, as `groups=` of the
    collectives takes them. None, which is all in one group: there is one replica."""
    return None


def set_replication(device: DeviceLike, devices: Sequence[DeviceLike]) -> None:
    """Say with which devices this thread's device makes a group of replicas.

    Raises:
        NotImplementedError: there are several.
    """
    others = {_devices.index_of(d) for d in devices} - {_devices.index_of(device)}
    if others:
        raise NotImplementedError(
            "set_replication: replicas on several devices are not supported yet, got "
            f"{', '.join(str(d) for d in devices)}"
        )


def xla_replication_devices(local_devices: Sequence[DeviceLike] | None = None) -> list[str]:
    """The hardware names of the devices that make a group of replicas."""
    chosen = [0] if local_devices is None else [_devices.index_of(d) for d in local_devices]
    return [_XLAC._device_name(index) for index in chosen]

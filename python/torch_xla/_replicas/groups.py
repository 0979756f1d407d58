"""Which replicas meet: groups as lists of their numbers, each of which is in one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch_xla import _XLAC, _devices
from torch_xla._devices import DeviceLike
from torch_xla._replicas import world
from torch_xla._replicas.meetings import Group, group_of, whole_group

Groups = Sequence[Sequence[int]] | None


def own_group(what: str, groups: Groups) -> Group:
    """The group that this replica is in.

    Raises:
        ValueError: the groups do not hold each replica once.
    """
    if not groups:
        return whole_group()
    members = sorted(ordinal for group in groups for ordinal in group)
    if members != list(range(world.world_size())):
        raise ValueError(
            f"{what}: the groups must hold each replica once; {spoken_replicas()}, got {groups}"
        )
    (own,) = (group for group in groups if world.global_ordinal() in group)
    return group_of(own)


def spoken_replicas() -> str:
    """In words, which there are."""
    size = world.world_size()
    return "there is one, 0" if size == 1 else f"there are {size}, 0 to {size - 1}"


def check_members(what: str, ordinals: Iterable[int]) -> None:
    """Raises a ValueError unless there are replicas of all these numbers."""
    if set(ordinals) - set(range(world.world_size())):
        raise ValueError(f"{what} must be replicas; {spoken_replicas()}, got {list(ordinals)}")


def check_shares(what: str, count: int, group: Group) -> None:
    if count != group.size:
        raise ValueError(f"{what}: expected as many parts as replicas, {group.size}, got {count}")


def create_optimized_replica_groups() -> list[list[int]] | None:
    """Groups of replicas that are close to each other on the machine, as `groups=` of the
    collectives takes them. None, which is all in one group."""
    return None


def set_replication(device: DeviceLike, devices: Sequence[DeviceLike]) -> None:
    """Say with which devices this thread's device makes a group of replicas. There is nothing to
    do: replicas are who was launched, or the loops of a `DataParallel`.

    Raises:
        NotImplementedError: there are others, with which this device makes no replicas.
    """
    own, named = _devices.index_of(device), [_devices.index_of(d) for d in devices]
    if set(named) - {own} and (own not in named or set(named) != set(world.devices_of_threads())):
        raise NotImplementedError(
            "set_replication: this process drives one device, and was asked for "
            f"{', '.join(str(d) for d in devices)}; start a process for each, by torchrun, "
            "torch_xla.launch or accelerate launch, or a thread by "
            "torch_xla.distributed.data_parallel.DataParallel"
        )


def xla_replication_devices(local_devices: Sequence[DeviceLike] | None = None) -> list[str]:
    """The hardware names of the devices that make a group of replicas."""
    chosen = [0] if local_devices is None else [_devices.index_of(d) for d in local_devices]
    return [_XLAC._device_name(index) for index in chosen]

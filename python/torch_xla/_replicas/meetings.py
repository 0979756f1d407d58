"""Where replicas meet: the job's store, and for every group of them a process group of c10d whose
members exchange CPU tensors in the middle of programs."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import torch

from torch_xla import _XLAC
from torch_xla._replicas import lives, network, senders, world
from torch_xla._replicas.waiting import absent, timeout, told, wait_for
from torch_xla._spmd.mode import is_spmd

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import GroupName


@dataclasses.dataclass(frozen=True)
class Group:
    """Replicas that exchange with each other.

    Attributes:
        members: their numbers, in order.
        name: what collectives take as `group_name`.
        alias: what programs call it.
    """

    members: tuple[int, ...]
    name: str
    alias: str

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def rank(self) -> int:
        """This replica's place among the members."""
        return self.members.index(world.global_ordinal())


class _Meetings:
    """Of one replica of this process. Members wait for each other under the lock."""

    def __init__(self, device: int) -> None:
        self.lock = threading.RLock()
        self.device = device
        self.groups: dict[tuple[int, ...], Group] = {}
        self.rounds: dict[str, int] = {}  # by the tag of meetings
        # By name: c10d keeps references that do not count, and forgets all of them when the
        # program destroys its own.
        self.process_groups: dict[str, Any] = {}


_lock = threading.Lock()
_stores: dict[bool, Any] = {}  # under _lock, by whether replicas are threads
_meetings: dict[tuple[int, int] | None, _Meetings] = {}  # under _lock


def _key() -> tuple[int, int] | None:
    place = world.place_among_threads()
    return None if place is None else (_XLAC._current_device(), place)


def _own() -> _Meetings:
    key = _key()
    with _lock:
        if key not in _meetings:
            _meetings[key] = _Meetings(0 if key is None else key[0])
        return _meetings[key]


def store() -> Any:
    """The job's store, which all replicas share."""
    in_threads = world.place_among_threads() is not None
    with _lock:
        if in_threads not in _stores:
            _stores[in_threads] = _store_of_threads() if in_threads else _store_of_processes()
        return _stores[in_threads]


def _store_of_processes() -> Any:
    from torch._C._distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    world.check_place()
    rank, place = world.process_index(), f"{world.get_master_ip()}:{os.environ['MASTER_PORT']}"
    with told(
        f"replica {rank} goes on waiting for the {world.process_count()} of the job to find its "
        f"store, which replica 0 has at {place}"
    ):
        found, _, _ = next(rendezvous("env://", timeout=timeout()))
    if network.is_on_several_hosts():
        network.bound_waits_for_store(timeout().total_seconds())
    shared = PrefixStore("torch_xla", found)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        # torchrun numbers them, and starts others in their places in the same store.
        return PrefixStore(lives.join(shared, world.process_index(), world.process_count()), shared)
    _claim_place(shared)
    return shared


def _claim_place(shared: Any) -> None:
    """Raises if another process is this replica too, or knows of another number of them."""
    rank, size = world.process_index(), world.process_count()
    own = f"process {os.getpid()} on {socket.gethostname()}"
    found = shared.compare_set(f"replica {rank}", "", own).decode()
    if found != own:
        raise RuntimeError(
            f"{own} is replica {rank} of the job, as {found} is: RANK must be another number for "
            "each process"
        )
    known = shared.compare_set("number of replicas", "", str(size)).decode()
    if known != str(size):
        raise RuntimeError(
            f"WORLD_SIZE is {size} for replica {rank}, {own}, and {known} for others of the job; "
            "it must be the same for all"
        )


def _store_of_threads() -> Any:
    from torch._C._distributed_c10d import HashStore

    found = HashStore()
    found.set_timeout(timeout())
    return found


def group_of(members: Sequence[int]) -> Group:
    """The group of these replicas, of which this is one. All of them must ask for it.

    Raises:
        RuntimeError: there are several, and this process is no replica: under SPMD.
    """
    key = tuple(members)
    if len(key) > 1 and is_spmd():
        raise RuntimeError(
            f"collectives between {len(key)} replicas: under SPMD there are none, as all processes "
            "run one program, into which XLA puts the exchanges"
        )
    own = _own()
    with own.lock:
        if key not in own.groups:
            own.groups[key] = _make(own, key)
        return own.groups[key]


def whole_group() -> Group:
    """The group of all replicas."""
    return group_of(range(world.world_size()))


def _make(own: _Meetings, members: tuple[int, ...]) -> Group:
    # Programs of all replicas are alike if they name their groups by the order in which each
    # replica made its own.
    is_whole = len(members) == world.world_size()
    others = sum(len(known) != world.world_size() for known in own.groups)
    group = f"{0 if is_whole else 1 + others}/{len(members)}"
    name = _XLAC._process_group_name(group, own.device)
    partitions = None
    if len(members) > 1:
        # Loops of threads end with what they recorded launched (distributed/data_parallel.py).
        is_first = all(known.size == 1 for known in own.groups.values())
        if is_first and world.place_among_threads() is None:
            atexit.register(_finish_at_exit)
        from torch._C._distributed_c10d import PrefixStore

        _connect(own, name, members, PrefixStore("group", store()))
        if world.place_among_threads() is None:
            partitions = PrefixStore("groups", store())
    _XLAC._add_group(name, group, members, own.device, partitions)
    return Group(members, name, group)


def claim(key: str, holder: str) -> str:
    """Who holds a key of the store of all replicas: this one if it is the first."""
    store_of_all = _own().process_groups[whole_group().name].get_group_store()
    return str(store_of_all.compare_set(key, "", holder).decode())


@contextlib.contextmanager
def turn(what: str) -> Iterator[None]:
    """One replica after the other is in here, in whatever order they come.

    Raises:
        TimeoutError: it was another's turn for too long; it is named.
    """
    if world.world_size() == 1:
        yield
        return
    launch_recorded()
    shared, own = store(), str(world.global_ordinal())
    deadline = time.monotonic() + timeout().total_seconds()
    while (holder := shared.compare_set(f"{what}/turn", "", own).decode()) != own:
        if time.monotonic() > deadline:
            limit = timeout().total_seconds()
            raise TimeoutError(
                f"{what}: after {limit:g} s it is still the turn of replica {holder}"
            )
        time.sleep(0.01)
    try:
        yield
    finally:
        shared.compare_set(f"{what}/turn", own, "")


def for_cpu_tensors(name: str) -> str:
    """The name under which c10d's functional collectives of a group take CPU tensors, as those of
    pickled objects. They are exchanged at the call, apart from what programs exchange in the
    meantime, and also in a group of one, whose programs meet nobody."""
    from torch._C._distributed_c10d import HashStore, PrefixStore

    own_name = f"{name}:cpu"
    own = _own()
    with own.lock:
        if own_name not in own.process_groups:
            (group,) = (group for group in own.groups.values() if group.name == name)
            through = HashStore() if group.size == 1 else store()
            _connect(own, own_name, group.members, PrefixStore("cpu", through))
    register_again(own_name)
    return own_name


def register_again(name: str) -> None:
    """Let c10d know of a process group of ours: it has forgotten it if the program has destroyed
    its own since then."""
    from torch._C._distributed_c10d import _register_process_group, _resolve_process_group

    group_name = cast("GroupName", name)
    try:
        _resolve_process_group(group_name)
    except RuntimeError:
        _register_process_group(group_name, _own().process_groups[name])


def _connect(own: _Meetings, name: str, members: tuple[int, ...], through: Any) -> None:
    from torch._C._distributed_c10d import PrefixStore, _register_process_group
    from torch.distributed import ProcessGroup

    rank = members.index(world.global_ordinal())
    shared = PrefixStore(",".join(map(str, members)), through)
    gloo = _gloo(shared, members)
    process_group = ProcessGroup(shared, rank, len(members))
    process_group._set_default_backend(ProcessGroup.BackendType.GLOO)
    process_group._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, gloo)
    group_name = cast("GroupName", name)
    process_group._set_group_name(group_name)
    _register_process_group(group_name, process_group)
    own.process_groups[name] = process_group


def _gloo(shared: Any, members: tuple[int, ...]) -> Any:
    from torch.distributed import ProcessGroupGloo

    rank = members.index(world.global_ordinal())
    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._timeout = timeout()
    # Several that end exchanges at the same time write their names into one std::string without a
    # lock (ProcessGroupGloo::runLoop of torch 2.13): the process dies, or replicas wait for ever.
    options._threads = 1
    address = network.own_address()
    try:
        options._devices = _gloo_devices(address)
        return ProcessGroupGloo(shared, rank, len(members), options)
    except RuntimeError as error:
        raise RuntimeError(
            f"replica {world.global_ordinal()} can't reach the others of {list(members)} from "
            f"{address or 'the address of its name'}; GLOO_SOCKET_IFNAME may name another network "
            f"interface: {error}"
        ) from error


def _gloo_devices(address: str | None) -> list[Any]:
    """At that address, else those that c10d chooses by itself."""
    from torch.distributed import ProcessGroupGloo

    if address is not None:
        return [ProcessGroupGloo.create_device(hostname=address)]
    interfaces = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")
    if interfaces == [""]:
        return [ProcessGroupGloo.create_default_device()]
    return [ProcessGroupGloo.create_device(interface=name) for name in interfaces]


def leave() -> None:
    """End the part of this replica, in a thread, in its groups: who waits for it there fails."""
    with _lock:
        own = _meetings.pop(_key(), None)
    if own is not None:
        _XLAC._remove_groups_of(own.device)
        own.process_groups.clear()


def begin_again(devices: Sequence[int]) -> None:
    """After replicas in threads have left: they meet anew. What they recorded to exchange fails
    first, if somebody still holds it: it would be exchanged with who meets next."""
    for device in devices:
        with contextlib.suppress(RuntimeError):
            _XLAC._sync(device, True, "the end of a loop that failed")
        _XLAC._remove_groups_of(device)  # the token may have been of the program that failed
    with _lock:
        _stores.pop(True, None)


def finish() -> None:
    """Run what was recorded: others may be waiting for an exchange that is, at the end of this
    replica's program too. What it sent arrives, though it ends first; it warns of what nobody
    received."""
    atexit.unregister(_finish_at_exit)
    if not _XLAC._meets_others():
        return
    try:
        _tell_others("is at its end")
        _XLAC._sync(_XLAC._current_device(), True, "the end of the program")
        _XLAC._wait(_XLAC._current_device())
        senders.finish()
        _tell_others("has ended")
    finally:
        for message in _XLAC._finish_sends():
            warnings.warn(f"{message} was received by nobody", RuntimeWarning, stacklevel=2)


def _tell_others(state: str) -> None:
    """Members of this replica's groups, which wait for its messages or for it to take theirs
    (src/aten/point_to_point.cpp)."""
    for process_group in _own().process_groups.values():
        with contextlib.suppress(RuntimeError):  # the store has ended with its process
            process_group.get_group_store().set(f"{process_group.rank()} {state}", "")


def _finish_at_exit() -> None:
    # After an error the others shall learn of it rather than be helped on.
    if getattr(sys, "last_value", None) is None:
        finish()


def launch_recorded() -> None:
    """Before this replica waits on the host: another may be waiting for an exchange that is
    recorded here."""
    if _XLAC._meets_others():
        _XLAC._sync(_XLAC._current_device(), False, "")


def launch_apart() -> None:
    """Between what all members record and what one does, where members must run one program."""
    if _XLAC._meets_others() and _XLAC._replicas_run_one_program():
        launch_recorded()


def _joined(parts: Sequence[bytes]) -> bytes:
    return b"".join(len(part).to_bytes(8, "little") + part for part in parts)


def _split(joined: bytes) -> list[bytes]:
    parts, start = [], 0
    while start < len(joined):
        end = start + 8 + int.from_bytes(joined[start : start + 8], "little")
        parts.append(joined[start + 8 : end])
        start = end
    return parts


def meet(
    what: str, place: str, payload: bytes, members: Sequence[int], shared: Any, rank: int
) -> list[bytes]:
    """What each of the members gave, in their order, when all have set it at this place of a store.
    The first of them collects it, so that the store is asked in proportion to their number."""
    shared.set(f"{place}/{rank}", payload)
    keys = {member: f"{place}/{member}" for member in members}
    is_first = rank == members[0]
    needed = list(keys.values()) if is_first else [f"{place}/all"]
    try:
        wait_for(what, shared, keys, needed, rank)
        if is_first:
            shared.set(f"{place}/all", _joined([shared.get(key) for key in needed]))
        return _split(shared.get(f"{place}/all"))
    except RuntimeError as error:
        raise TimeoutError(
            f"{what}: after {timeout().total_seconds():g} s {absent(shared, keys)}"
        ) from error


def gather(tag: str, payload: bytes, members: Sequence[int]) -> list[bytes]:
    """Wait until all members are here, by the store alone.

    Returns:
        What each of them gave, in their order.

    Raises:
        TimeoutError: some have not come in time; they are named.
    """
    if len(members) == 1:
        return [payload]
    launch_recorded()
    own = _own()
    with own.lock:
        number = own.rounds[tag] = own.rounds.get(tag, 0) + 1
    shared, rank = store(), world.global_ordinal()
    found = meet(tag, f"{tag}/{number}", payload, members, shared, rank)
    # All are in this round, so nobody reads the last one any more.
    if number > 1:
        shared.delete_key(f"{tag}/{number - 1}/{rank}")
        if rank == members[0]:
            shared.delete_key(f"{tag}/{number - 1}/all")
    return found

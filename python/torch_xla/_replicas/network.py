"""What replicas on several hosts need of the network: an address that the others reach, and an end
of waiting for a host that is cut off."""

from __future__ import annotations

import contextlib
import os
import socket

from torch_xla._replicas import world


def is_on_several_hosts() -> bool:
    """Whether some replicas of the job are elsewhere."""
    return world.local_process_count() < world.process_count()


def _store_place() -> tuple[socket.AddressFamily, tuple[str, int]]:
    place = (world.get_master_ip(), os.environ["MASTER_PORT"])
    family, *_, address = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)[0]
    return family, (str(address[0]), int(address[1]))


def own_address() -> str | None:
    """This host's address on the way to the job's store, if the job has other hosts and
    GLOO_SOCKET_IFNAME does not choose one. Gloo by itself takes the one that the host's name leads
    to, which may be the loopback's."""
    if not is_on_several_hosts() or "GLOO_SOCKET_IFNAME" in os.environ:
        return None
    family, address = _store_place()
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # sends nothing
        return str(probe.getsockname()[0])


def bound_waits_for_store(seconds: float) -> None:
    """Let the connections of this process to the job's store fail when what was sent has not
    arrived for so long. c10d waits for an answer for as long as the system does, a quarter of an
    hour, and has no setting for it."""
    _, (_, port) = _store_place()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            _bound_waits(int(name), port, round(seconds * 1000))


def _bound_waits(descriptor: int, port: int, milliseconds: int) -> None:
    if not os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
        return
    is_blocking = os.get_blocking(descriptor)
    # Another descriptor of the same connection; where sockets have a default timeout, Python makes
    # it one that does not block.
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        os.set_blocking(descriptor, is_blocking)
        is_internet = connection.family in (socket.AF_INET, socket.AF_INET6)
        if is_internet and connection.getpeername()[1] == port:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)

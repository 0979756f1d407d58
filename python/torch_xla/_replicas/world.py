"""Who we are among how many: this process is one replica of a job of one."""

from __future__ import annotations

import os


def world_size() -> int:
    """How many replicas take part in the job."""
    return 1


def global_ordinal() -> int:
    """The number of this replica among all."""
    return 0


def local_ordinal() -> int:
    """The number of this replica on its host."""
    return 0


def process_index() -> int:
    """The number of this process among all of the job."""
    return 0


def process_count() -> int:
    """How many processes the job has."""
    return 1


def local_process_count() -> int:
    """How many processes of the job are on this host."""
    return 1


def host_index() -> int:
    """The number of this host among all of the job."""
    return 0


def is_master_ordinal(local: bool = True) -> bool:
    """Whether this replica is the first of its host, or with `local=False` the first of all."""
    return (local_ordinal() if local else global_ordinal()) == 0


def get_master_ip() -> str:
    """The address of the first process's host."""
    return os.environ.get("MASTER_ADDR", "localhost")

"""Run by test_hosts.py on hosts: where the replicas are, what is written by all, and faults.

The environment has CHECKPOINT, a folder that all hosts share.
"""

from __future__ import annotations

import os
import pathlib
import time

import checkpoint_program
import torch
import training_programs
import ways

import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch_xla.debug import metrics


def places() -> None:
    """Who is where, by every name that says so."""
    place = {
        "host": xr.host_index(),
        "process": xr.process_index(),
        "local": xr.local_ordinal(),
        "global": xr.global_ordinal(),
        "size": xr.world_size(),
        "processes": xr.process_count(),
        "per host": xr.local_process_count(),
        "is first": xm.is_master_ordinal(),
        "is first of all": xm.is_master_ordinal(local=False),
        "network": pathlib.Path("/proc/self/ns/net").readlink().name,
    }
    found = xm.mesh_reduce("places", place, list)
    per_host, hosts = place["per host"], xr.world_size() // xr.local_process_count()
    assert [each["global"] for each in found] == list(range(xr.world_size()))
    for number, each in enumerate(found):
        assert each["process"] == number
        assert (each["host"], each["local"]) == divmod(number, per_host)
        assert (each["size"], each["processes"]) == (xr.world_size(), xr.world_size())
        assert each["is first"] == (number % per_host == 0)
        assert each["is first of all"] == (number == 0)
        assert each["network"] == found[number - each["local"]]["network"]
    assert len({each["network"] for each in found}) == hosts


def save() -> None:
    checkpoint_program.run(xr.local_ordinal(), "save", os.environ["CHECKPOINT"])


def load() -> None:
    checkpoint_program.run(xr.local_ordinal(), "load", os.environ["CHECKPOINT"])


def exchange(step: int) -> None:
    """What hosts exchange goes through their network, though here they share a machine."""
    ones = torch.ones(2, device="xla") * step
    total = xm.all_reduce(xm.REDUCE_SUM, ones).sum().item()
    assert total == 2 * step * xr.world_size()
    assert not metrics.counter_value("HostMemoryExchange")


def slow() -> None:
    """One comes late, once to an exchange and once to a rendezvous: the others go on then."""
    exchange(1)
    is_late = xr.global_ordinal() == 1
    time.sleep(3 if is_late else 0)
    exchange(2)
    time.sleep(3 if is_late else 0)
    xm.rendezvous("late")


def endless() -> None:
    """Exchanges until something happens, and says when the first ones are done."""
    for step in range(1, 1 << 30):
        exchange(step)
        time.sleep(0.01)
        if step == 3:
            pathlib.Path(os.environ["CHECKPOINT"], f"rank{xr.global_ordinal()}").touch()


WAYS = {
    "places": places,
    "fsdp": training_programs.by_fsdp,
    "save": save,
    "load": load,
    "slow": slow,
    "endless": endless,
}


if __name__ == "__main__":
    ways.launch(WAYS)

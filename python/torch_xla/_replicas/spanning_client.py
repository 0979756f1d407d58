"""One client with the devices of all processes of the job: what its plugin is told, and where the
processes meet when it is made. The CPU plugin has none: its collectives do not cross processes."""

from __future__ import annotations

import os
from typing import Any

from torch_xla import _XLAC, _plugins, _tpu_chips
from torch_xla._replicas import meetings, world
from torch_xla._spmd.mode import is_spmd

# Whose plugins know the other processes by themselves, or by variables.
_KNOW_THEIR_PLACE = ("TPU", "NEURON")
# Whose plugins show each process all devices of the host, unless these variables do not.
_SHOWN_BY = {
    "CUDA": ("CUDA_VISIBLE_DEVICES",),
    "ROCM": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    "GPU": ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
}


def _place(kind: str) -> dict[str, Any]:
    """This process's place in the job, in a plugin's words."""
    if kind in _KNOW_THEIR_PLACE or not _plugins.needs_coordinator(kind):
        return {}
    place: dict[str, Any] = {
        "num_nodes": world.process_count(),
        "node_id": world.process_index(),
    }
    if kind in _SHOWN_BY and not is_spmd() and world.local_process_count() > 1:
        shown = next(filter(None, map(os.environ.get, _SHOWN_BY[kind])), None)
        # A launcher may have shown each process its own alone.
        if shown is None or "," in shown:
            place["visible_devices"] = [world.local_ordinal()]
    return place


def resolve() -> tuple[str, str, dict[str, Any]] | tuple[str, str, dict[str, Any], Any]:
    """As `_plugins.resolve`; of several processes, with this one's place in the options, and the
    job's store."""
    several = world.process_count() > 1
    place = (world.local_ordinal(), world.local_process_count()) if several else None
    kind, path, options = _plugins.resolve(place)
    if not several or kind == "CPU":
        return kind, path, options
    if kind == "TPU" and world.local_process_count() == world.process_count():
        _tpu_chips.configure_topology(world.local_ordinal(), world.local_process_count())
    from torch._C._distributed_c10d import PrefixStore

    # Each compiles for its own device, and may ask the others meanwhile.
    _XLAC._share_compilations(False)
    # A connection of its own: one that waits can't be asked anything else in the meantime.
    store = PrefixStore("client", meetings.store().clone())
    return kind, path, {**_place(kind), **options}, store


def check_may_span() -> None:
    """Before the devices of all processes become one.

    Raises:
        NotImplementedError: the plugin's collectives do not cross processes.
        RuntimeError: the client is there already.
    """
    count = world.process_count()
    if count == 1:
        return
    if _plugins.resolve()[0] == "CPU":
        raise NotImplementedError(
            f"use_spmd: this is one of {count} processes, and collectives of the CPU plugin do not "
            f"cross processes; start one process with CPU_NUM_DEVICES={count}"
        )
    if _XLAC._xla_runtime_is_initialized():
        raise RuntimeError(
            f"use_spmd: this is one of {count} processes, whose devices are made together; call it "
            "before the first use of the device"
        )

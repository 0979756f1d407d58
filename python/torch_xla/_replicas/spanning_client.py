"""One client with the devices of all processes of the job, for one program over all of them: what
its plugin is told, and where the processes meet when it is made."""

from __future__ import annotations

from typing import Any

from torch_xla import _XLAC, _plugins
from torch_xla._replicas import meetings, world

# Whose plugins know the other processes by themselves.
_KNOW_THEIR_PLACE = ("TPU",)


def resolve() -> tuple[str, str, dict[str, Any], Any]:
    """As `_plugins.resolve`, with this process's place in the options, and the job's store."""
    from torch._C._distributed_c10d import PrefixStore

    kind, path, options = _plugins.resolve()
    place = {"num_nodes": world.process_count(), "node_id": world.process_index()}
    if kind in _KNOW_THEIR_PLACE:
        place = {}
    return kind, path, {**place, **options}, PrefixStore("client", meetings.store())


def span_processes() -> None:
    """Let the client that is made later have the devices of all processes; in one process nothing
    changes.

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
    _XLAC._set_plugin_resolver(resolve)
    # Each compiles for its own devices, and may ask the others meanwhile.
    _XLAC._share_compilations(False)

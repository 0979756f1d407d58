"""How much memory a device has and uses, as far as its plugin says."""

from __future__ import annotations

import os
import resource

from torch_xla import _XLAC, _devices
from torch_xla._devices import DeviceLike


def info(device: DeviceLike = None) -> dict[str, int]:
    """Bytes as `bytes_used`, `bytes_limit` and `peak_bytes_used`.

    A CPU device shares the memory of the host: its plugin keeps no count, so the figures are those
    of this process.

    Raises:
        RuntimeError: the plugin keeps no statistics.
    """
    index = _devices.index_of(device)
    stats = _XLAC._memory_stats(index)
    if stats:
        return {
            "bytes_used": stats["bytes_in_use"],
            "bytes_limit": stats.get("bytes_limit", 0),
            "peak_bytes_used": stats.get("peak_bytes_in_use", stats["bytes_in_use"]),
        }
    if _XLAC._device_type() != "CPU":
        raise RuntimeError(f"the plugin of xla:{index} keeps no statistics of its memory")
    page = os.sysconf("SC_PAGE_SIZE")
    with open("/proc/self/statm") as statm:
        resident_pages = int(statm.read().split()[1])
    return {
        "bytes_used": resident_pages * page,
        "bytes_limit": os.sysconf("SC_PHYS_PAGES") * page,
        "peak_bytes_used": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }

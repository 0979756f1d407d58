"""How much memory a device has and uses: what its plugin says, else our own count of arrays."""

from __future__ import annotations

import os

from torch_xla import _XLAC, _devices
from torch_xla._devices import DeviceLike


def info(device: DeviceLike = None) -> dict[str, int]:
    """Bytes as `bytes_used`, `bytes_limit` and `peak_bytes_used`.

    Where the plugin keeps no statistics, used is what the tensors on the device take, without what
    programs take while they run. The limit of a CPU device is the host's memory; 0: not known.
    """
    index = _devices.index_of(device)
    stats = _XLAC._memory_stats(index)
    if stats:
        return {
            "bytes_used": stats["bytes_in_use"],
            "bytes_limit": stats.get("bytes_limit", 0),
            "peak_bytes_used": stats.get("peak_bytes_in_use", stats["bytes_in_use"]),
        }
    used, peak = _XLAC._live_bytes(index)
    is_host = _XLAC._device_type() == "CPU"
    return {
        "bytes_used": used,
        "bytes_limit": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if is_host else 0,
        "peak_bytes_used": peak,
    }

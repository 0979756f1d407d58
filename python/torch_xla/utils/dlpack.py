"""Exchange of tensors with other libraries by the DLPack protocol, without copies where the
device's memory is the host's; elsewhere by way of the CPU.

Both sides have the value as it is at the call. Writes to the xla tensor go to other memory; who
writes to the shared memory from outside breaks what has been recorded.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.utils.dlpack

from torch_xla import _XLAC, _devices
from torch_xla._devices import DeviceLike


def to_dlpack(xla_tensor: torch.Tensor) -> Any:
    """A capsule with the value of an xla tensor, in the CPU's memory. Waits for the value.

    Args:
        xla_tensor: the tensor.

    Raises:
        RuntimeError: it is on another device.
    """
    shared = _XLAC._cpu_view(xla_tensor.detach())
    return torch.utils.dlpack.to_dlpack(shared)  # type: ignore[attr-defined]


def from_dlpack(ext_tensor: Any, device: DeviceLike = None) -> torch.Tensor:
    """An xla tensor with the value of another library's.

    Args:
        ext_tensor: a capsule, or an object with `__dlpack__`, in the CPU's memory.
        device: where the tensor is to be; the current device by default.

    Raises:
        RuntimeError: its memory is not the CPU's.
    """
    if hasattr(ext_tensor, "__dlpack_device__"):
        kind = int(ext_tensor.__dlpack_device__()[0])
        if kind not in (1, 3):  # kDLCPU, kDLCUDAHost
            raise RuntimeError(
                f"from_dlpack: expected memory of the CPU, got DLPack's device type {kind}"
            )
    cpu = torch.utils.dlpack.from_dlpack(ext_tensor)
    return _XLAC._adopt(cpu, _devices.index_of(device))

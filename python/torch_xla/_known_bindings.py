"""Names that programs look for in the extension module, `torch_xla._XLAC`, and that are Python."""

from __future__ import annotations

import torch

from torch_xla import _XLAC, _devices, _lowering
from torch_xla._settings import settings


def _set_ir_debug(on: bool) -> None:
    """Note for every operation the user's line, as `XLA_IR_DEBUG=1`."""
    settings.ir_debug = bool(on)


def _get_ir_debug() -> bool:
    """Whether lines are noted."""
    return bool(settings.ir_debug)


def _xla_get_default_device() -> str:
    """The current device, as "xla:0"."""
    return f"xla:{_XLAC._current_device()}"


def _init_computation_client() -> None:
    """Make the plugin's client, which the first use of the device does."""
    _XLAC._device_count()


def _xla_device_kind(device: str) -> str:
    """What the hardware of a device calls itself."""
    return _XLAC._device_kind(_devices.index_of(device))


def _xla_computation_cache_is_initialized() -> bool:
    """Whether there are compiled programs to be found: as soon as there is a client."""
    return _XLAC._xla_runtime_is_initialized()


def _get_xla_tensor_dimension_size(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """The size of a dimension, as an xla tensor of one int32."""
    return torch.full((), tensor.shape[dim], dtype=torch.int32, device=tensor.device)


def install() -> None:
    """Put them there."""
    _XLAC.lowering = _lowering  # type: ignore[attr-defined]
    for function in (
        _set_ir_debug,
        _get_ir_debug,
        _xla_get_default_device,
        _init_computation_client,
        _xla_device_kind,
        _xla_computation_cache_is_initialized,
        _get_xla_tensor_dimension_size,
    ):
        setattr(_XLAC, function.__name__, function)

"""What storages of xla tensors answer where PyTorch's own methods know nothing of the device."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch

from torch_xla import _XLAC
from torch_xla._wrapping import to_wrap


def _have_addresses() -> None:
    """Asked for the address of an xla tensor's memory, PyTorch raises. Programs ask to find out
    what shares memory: addresses are made up, one range per storage, and nothing is there."""
    of_storage = to_wrap(torch.UntypedStorage, "data_ptr")
    of_tensor = to_wrap(torch.Tensor, "data_ptr")

    @functools.wraps(of_storage)
    def storage_data_ptr(self: torch.UntypedStorage) -> int:
        return _XLAC._storage_data_ptr(self) if self.device.type == "xla" else of_storage(self)

    @functools.wraps(of_tensor)
    def data_ptr(self: torch.Tensor) -> int:
        return _XLAC._data_ptr(self) if _XLAC._is_xla_tensor(self) else of_tensor(self)

    torch.UntypedStorage.data_ptr = storage_data_ptr  # type: ignore[method-assign,assignment]
    torch.Tensor.data_ptr = data_ptr  # type: ignore[method-assign,assignment]


def _need_no_pinned_memory() -> None:
    """PyTorch would say that the library of xla was not loaded; and data loaders, which
    accelerate and transformers ask for pinned memory, that there is no accelerator."""
    warnings.filterwarnings("ignore", "'pin_memory' argument is set as true but no accelerator")
    original: Callable[..., torch.Tensor] = to_wrap(torch.Tensor, "pin_memory")

    @functools.wraps(original)
    def pin_memory(self: torch.Tensor, device: Any = None) -> torch.Tensor:
        if device is not None and torch.device(device).type == "xla":
            raise NotImplementedError(
                "pin_memory: xla has no pinned memory of the host, and needs none: the plugin "
                "copies from ordinary memory, in the background with MpDeviceLoader; leave "
                "pin_memory out"
            )
        return original(self) if device is None else original(self, device)

    torch.Tensor.pin_memory = pin_memory  # type: ignore[method-assign,assignment]


def _are_resized() -> None:
    """FSDP gives the memory of whole parameters back by resizing their storage to 0 bytes, and
    takes it again by resizing it to what it was."""
    original = to_wrap(torch.UntypedStorage, "resize_")

    @functools.wraps(original)
    def resize_(self: torch.UntypedStorage, nbytes: int) -> torch.UntypedStorage:
        if self.device.type == "xla":
            _XLAC._resize_storage(self, nbytes)
        else:
            original(self, nbytes)
        return self

    torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign,assignment]


def install() -> None:
    """Teach `torch.UntypedStorage`, and tensors, which ask theirs."""
    _have_addresses()
    _need_no_pinned_memory()
    _are_resized()

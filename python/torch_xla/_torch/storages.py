"""What storages of xla tensors answer where PyTorch's own methods know nothing of the device."""

from __future__ import annotations

import functools

import torch

from torch_xla import _XLAC


def _have_no_address() -> None:
    """Asked for the address of an xla tensor's storage, PyTorch raises. It is 0 here, as on meta:
    who compares addresses to find out what shares memory takes 0 for an unknown one."""
    original = torch.UntypedStorage.data_ptr

    @functools.wraps(original)
    def data_ptr(self: torch.UntypedStorage) -> int:
        return 0 if self.device.type == "xla" else original(self)

    torch.UntypedStorage.data_ptr = data_ptr  # type: ignore[method-assign,assignment]


def _are_resized() -> None:
    """FSDP gives the memory of whole parameters back by resizing their storage to 0 bytes, and
    takes it again by resizing it to what it was."""
    original = torch.UntypedStorage.resize_

    @functools.wraps(original)
    def resize_(self: torch.UntypedStorage, nbytes: int) -> torch.UntypedStorage:
        if self.device.type == "xla":
            _XLAC._resize_storage(self, nbytes)
        else:
            original(self, nbytes)
        return self

    torch.UntypedStorage.resize_ = resize_  # type: ignore[method-assign,assignment]


def install() -> None:
    """Teach `torch.UntypedStorage`."""
    _have_no_address()
    _are_resized()

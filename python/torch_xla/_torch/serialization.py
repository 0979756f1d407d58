"""`torch.load` onto xla devices: `map_location="xla"`, and files whose tensors were there.

An xla tensor is saved as a CPU tensor and the name of its device, by PyTorch itself. Loading makes
storages first and tensors out of them, but an xla device has no storages. So a storage that is to
be loaded there stays on the CPU as a `_StorageToUpload`, and the tensors that are made out of it
upload their values; those that share a storage in the file share memory on the device.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_xla import _XLAC, _devices
from torch_xla._wrapping import to_wrap

_Part = tuple[torch.dtype, int, tuple[int, ...], tuple[int, ...]]


class _Uploads(threading.local):
    """What was made of storages whose values are not there yet: the tensor, and its values."""

    early: list[tuple[torch.Tensor, torch.Tensor]] | None = None

    def made(self, tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        if self.early is not None:
            self.early.append((tensor, values))
        return tensor


_uploads = _Uploads()


class _StorageToUpload(torch.UntypedStorage):
    """A CPU storage that says it is on an xla device, where the tensors made out of it will be."""

    _target: torch.device
    _whole: dict[torch.dtype, torch.Tensor]
    _parts: dict[_Part, torch.Tensor]

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self._target

    def data_ptr(self) -> int:
        return torch._C.StorageBase.data_ptr(self)  # type: ignore[attr-defined,no-any-return]

    @classmethod
    def of(cls, storage: torch.UntypedStorage, target: torch.device) -> _StorageToUpload:
        # The object itself becomes one, since PyTorch keeps one Python object per storage.
        storage.__class__ = cls
        assert isinstance(storage, cls)
        storage._target = target
        storage._whole = {}
        storage._parts = {}
        return storage

    def part(
        self, dtype: torch.dtype, offset: int, size: Sequence[int], stride: Sequence[int]
    ) -> torch.Tensor:
        """A tensor on the device with these values, which shares memory with the other parts."""
        key = (dtype, offset, tuple(size), tuple(stride))
        if key not in self._parts:
            self._parts[key] = self._upload_part(*key)
        return self._parts[key]

    def _upload_part(
        self, dtype: torch.dtype, offset: int, size: tuple[int, ...], stride: tuple[int, ...]
    ) -> torch.Tensor:
        count = self.nbytes() // dtype.itemsize
        flat = torch.empty(0, dtype=dtype).set_(self, 0, (count,), (1,))
        part = flat.as_strided(size, stride, offset)
        if dtype not in self._whole:
            if part.numel() == count and part.is_contiguous():
                self._whole[dtype] = self._upload(part)
                return self._whole[dtype]
            if part.numel() == count and torch.ops.aten.is_non_overlapping_and_dense(part):
                return self._upload(part)
            self._whole[dtype] = self._upload(flat)
        return self._whole[dtype].as_strided(size, stride, offset)

    def _upload(self, values: torch.Tensor) -> torch.Tensor:
        return _uploads.made(values.to(self._target), values)


def _tag(storage: Any) -> str | None:
    return str(storage.device) if storage.device.type == "xla" else None


def _restore(storage: Any, location: str) -> torch.UntypedStorage | None:
    if location != "xla" and not location.startswith("xla:"):
        return None
    index = _devices.index_of(location)
    _XLAC._device_name(index)  # raises if there is no such device
    return _StorageToUpload.of(storage, torch.device("xla", index))


def _set_from_storage(
    tensor: torch.Tensor,
    source: torch.UntypedStorage,
    storage_offset: int,
    size: Sequence[int],
    stride: Sequence[int] = (),
) -> torch.Tensor:
    if not isinstance(source, _StorageToUpload):
        raise NotImplementedError(
            "set_: an xla tensor has no storage, so it can't take one over; use set_(tensor)"
        )
    part = source.part(tensor.dtype, storage_offset, size, stride)
    return tensor.set_(part)  # type: ignore[call-overload, no-any-return]


def _set_from_whole_storage(tensor: torch.Tensor, source: torch.UntypedStorage) -> torch.Tensor:
    return _set_from_storage(tensor, source, 0, (source.nbytes() // tensor.itemsize,), (1,))


def _rebuild_tensors() -> None:
    """PyTorch rebuilds a saved or copied tensor of a device without storage by `data.to(device)`,
    which is no leaf if `data` requires gradients; then it fails to set `requires_grad`. And for
    such a tensor it takes no function as `map_location`."""
    original: Callable[..., torch.Tensor] = to_wrap(
        torch._utils, "_rebuild_device_tensor_from_cpu_tensor", torch.Tensor._reduce_ex_internal
    )
    state = torch.serialization._serialization_tls

    @functools.wraps(original)
    def rebuild(
        data: torch.Tensor, dtype: torch.dtype, device: str, requires_grad: bool
    ) -> torch.Tensor:
        location = state.map_location
        if callable(location):
            storage: Any = data.untyped_storage()
            moved = location(storage, device)
            state.map_location = device if moved is None else str(moved.device)
        try:
            tensor = original(data.detach(), dtype, device, requires_grad)
        finally:
            state.map_location = location
        return _uploads.made(tensor, data.detach())

    torch._utils._rebuild_device_tensor_from_cpu_tensor = rebuild


def _upload_when_read() -> None:
    """Files of `_use_new_zipfile_serialization=False` have the values behind the tensors, so that
    tensors on an xla device are made too early. They get their values at the end."""
    original: Callable[..., Any] = to_wrap(
        torch.serialization, "_legacy_load", torch.serialization.load
    )
    state = torch.serialization._serialization_tls

    @functools.wraps(original)
    def load(file: Any, map_location: Any, *args: Any, **kwargs: Any) -> Any:
        _uploads.early, state.map_location = [], map_location
        try:
            loaded = original(file, map_location, *args, **kwargs)
            with torch.no_grad():
                for tensor, values in _uploads.early:
                    tensor.copy_(values)
        finally:
            _uploads.early, state.map_location = None, None
        return loaded

    torch.serialization._legacy_load = load  # type: ignore[assignment]


def _refuse_views() -> None:
    """`torch.save` of an xla tensor together with a view of it: each would be saved by itself, and
    after a load a write to one would not reach the other."""
    original: Callable[..., None] = to_wrap(torch, "save")

    @functools.wraps(original)
    def save(obj: object, *args: Any, **kwargs: Any) -> None:
        if _XLAC._xla_runtime_is_initialized():
            from torch_xla import _saving

            _saving.check_view_sharing(obj)
        return original(obj, *args, **kwargs)

    torch.save = torch.serialization.save = save


# Kept: a registration ends with its library.
_library = torch.library.Library("aten", "IMPL")


def install() -> None:
    """Register with `torch.load`, and the operators that make tensors out of storages; mend
    what rebuilds tensors."""
    torch.serialization.register_package(27, _tag, _restore)
    _rebuild_tensors()
    _upload_when_read()
    _refuse_views()
    _library.impl("set_.source_Storage_storage_offset", _set_from_storage, "XLA")
    _library.impl("set_.source_Storage", _set_from_whole_storage, "XLA")

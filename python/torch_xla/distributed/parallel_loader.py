"""Loaders that put batches on the device while the program works on the ones before.

One thread runs the user's loader, others upload what it gives; the loop takes batches that are on
the device already, and each take is a barrier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from torch_xla import _barriers, _causes, _devices, _other_names
from torch_xla._devices import DeviceLike
from torch_xla._replicas import loading, uploads
from torch_xla._spmd import sharding


class PerDeviceLoader:
    """An iterator over the batches of one device. Each `next` is a barrier first, or every
    `batches_per_execution`-th, and so is the end."""

    def __init__(self, loader: ParallelLoader, device: torch.device) -> None:
        self._loader = loader
        self._device = device
        self._num_given = 0

    def __iter__(self) -> PerDeviceLoader:
        return self

    def __next__(self) -> Any:
        return self.next()

    def __len__(self) -> int:
        return self._loader.per_device_samples()

    def next(self) -> Any:
        """The next batch.

        Raises:
            StopIteration: there is none.
        """
        is_due = self._num_given % self._loader.batches_per_execution == 0
        if is_due:
            self._end_step()
        batch = self._loader.next_item(self._device, loading.END)
        if batch is loading.END:
            if not is_due:
                self._end_step()
            raise StopIteration
        self._num_given += 1
        return batch

    def _end_step(self) -> None:
        with _causes.because("end of a step of the data loader"):
            _barriers.sync()

    def close(self) -> None:
        """End the loader's threads."""
        self._loader.close()


class ParallelLoader:
    """Uploads the batches of a loader in the background, in turn to each of `devices`.

    With several devices the batches that do not go round are dropped.

    Args:
        cpu_loader: what gives the batches, such as a `torch.utils.data.DataLoader`. Tensors are
            found inside of containers.
        devices: where they go.
        batchdim: the dimension of a batch's size, for `fixed_batch_size`.
        batches_per_execution: after how many batches there is a barrier.
        loader_prefetch_size: how many batches the loader may be ahead of the upload.
        device_prefetch_size: how many may wait on a device.
        host_to_device_transfer_threads: how many threads upload, per device.
        input_sharding: how batches lie on a mesh, as for `xm.send_cpu_data_to_device`.
        fixed_batch_size: end at the first batch of another size. In calls written for older
            versions this, a bool, stands in the place of `batches_per_execution`.
        loader: an older name of `cpu_loader`.
    """

    def __init__(
        self,
        cpu_loader: Iterable[Any] | None = None,
        devices: Sequence[DeviceLike] | None = None,
        batchdim: int = 0,
        batches_per_execution: int = 1,
        loader_prefetch_size: int = 16,
        device_prefetch_size: int = 8,
        host_to_device_transfer_threads: int = 1,
        input_sharding: Any = None,
        fixed_batch_size: bool = False,
        loader: Iterable[Any] | None = None,
    ) -> None:
        source = loader if cpu_loader is None else cpu_loader
        if source is None or not devices:
            raise ValueError("ParallelLoader: expected a loader and at least one device")
        if isinstance(devices, (str, torch.device)):
            devices = [devices]
        if isinstance(batches_per_execution, bool):
            fixed_batch_size = batches_per_execution
            batches_per_execution = 1
        for name, number in (
            ("batches_per_execution", batches_per_execution),
            ("loader_prefetch_size", loader_prefetch_size),
            ("device_prefetch_size", device_prefetch_size),
            ("host_to_device_transfer_threads", host_to_device_transfer_threads),
        ):
            if not isinstance(number, int) or number < 1:
                raise ValueError(f"ParallelLoader: {name} must be positive, got {number!r}")
        if input_sharding is not None:
            sharding.check_input_sharding("ParallelLoader", input_sharding)
        self._batches_per_execution = batches_per_execution
        self._cpu_loader = source
        self._input_sharding = input_sharding
        self._devices = [torch.device("xla", _devices.index_of(device)) for device in devices]
        self._queues = {
            device: loading.DeviceQueues(loader_prefetch_size, device_prefetch_size)
            for device in self._devices
        }
        loading.start(
            source,
            self._queues,
            (batchdim,) if fixed_batch_size else None,
            input_sharding,
            host_to_device_transfer_threads,
        )

    @property
    def batches_per_execution(self) -> int:
        """After how many batches there is a barrier."""
        return self._batches_per_execution

    def send_cpu_data_to_device(self, batches: Sequence[Any], device: DeviceLike) -> list[Any]:
        """Batches with every tensor inside of them on a device, as `xm.send_cpu_data_to_device`;
        with the loader's sharding if it has one. What `next_item` gives is there already."""
        sent: list[Any] = uploads.send_cpu_data_to_device(
            list(batches), device, self._input_sharding
        )
        return sent

    def per_device_loader(self, device: DeviceLike) -> PerDeviceLoader:
        """The batches of one of the devices."""
        self._queues_of(device)
        return PerDeviceLoader(self, torch.device("xla", _devices.index_of(device)))

    def _queues_of(self, device: DeviceLike) -> loading.DeviceQueues:
        chosen = torch.device("xla", _devices.index_of(device))
        if chosen not in self._queues:
            raise ValueError(
                f"ParallelLoader: {device} is none of its devices {[*map(str, self._queues)]}"
            )
        return self._queues[chosen]

    def per_device_samples(self) -> int:
        """How many batches each device gets, if the loader knows how many it has."""
        return len(self._cpu_loader) // len(self._devices)  # type: ignore[arg-type]

    def next_item(self, device: DeviceLike, end: Any = None) -> Any:
        """The next batch of a device, or `end` at the end. No barrier.

        Raises:
            Exception: what the user's loader raised.
        """
        item = self._queues_of(device).uploaded.get(end)
        if isinstance(item, loading.Failure):
            self.close()
            raise item.error
        return item

    def close(self) -> None:
        """End the threads; batches that nobody took are dropped."""
        loading.close_all(self._queues.values())

    def __enter__(self) -> ParallelLoader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_queues"):
            self.close()


class MpDeviceLoader:
    """A loader whose batches are on the device, uploaded in the background; each take of a batch is
    a barrier, and so is the end. It has the attributes of the loader inside.

    Args:
        loader: what gives the batches, such as a `torch.utils.data.DataLoader`.
        device: where they go.
        kwargs: as for `ParallelLoader`.
    """

    def __init__(self, loader: Iterable[Any], device: DeviceLike, **kwargs: Any) -> None:
        self._loader = loader
        self._device = device
        self._parallel_loader_kwargs = kwargs

    def __iter__(self) -> Iterator[Any]:
        parallel_loader = ParallelLoader(
            self._loader, [self._device], **self._parallel_loader_kwargs
        )
        # A loop that is left early drops this generator, and so ends the threads.
        try:
            yield from parallel_loader.per_device_loader(self._device)
        finally:
            parallel_loader.close()

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        # Programs ask a loader for its `dataset`, `batch_size` or `sampler`.
        if name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader, name)


__getattr__ = _other_names.refusing(__name__)

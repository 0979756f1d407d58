"""Replicas of a model in threads of one process, one per device."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from torch_xla import _devices, _other_names
from torch_xla._devices import DeviceLike
from torch_xla._replicas import channels, meetings, world
from torch_xla._torch import device_module
from torch_xla.distributed import parallel_loader as pl


class Context:
    """What a loop keeps from one call to the next: its attributes, one object per device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def getattr_or(self, name: str, defval: Any) -> Any:
        """The attribute; when there is none, `defval`, or what it returns if it can be called, is
        made it."""
        if not hasattr(self, name):
            setattr(self, name, defval() if callable(defval) else defval)
        return getattr(self, name)


class DataParallel:
    """Runs a training or evaluation loop on each device, in a thread of its own. The devices are
    replicas: `xm.optimizer_step` averages gradients over them, and what `xm` exchanges they do.

    Args:
        network: a module, of which each device gets a copy, or what makes it, such as its class.
        device_ids: the devices; none means that the loop runs on the CPU.
    """

    def __init__(
        self,
        network: torch.nn.Module | Callable[[], torch.nn.Module],
        device_ids: Sequence[DeviceLike] | None = None,
    ) -> None:
        self._devices = [
            torch.device("xla", _devices.index_of(device)) for device in device_ids or []
        ]
        self._models: list[torch.nn.Module] = []
        module = network if isinstance(network, torch.nn.Module) else network()
        for device in self._devices or [torch.device("cpu")]:
            self._models.append(copy.deepcopy(module).to(device))
        self._contexts = [Context(d) for d in self._devices or [torch.device("cpu")]]

    @property
    def devices(self) -> list[torch.device]:
        """The devices; empty when the loop runs on the CPU."""
        return self._devices

    @property
    def models(self) -> list[torch.nn.Module]:
        """The model of each device, in the order of the devices."""
        return self._models

    def __call__(
        self,
        loop_fn: Callable[[torch.nn.Module, Iterable[Any], torch.device, Context], Any],
        loader: Iterable[Any],
        fixed_batch_size: bool = False,
        batchdim: int = 0,
    ) -> list[Any]:
        """Call `loop_fn(model, device_loader, device, context)` on each device.

        Args:
            loop_fn: the loop. Its `device_loader` gives (number, batch).
            loader: what gives the batches; a device gets every n-th.
            fixed_batch_size: end at the first batch of another size.
            batchdim: the dimension of a batch's size.

        Returns:
            What `loop_fn` returned, by device.

        Raises:
            Exception: what the first loop that failed raised; all have ended then.
        """
        if not self._devices:
            cpu = torch.device("cpu")
            return [loop_fn(self._models[0], enumerate(loader), cpu, self._contexts[0])]
        batches = pl.ParallelLoader(
            loader, self._devices, batchdim=batchdim, fixed_batch_size=fixed_batch_size
        )
        results: list[Any] = [None] * len(self._devices)
        failures: list[BaseException] = []

        def run(index: int) -> None:
            device = self._devices[index]
            device_module.set_device(device)
            numbered = enumerate(batches.per_device_loader(device))
            try:
                results[index] = loop_fn(
                    self._models[index], numbered, device, self._contexts[index]
                )
                meetings.launch_recorded()
                channels.end_thread(has_failed=False)
            except BaseException as error:
                failures.append(error)
                batches.close()
                meetings.leave()  # rather than let the others wait
                channels.end_thread(has_failed=True)

        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(self._devices))]
        with world.as_threads([_devices.index_of(device) for device in self._devices]):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            for device in self._devices if failures else []:
                with device_module.device(device):
                    meetings.leave()
            if len(threads) > 1:
                channels.finish_threads(is_warned_of=not failures)
        batches.close()
        if failures:
            meetings.begin_again([_devices.index_of(device) for device in self._devices])
            raise failures[0]
        return results


__getattr__ = _other_names.refusing(__name__)

"""The functions that programs import as `xm`: devices, barriers, optimizer steps, saving.

Many have a newer name at the top of the package; both stay.
"""

from __future__ import annotations

import contextlib
import operator
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, TypedDict

import torch

import torch_xla.torch_xla as _top
from torch_xla import (
    _XLAC,
    _barriers,
    _causes,
    _devices,
    _files,
    _memory,
    _mlir,
    _nested,
    _other_names,
    _saving,
    _step_closures,
    runtime,
)
from torch_xla._barriers import wait_device_ops as wait_device_ops
from torch_xla._capture.optimization_barrier import optimization_barrier_ as optimization_barrier_
from torch_xla._devices import DeviceLike
from torch_xla._replicas.channels import recv as recv, send as send
from torch_xla._replicas.collectives import (
    REDUCE_AND as REDUCE_AND,
    REDUCE_MAX as REDUCE_MAX,
    REDUCE_MIN as REDUCE_MIN,
    REDUCE_MUL as REDUCE_MUL,
    REDUCE_OR as REDUCE_OR,
    REDUCE_SUM as REDUCE_SUM,
    CoalescingBuckets as CoalescingBuckets,
    all_gather as all_gather,
    all_gather_bucketized as all_gather_bucketized,
    all_reduce as all_reduce,
    all_reduce_bucketized_gradients as all_reduce_bucketized_gradients,
    all_to_all as all_to_all,
    broadcast_master_param as broadcast_master_param,
    collective_broadcast as collective_broadcast,
    collective_permute as collective_permute,
    do_on_ordinals as do_on_ordinals,
    mesh_reduce as mesh_reduce,
    reduce_scatter as reduce_scatter,
    reduce_scatter_bucketized as reduce_scatter_bucketized,
    rendezvous as rendezvous,
    xla_rendezvous as xla_rendezvous,
)
from torch_xla._replicas.groups import (
    own_group,
    set_replication as set_replication,
    xla_replication_devices as xla_replication_devices,
)
from torch_xla._replicas.uploads import send_cpu_data_to_device as send_cpu_data_to_device
from torch_xla._replicas.world import is_master_ordinal as is_master_ordinal
from torch_xla._saving import check_view_sharing as check_view_sharing
from torch_xla.runtime import xla_device as xla_device

# For operators of a program's own: `xm.XLA_LIB.define("scale(Tensor x) -> Tensor")`.
XLA_LIB = torch.library.Library("xla", "FRAGMENT")

# A state of a random generator as one integer: the seed, and above it how many draws were made.
_SEED_BITS = 64


def get_xla_supported_devices(
    devkind: str | int | None = None, max_devices: int | None = None
) -> list[str]:
    """The devices of this process as strings: ["xla:0", ...].

    Args:
        devkind: return those of this hardware kind only; a number here is `max_devices`, which is
            the one parameter of newer versions.
        max_devices: return that many at most.
    """
    if isinstance(devkind, int):
        devkind, max_devices = None, devkind
    if devkind is not None and devkind.upper() != runtime.device_type().upper():
        return []
    return [str(device) for device in _top.devices()][:max_devices]


def parse_xla_device(device: str | torch.device) -> tuple[str, int] | None:
    """The kind and number in "xla:0" or "CPU:0"; None if it is neither."""
    kind, separator, number = str(device).partition(":")
    return (kind, int(number)) if separator and number.isdigit() else None


def xla_real_devices(devices: Sequence[DeviceLike] | None = None) -> list[str]:
    """The hardware names ("CPU:0") of `devices`, or of all."""
    if devices is None:
        return _top.real_devices()
    return [_XLAC._device_name(_devices.index_of(device)) for device in devices]


def xla_device_hw(device: DeviceLike) -> str:
    """The kind of hardware behind a device: "CPU", "CUDA", "TPU"; also for "cpu" itself."""
    if isinstance(device, (str, torch.device)) and torch.device(device).type != "xla":
        return torch.device(device).type.upper()
    return _XLAC._device_name(_devices.index_of(device)).split(":")[0]


def xla_device_kind(device: DeviceLike = None) -> str:
    """What the hardware calls itself: "cpu", "NVIDIA H100"."""
    return _XLAC._device_kind(_devices.index_of(device))


def mark_step(wait: bool = False, reset_scope: bool = True) -> None:
    """Launch everything that was recorded. `torch_xla.sync` is the newer name."""
    _barriers.sync(wait, reset_scope)


def is_xla_tensor(tensor: torch.Tensor) -> bool:
    """Whether the tensor is on an xla device."""
    return tensor.device.type == "xla"


def unlazy(tensors: Sequence[torch.Tensor]) -> None:
    """Compute the values of `tensors`, and return when they are there."""
    _XLAC._materialize(list(tensors))
    wait_device_ops({tensor.device for tensor in tensors})


def xrt_world_size(defval: int = 1) -> int:
    """How many replicas take part; now `torch_xla.runtime.world_size`."""
    del defval
    return runtime.world_size()


def get_ordinal(defval: int = 0) -> int:
    """The number of this replica among all; now `torch_xla.runtime.global_ordinal`."""
    del defval
    return runtime.global_ordinal()


def get_local_ordinal(defval: int = 0) -> int:
    """The number of this replica on its host; now `torch_xla.runtime.local_ordinal`."""
    del defval
    return runtime.local_ordinal()


def master_print(
    *args: Any, fd: IO[str] | None = None, local: bool = False, flush: bool = False
) -> None:
    """Print on the first replica only."""
    if is_master_ordinal(local=local):
        print(*args, file=fd if fd is not None else sys.stdout, flush=flush)


def reduce_gradients(
    optimizer: torch.optim.Optimizer,
    groups: list[list[int]] | None = None,
    pin_layout: bool = True,
) -> None:
    """Average the gradients over the replicas, in place.

    Args:
        optimizer: whose parameters' gradients they are.
        groups: the replicas that average with each other; all by default.
        pin_layout: accepted for compatibility.
    """
    size = own_group("reduce_gradients", groups).size
    if size > 1:
        all_reduce(REDUCE_SUM, _fetch_gradients(optimizer), 1.0 / size, groups, pin_layout)


def optimizer_step(
    optimizer: torch.optim.Optimizer,
    barrier: bool = False,
    optimizer_args: dict[str, Any] | None = None,
    groups: list[list[int]] | None = None,
    pin_layout: bool = True,
) -> Any:
    """Average the gradients over the replicas, then step.

    Args:
        optimizer: the optimizer to step.
        barrier: launch what was recorded, as `torch_xla.sync` does.
        optimizer_args: arguments for `optimizer.step`.
        groups: the replicas that average with each other; all by default.
        pin_layout: accepted for compatibility.

    Returns:
        What `optimizer.step` returned.
    """
    reduce_gradients(optimizer, groups, pin_layout)
    result = optimizer.step(**(optimizer_args or {}))
    if barrier:
        with _causes.because("xm.optimizer_step with barrier=True"):
            mark_step()
    return result


def _fetch_gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [
        parameter.grad
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.grad is not None
    ]


def add_step_closure(
    closure: Callable[..., Any], args: Sequence[Any] = (), run_async: bool = False
) -> None:
    """Call `closure(*args)` after the next barrier, when reading tensors costs no extra program.

    Args:
        closure: what to call.
        args: its arguments; tensors among them are computed by the barrier.
        run_async: call it in a thread of its own, so that the next step is recorded meanwhile. If
            it fails, the next barrier raises.
    """
    if not callable(closure):
        raise TypeError(f"add_step_closure: expected a function, got {type(closure).__name__}")
    _step_closures.add(_XLAC._current_device(), lambda: closure(*args), run_async)


def _run_step_closures() -> None:
    _step_closures.run(_XLAC._current_device())


def set_rng_state(seed: int, device: DeviceLike = None) -> None:
    """Set the random state of a device: a seed, or what `get_rng_state` returned."""
    state = operator.index(seed)
    if state.bit_length() >= 2 * _SEED_BITS:
        raise ValueError(f"set_rng_state: {state} is no seed and no state of get_rng_state")
    generator = _devices.generator_of(device)
    generator.manual_seed(state & ((1 << _SEED_BITS) - 1))
    generator.set_offset(state >> _SEED_BITS if state > 0 else 0)


def get_rng_state(device: DeviceLike = None) -> int:
    """The random state of a device as an integer. Runs nothing."""
    generator = _devices.generator_of(device)
    return generator.initial_seed() | generator.get_offset() << _SEED_BITS


@contextlib.contextmanager
def fork_rng(device: DeviceLike = None, enabled: bool = True) -> Iterator[None]:
    """Restore the random state of a device at the end."""
    if not enabled:
        yield
        return
    state = get_rng_state(device)
    try:
        yield
    finally:
        set_rng_state(state, device)


def get_stablehlo(tensors: Sequence[torch.Tensor] | None = None) -> str:
    """What a read of `tensors` would run, as StableHLO text; without tensors, what the next barrier
    would run. Runs nothing."""
    if tensors:
        return _XLAC._graph_of(list(tensors), "stablehlo")
    return _XLAC._pending_graph(_XLAC._current_device(), "stablehlo")


def get_stablehlo_bytecode(tensors: Sequence[torch.Tensor] | None = None) -> bytes:
    """The same as bytes: a portable artifact of StableHLO if jaxlib is installed, which writes it,
    else the text."""
    return _mlir.to_bytecode(get_stablehlo(tensors))


class MemoryInfo(TypedDict):
    """What `get_memory_info` gives, in bytes."""

    bytes_used: int
    bytes_limit: int
    peak_bytes_used: int


def get_memory_info(device: DeviceLike = None) -> MemoryInfo:
    """The device's memory in bytes: `bytes_used`, `bytes_limit` and `peak_bytes_used`."""
    return _memory.info(device)  # type: ignore[return-value]


def _maybe_convert_to_cpu(data: Any, convert: bool = True) -> Any:
    return _saving.on_cpu(data) if convert else data


def save(
    data: Any, file_or_path: Any, master_only: bool = True, global_master: bool = False
) -> None:
    """`torch.save` with all tensors moved to the CPU, so that the file loads anywhere.

    Args:
        data: what to save; tensors are found inside of containers and objects.
        file_or_path: as for `torch.save`; what a path names is replaced in one step at the end.
        master_only: write on the first replica only; all have to call it.
        global_master: the first of all replicas; by default the first of each host.

    Raises:
        RuntimeError: an xla tensor inside of `data` is a view of another one's memory.
    """
    if not master_only or is_master_ordinal(local=not global_master):
        check_view_sharing(data)
        on_cpu = _maybe_convert_to_cpu(data)
        if isinstance(file_or_path, (str, os.PathLike)):
            with _files.replacing(file_or_path) as file:
                torch.save(on_cpu, file)
        else:
            torch.save(on_cpu, file_or_path)
    rendezvous("torch_xla.core.xla_model.save")


class ToXlaTensorArena:
    """Converts the selected values inside of containers, all in one call.

    Args:
        convert_fn: takes the list of them and returns the list of what replaces them.
        select_fn: whether a value is one.
    """

    def __init__(
        self, convert_fn: Callable[[list[Any]], list[Any]], select_fn: Callable[[Any], bool]
    ) -> None:
        self._convert_fn = convert_fn
        self._select_fn = select_fn

    def transform(self, inputs: Any) -> Any:
        """`inputs` with the selected values replaced."""
        return _nested.replace(inputs, self._select_fn, self._convert_fn)


class RateTracker:
    """How many items per second: `add` them as they are done.

    Args:
        smooth_factor: how much of `rate` comes from the past; 0.4 by default.
    """

    def __init__(self, smooth_factor: float | None = None) -> None:
        self._smooth_factor = 0.4 if smooth_factor is None else smooth_factor
        self._start = self._last = time.monotonic()
        self._count = 0.0
        self._count_at_last = 0.0
        self._rate: float | None = None

    def add(self, count: float) -> None:
        self._count += count

    def rate(self) -> float:
        """Items per second since the last call, smoothed over the calls before."""
        now = time.monotonic()
        seconds, count = now - self._last, self._count - self._count_at_last
        if seconds > 0 and count > 0:
            current = count / seconds
            past = current if self._rate is None else self._rate
            self._rate = past * self._smooth_factor + current * (1 - self._smooth_factor)
            self._last, self._count_at_last = now, self._count
        return self._rate or 0.0

    def global_rate(self) -> float:
        """Items per second since the beginning."""
        seconds = time.monotonic() - self._start
        return self._count / seconds if seconds > 0 else 0.0


__getattr__ = _other_names.refusing(__name__)

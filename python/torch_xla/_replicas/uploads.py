"""Batches on their way to a device."""

from __future__ import annotations

from typing import Any

import torch

from torch_xla import _devices, _nested
from torch_xla._devices import DeviceLike


def send_cpu_data_to_device(
    datas: Any, device: DeviceLike, input_sharding: Any = None
) -> list[Any]:
    """The items of `datas` with every CPU tensor inside of them moved to the device.

    Args:
        datas: the items.
        device: the device.
        input_sharding: how the tensors lie on a mesh: a `ShardingSpec`, or for items that are dicts
            one of them with the same keys.
    """
    target = torch.device("xla", _devices.index_of(device))

    def is_on_cpu(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.device.type == "cpu"

    def move(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return [tensor.to(target) for tensor in tensors]

    moved = _nested.replace(datas, is_on_cpu, move)
    items = moved if isinstance(moved, list) else list(moved)
    if input_sharding is not None:
        from torch_xla._spmd import sharding  # seldom needed, and slow to import

        sharding.check_input_sharding("send_cpu_data_to_device", input_sharding)
        for item in items:
            sharding.mark_inputs(item, input_sharding)
    return items

"""Batches on their way to a device."""

from __future__ import annotations

from typing import Any

import torch

from torch_xla import _XLAC, _devices, _nested
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

    specs: dict[int, Any] = {}
    if input_sharding is not None:
        from torch_xla._spmd import sharding  # seldom needed, and slow to import

        sharding.check_input_sharding("send_cpu_data_to_device", input_sharding)
        datas = list(datas)
        for item in datas:
            for tensor, spec in sharding.inputs_of(item, input_sharding):
                if is_on_cpu(tensor):
                    specs[id(tensor)] = spec
                elif _XLAC._is_xla_tensor(tensor):
                    sharding.place("input_sharding", tensor, spec)

    def move(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return [
            sharding.upload("input_sharding", tensor, target, specs[id(tensor)])
            if id(tensor) in specs
            else tensor.to(target)
            for tensor in tensors
        ]

    moved = _nested.replace(datas, is_on_cpu, move)
    return moved if isinstance(moved, list) else list(moved)

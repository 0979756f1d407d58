"""Where the versions of torch that are supported differ in what torch_xla needs of them. Each
function is named by what differs, and asks torch how it is, not which version it is.
docs/dev/new_torch.md tells how to find the differences of a new version."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from torch_xla._wrapping import to_wrap


def number_fake_devices(fake_tensor: Any) -> None:
    """Let fake tensors that are made on "xla" be on the current device, "xla:0".

    Which kinds of devices have numbers is a list inside of a function, or of the constructor.

    Args:
        fake_tensor: the module `torch._subclasses.fake_tensor`.
    """
    name = "_is_indexed_device_type"
    if not hasattr(fake_tensor, name):
        _number_devices_of_constructor(fake_tensor.FakeTensor)
        return
    original = to_wrap(fake_tensor, name)

    @functools.wraps(original)
    def _is_indexed_device_type(device_type: str) -> bool:
        return device_type == "xla" or bool(original(device_type))

    setattr(fake_tensor, name, _is_indexed_device_type)


def _number_devices_of_constructor(kind: Any) -> None:
    original: Callable[..., Any] = kind.__new__

    @functools.wraps(original)
    def new(cls: Any, fake_mode: Any, elem: Any, device: Any, *args: Any, **kwargs: Any) -> Any:
        device = torch.device(device)
        if device.type == "xla" and device.index is None:
            xla = torch.get_device_module("xla")
            device = torch.device("xla", xla.current_device() if xla.is_initialized() else 0)
        return original(cls, fake_mode, elem, device, *args, **kwargs)

    kind.__new__ = staticmethod(new)


def checkpoint_generator(checkpointing: Any) -> str:
    """The name of the generator around a forward pass that is computed again without re-entering
    autograd, the first parameter of which is the user's function.

    There may be two, one that is called and one that takes the older form's parameters.

    Args:
        checkpointing: the module `torch.utils.checkpoint`.
    """
    name = "_checkpoint_without_reentrant_generator"
    inner = f"{name}_impl"
    return inner if hasattr(checkpointing, inner) else name

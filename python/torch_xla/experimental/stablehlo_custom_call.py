"""Calls of functions that a compiler knows by name, in the middle of a recorded program."""

from __future__ import annotations

from typing import Any

import torch

from torch_xla import _XLAC, _other_names
from torch_xla._custom_calls import stablehlo_custom_call as stablehlo_custom_call


class _Placed(torch.autograd.Function):
    """A note for XLA's passes that move values between memories. Gradients stay where they are."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, memory: str) -> torch.Tensor:
        placed: torch.Tensor = stablehlo_custom_call(
            [tensor],
            "annotate_device_placement",
            [tensor.shape],
            [tensor.dtype],
            has_side_effect=True,
            frontend_attributes={"_xla_buffer_placement": memory},
        )
        return placed

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad, None


def _placed(what: str, tensor: torch.Tensor, memory: str) -> torch.Tensor:
    if not _XLAC._is_xla_tensor(tensor):
        raise TypeError(f"{what}: expected an XLA tensor, got one on {tensor.device}")
    if _XLAC._platform() == "cpu":
        return tensor.clone()
    placed: torch.Tensor = _Placed.apply(tensor, memory)  # type: ignore[no-untyped-call]
    return placed


def place_to_host(t: torch.Tensor) -> torch.Tensor:
    """A value of the program that waits in the host's memory until `place_to_device` brings it
    back, as a note for the plugin's compiler. On the CPU both memories are one."""
    return _placed("place_to_host", t, "pinned_host")


def place_to_device(t: torch.Tensor) -> torch.Tensor:
    """The value of `place_to_host`, back in the device's memory."""
    return _placed("place_to_device", t, "device")


__getattr__ = _other_names.refusing(__name__)

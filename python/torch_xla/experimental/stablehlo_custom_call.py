"""Calls of functions that a compiler knows by name, in the middle of a recorded program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_xla import _XLAC
from torch_xla.core import _hlo_types
from torch_xla.experimental import mark_pattern_utils


def stablehlo_custom_call(
    args: Sequence[torch.Tensor],
    call_target: str,
    output_shapes: Sequence[Sequence[int]],
    output_dtypes: Sequence[torch.dtype],
    has_side_effect: bool = False,
    backend_config: str = "",
    api_version: int = 0,
    frontend_attributes: dict[str, str] | None = None,
) -> Any:
    """Record a `stablehlo.custom_call`.

    Args:
        args: the xla tensors that it takes; at least one.
        call_target: the name of the function. The plugin must know it when the program runs.
        output_shapes: the sizes of each result.
        output_dtypes: the dtype of each result.
        has_side_effect: keep the call although its results are not used.
        backend_config: a text for the function.
        api_version: the kind of the call, as StableHLO numbers them.
        frontend_attributes: texts by name, which XLA carries along with the call.

    Returns:
        The result, or a list of them if there are several.
    """
    for name, value in (frontend_attributes or {}).items():
        if not isinstance(value, str):
            raise TypeError(
                f"stablehlo_custom_call: frontend attribute {name!r} must be a text, got {value!r}"
            )
    if len(output_shapes) != len(output_dtypes):
        raise ValueError(
            f"stablehlo_custom_call: {len(output_shapes)} shapes and {len(output_dtypes)} dtypes"
        )
    types = _hlo_types.text_of(list(zip(output_dtypes, output_shapes, strict=True)))
    attributes = mark_pattern_utils.encoded(frontend_attributes or {})
    results = torch.ops.xla._custom_call(
        list(args), call_target, types, has_side_effect, backend_config, api_version, attributes
    )
    return results[0] if len(results) == 1 else results


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


def place_to_host(tensor: torch.Tensor) -> torch.Tensor:
    """A value of the program that waits in the host's memory until `place_to_device` brings it
    back, as a note for the plugin's compiler. On the CPU both memories are one."""
    return _placed("place_to_host", tensor, "pinned_host")


def place_to_device(tensor: torch.Tensor) -> torch.Tensor:
    """The value of `place_to_host`, back in the device's memory."""
    return _placed("place_to_device", tensor, "device")

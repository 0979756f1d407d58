"""Calls of functions that a compiler knows by name, in the middle of a recorded program, and the
attributes that these and composites carry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_xla import _hlo_types

_KINDS = {bool: "b", int: "i", float: "f", str: "s"}


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
    attributes = encoded(frontend_attributes or {})
    results = torch.ops.xla._custom_call(
        list(args), call_target, types, has_side_effect, backend_config, api_version, attributes
    )
    return results[0] if len(results) == 1 else results


def encoded(attributes: dict[str, Any]) -> str:
    """Lines "name=kind:value", as src/ops/composite.cpp reads them."""
    lines = []
    for name, value in attributes.items():
        kind = _KINDS.get(type(value))
        if kind is None or "\n" in f"{name}{value}" or "=" in name:
            raise ValueError(
                f"attribute {name!r} must be a number, a flag or a line of text, got {value!r}"
            )
        lines.append(f"{name}={kind}:{int(value) if kind == 'b' else value}")
    return "\n".join(lines)

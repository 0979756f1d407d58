"""`torch.ops.xla.dynamo_mark_sharding`: an annotation inside of a function that `torch.compile`
compiles, where only operators with plain arguments may stand."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import torch

from torch_xla import _XLAC
from torch_xla._spmd.mesh import Mesh
from torch_xla._spmd.sharding import ShardingSpec, place, spec_for

_library = torch.library.Library("xla", "FRAGMENT")
_library.define(
    "dynamo_mark_sharding(Tensor input, int[] device_ids, int[] mesh_shape, str axis_names, "
    "str partition_spec) -> Tensor"
)


def _parsed(what: str, text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError) as error:
        raise ValueError(
            f"dynamo_mark_sharding: {what} must be the text of a tuple, got {text!r}"
        ) from error


def _spec(
    input: torch.Tensor,
    device_ids: Sequence[int],
    mesh_shape: Sequence[int],
    axis_names: str,
    partition_spec: str,
) -> ShardingSpec:
    names = _parsed("axis_names", axis_names) if axis_names else None
    mesh = Mesh(device_ids, mesh_shape, names)
    entries = _parsed("partition_spec", partition_spec)
    return spec_for("dynamo_mark_sharding", input.shape, mesh, entries)


@torch.library.impl(_library, "dynamo_mark_sharding", "CompositeExplicitAutograd")
def _dynamo_mark_sharding(
    input: torch.Tensor,
    device_ids: Sequence[int],
    mesh_shape: Sequence[int],
    axis_names: str,
    partition_spec: str,
) -> torch.Tensor:
    spec = _spec(input, device_ids, mesh_shape, axis_names, partition_spec)
    result = input.clone()
    # Dynamo looks at the graph with tensors that have no data.
    if _XLAC._is_xla_tensor(input):
        place("dynamo_mark_sharding", result, spec)
    return result


def _type_of_result(input: torch.Tensor, *annotation: Any) -> torch.Tensor:
    _spec(input, *annotation)
    return torch.empty_like(input)


torch.library.register_fake("xla::dynamo_mark_sharding", _type_of_result, lib=_library)


def _differentiate(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    return grad, None, None, None, None


torch.library.register_autograd("xla::dynamo_mark_sharding", _differentiate, lib=_library)

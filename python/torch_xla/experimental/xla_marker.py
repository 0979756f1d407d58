"""`torch.ops.xla.mark_tensor`: the boundary of a composite, as torch_xla's own programs write it.
`mark_pattern_utils.StableHLOCompositeBuilder` is the comfortable way."""

from __future__ import annotations

import json
from typing import Any

import torch

from torch_xla import _custom_calls, _other_names
from torch_xla.experimental import mark_pattern_utils

_library = torch.library.Library("xla", "FRAGMENT")
_library.define(
    "mark_tensor(Tensor x, str name, int pos, str id, bool is_input, Any? attr=None) -> Tensor"
)


def serialize_composite_attr(attr: dict[str, Any]) -> str:
    """The attributes of a composite as a text, which `torch.export` can keep."""
    return json.dumps(dict(attr))


@torch.library.impl(_library, "mark_tensor", "CompositeImplicitAutograd")
def mark_tensor(
    x: torch.Tensor, name: str, pos: int, id: str, is_input: bool, attr: Any = None
) -> torch.Tensor:
    """The tensor, marked as one that a composite takes or gives.

    Args:
        x: the tensor.
        name: the composite's name, with a namespace: "vendor.norm".
        pos: the number of the input or result.
        id: what the marks of one call have in common.
        is_input: whether the composite takes or gives it.
        attr: the composite's attributes: a dictionary, or what `serialize_composite_attr` made of
            one; those of its results count.
    """
    mark_pattern_utils.check_name(name)
    attributes = json.loads(attr) if isinstance(attr, str) else dict(attr or {})
    marked: torch.Tensor = torch.ops.xla._mark_tensor(
        x, name, pos, f"{name}#{id}", is_input, _custom_calls.encoded(attributes)
    )
    return marked


__getattr__ = _other_names.refusing(__name__)

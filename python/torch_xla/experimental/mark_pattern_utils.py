"""Operations that belong together, as one StableHLO composite of an exported program."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from torch_xla import _custom_calls

_numbers = itertools.count()


class StableHLOCompositeBuilder:
    """Marks what a composite takes and gives; what is computed in between is its meaning.

    Use one builder per call of the composite. Only exported programs have composites; elsewhere
    the marks are nothing.

    Args:
        name: the composite's name, with a namespace: "vendor.norm".
        attr: numbers, texts and flags that the composite carries.
        skip_inlining: accepted for compatibility; composites are never inlined here.
    """

    def __init__(
        self, name: str, attr: dict[str, Any] | None = None, skip_inlining: bool = False
    ) -> None:
        del skip_inlining
        check_name(name)
        self._name = name
        self._id = f"{name}#{next(_numbers)}"
        self._attributes = _custom_calls.encoded(attr or {})

    def mark_inputs(self, *tensors: torch.Tensor) -> Any:
        """The tensors, marked: compute the composite from what this returns."""
        return self._mark(tensors, is_input=True)

    def mark_outputs(self, *tensors: torch.Tensor) -> Any:
        """The results, marked: go on with what this returns."""
        return self._mark(tensors, is_input=False)

    def _mark(self, tensors: tuple[torch.Tensor, ...], is_input: bool) -> Any:
        marked = [
            torch.ops.xla._mark_tensor(
                tensor, self._name, position, self._id, is_input, self._attributes
            )
            for position, tensor in enumerate(tensors)
        ]
        return marked[0] if len(marked) == 1 else tuple(marked)


def check_name(name: str) -> None:
    if "." not in name.strip("."):
        raise ValueError(f"a composite's name must look like vendor.op, got {name!r}")

"""`_XLAC.lowering`: the program that computes some tensors, as an object to ask."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torch_xla import _XLAC


class LoweringContext:
    """The program that computes the tensors given to `build`.

    Args:
        name: the program's name, for messages.
    """

    def __init__(self, name: str = "FnModule") -> None:
        self.name = name
        self._text: str | None = None
        self._ids: list[int] = []
        self._leaves: list[torch.Tensor] = []
        self._tensors: list[torch.Tensor] = []

    def build(self, tensors: Sequence[torch.Tensor]) -> None:
        """Lower what computes the tensors: a program from the values that exist now."""
        self._tensors = list(tensors)
        self._ids, self._leaves = _XLAC._get_tensors_xla_device_data_node(self._tensors)
        self._text, captured = _XLAC._export(self._tensors, self._leaves)
        self._leaves += captured

    def _built(self) -> str:
        if self._text is None:
            raise RuntimeError(f"LoweringContext {self.name}: call build() first")
        return self._text

    def hlo(self) -> bytes:
        """The program in StableHLO, as a portable artifact where jaxlib is there to write it."""
        from torch_xla import _mlir

        return _mlir.to_bytecode(self._built())

    def stablehlo_text(self) -> str:
        """The program in StableHLO."""
        return self._built()

    def hlo_text(self) -> str:
        """The program as XLA's own text."""
        self._built()
        return _XLAC._get_xla_tensors_hlo(self._tensors)

    def parameter_id_tensor_mapping(self) -> dict[int, torch.Tensor]:
        """The values of the program's parameters, by their numbers."""
        self._built()
        return dict(enumerate(self._leaves))

    def device_parameter_id_tensor_mapping(self) -> dict[int, torch.Tensor]:
        """The same: every parameter is on the device."""
        return self.parameter_id_tensor_mapping()

    def tensor_parameter_id(self, tensor: torch.Tensor) -> int:
        """The number of the parameter that is `tensor`, or -1."""
        self._built()
        wanted = _XLAC._xla_get_tensor_id(tensor)
        return self._ids.index(wanted) if wanted in self._ids else -1

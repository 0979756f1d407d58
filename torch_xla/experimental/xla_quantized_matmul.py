"""Linear layers whose weight is kept in int8, with a factor for each output."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

_library = torch.library.Library("xla", "FRAGMENT")
_library.define(
    "quantized_matmul(Tensor x, Tensor w, Tensor scale, Tensor? zero_point=None, "
    "int block_size=-1, bool int4_weight=False) -> Tensor"
)


def _check_form(what: str, block_size: int, int4_weight: bool) -> None:
    if block_size != -1 or int4_weight:
        raise NotImplementedError(
            f"{what}: weights are int8 with a factor for each output; got "
            f"block_size={block_size}, int4_weight={int4_weight}"
        )


@torch.library.impl(_library, "quantized_matmul", "CompositeImplicitAutograd")
def quantized_matmul(
    x: Tensor,
    w: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    block_size: int = -1,
    int4_weight: bool = False,
) -> Tensor:
    """`x` times the transposed weight that `w` stands for, which is `(w - zero_point) * scale`.

    Args:
        x: a tensor [..., inputs] of floats.
        w: the weight in int8, [outputs, inputs].
        scale: a factor for each output.
        zero_point: what stands for zero in each output's row; 0 by default.
        block_size: -1: one factor for the whole row, which is the form that there is.
        int4_weight: must be false.
    """
    _check_form("quantized_matmul", block_size, int4_weight)
    if w.dtype != torch.int8:
        raise TypeError(f"quantized_matmul: expected a weight of int8, got {w.dtype}")
    if w.dim() != 2 or scale.shape != w.shape[:1]:
        raise ValueError(
            f"quantized_matmul: expected a weight [outputs, inputs] and a factor for each output, "
            f"got {tuple(w.shape)} and {tuple(scale.shape)}"
        )
    product = functional.linear(x, w.to(x.dtype))
    if zero_point is not None:
        product = product - x.sum(dim=-1, keepdim=True) * zero_point.to(x.dtype)
    return product * scale.to(x.dtype)


class XlaQuantizedLinear(nn.Module):
    """A linear layer without bias for inference; `load_quantized_weight` gives it its weight.

    Args:
        input_dim: how many inputs, and
        output_dim: outputs it has.
        is_symmetric: zero is 0; else each output has a zero point.
        block_size: -1: one factor for the whole row, which is the form that there is.
        int4_weight: must be false.
    """

    weight: Tensor
    weight_scaler: Tensor
    zero_point: Tensor | None

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        is_symmetric: bool = True,
        block_size: int = -1,
        int4_weight: bool = False,
    ) -> None:
        super().__init__()
        _check_form("XlaQuantizedLinear", block_size, int4_weight)
        self.register_buffer("weight", torch.zeros(output_dim, input_dim, dtype=torch.int8))
        self.register_buffer("weight_scaler", torch.ones(output_dim))
        self.register_buffer("zero_point", None if is_symmetric else torch.zeros(output_dim))

    def load_quantized_weight(
        self, weight: Tensor, weight_scaler: Tensor, zero_point: Tensor | None = None
    ) -> None:
        """Copy the weight, its factors and, when the layer is not symmetric, its zero points."""
        if (zero_point is None) != (self.zero_point is None):
            raise ValueError(
                "load_quantized_weight: a zero point is for layers with is_symmetric=False, and "
                "for those only"
            )
        with torch.no_grad():
            self.weight.copy_(weight)
            self.weight_scaler.copy_(weight_scaler)
            if self.zero_point is not None and zero_point is not None:
                self.zero_point.copy_(zero_point)

    def forward(self, x: Tensor) -> Tensor:
        """`x` times the transposed weight."""
        return quantized_matmul(x, self.weight, self.weight_scaler, self.zero_point)

"""Linear layers whose weight is kept in int8, with a factor for each output and block of inputs.

What a weight stands for is `w * scaler - zero_point`: zero points are not in units of the integers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from torch_xla import _other_names

_library = torch.library.Library("xla", "FRAGMENT")
_library.define(
    "quantized_matmul(Tensor x, Tensor w, Tensor scaler, Tensor? zero_point=None, "
    "int block_size=-1, bool int4_weight=False, bool quantize_activation=False) -> Tensor"
)


def _shapes(
    what: str, input_dim: int, output_dim: int, block_size: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of a weight and of its factors."""
    if block_size == -1:
        return (output_dim, input_dim), (output_dim,)
    if block_size < 1 or input_dim % block_size:
        raise ValueError(
            f"{what}: block_size must divide the {input_dim} inputs, or be -1, got {block_size}"
        )
    blocks = input_dim // block_size
    return (blocks, block_size, output_dim), (blocks, output_dim)


def _check(
    what: str, input_dim: int, block_size: int, w: Tensor, scale: Tensor, zero_point: Tensor | None
) -> None:
    if w.dtype != torch.int8:
        raise TypeError(f"{what}: expected a weight of int8, got {w.dtype}")
    output_dim = w.shape[0] if block_size == -1 and w.dim() else scale.shape[-1]
    shape, factors = _shapes(what, input_dim, output_dim, block_size)
    for name, tensor, expected in (
        ("weight", w, shape),
        ("scale", scale, factors),
        ("zero_point", zero_point, factors),
    ):
        if tensor is not None and tuple(tensor.shape) != expected:
            raise ValueError(
                f"{what}: expected a {name} of shape {expected}, got {tuple(tensor.shape)}"
            )


def _in_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Each row as whole numbers up to 127, and the row's factor."""
    factor = x.abs().amax(dim=-1, keepdim=True) / 127
    factor = torch.where(factor == 0, 1, factor)
    return (x / factor).round().clamp(-128, 127).to(torch.int32), factor


@torch.library.impl(_library, "quantized_matmul", "CompositeImplicitAutograd")
def quantized_matmul(
    x: Tensor,
    w: Tensor,
    scaler: Tensor,
    zero_point: Tensor | None = None,
    block_size: int = -1,
    int4_weight: bool = False,
    quantize_activation: bool = False,
) -> Tensor:
    """`x` times the transposed weight that `w` stands for.

    Args:
        x: a tensor [..., inputs] of floats.
        w: the weight in int8: [outputs, inputs], or with a `block_size`
            [inputs / block_size, block_size, outputs].
        scaler: factors: [outputs], or [inputs / block_size, outputs].
        zero_point: what is subtracted from the scaled weight, of the same shape as `scaler`.
        block_size: how many inputs have a factor together; -1: all of them.
        int4_weight: the weight's numbers are from -8 to 7. They are kept in int8 all the same.
        quantize_activation: round `x` to int8 first, with a factor for each row, and multiply whole
            numbers; not with a `block_size`.
    """
    what = "quantized_matmul"
    del int4_weight
    _check(what, x.shape[-1], block_size, w, scaler, zero_point)
    if block_size != -1:
        if quantize_activation:
            raise ValueError(f"{what}: quantize_activation needs one factor per output")
        blocks = x.unflatten(-1, (-1, block_size))
        products = torch.einsum("...bi,bio->...bo", blocks, w.to(x.dtype))
        result = (products * scaler.to(x.dtype)).sum(dim=-2)
        if zero_point is not None:
            result = result - blocks.sum(dim=-1) @ zero_point.to(x.dtype)
        return result
    rows, factor = _in_int8(x) if quantize_activation else (x, None)
    result = functional.linear(rows, w.to(rows.dtype)).to(x.dtype) * scaler.to(x.dtype)
    if zero_point is not None:
        sums = rows.sum(dim=-1, keepdim=True).to(x.dtype)
        result = result - sums * zero_point.to(x.dtype)
    return result if factor is None else result * factor


class XlaQuantizedLinear(nn.Module):
    """A linear layer without bias for inference; `load_quantized_weight` gives it its weight.

    Args:
        input_dim: how many inputs, and
        output_dim: outputs it has.
        is_symmetric: there are no zero points.
        block_size, int4_weight, quantize_activation: as for `quantized_matmul`.
    """

    weight: Tensor
    weight_scaler: Tensor
    zero_point: Tensor | None

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        is_symmetric: bool = False,
        block_size: int = -1,
        int4_weight: bool = False,
        quantize_activation: bool = False,
    ) -> None:
        super().__init__()
        shape, factors = _shapes("XlaQuantizedLinear", input_dim, output_dim, block_size)
        self.input_dim, self.output_dim, self.is_symmetric = input_dim, output_dim, is_symmetric
        self.block_size, self.int4_weight = block_size, int4_weight
        self.quantize_activation = quantize_activation
        self.register_buffer("weight", torch.zeros(shape, dtype=torch.int8))
        self.register_buffer("weight_scaler", torch.zeros(factors))
        self.register_buffer("zero_point", None if is_symmetric else torch.zeros(factors))

    def load_quantized_weight(
        self, weight: Tensor, weight_scaler: Tensor, zero_point: Tensor | None = None
    ) -> None:
        """Take the weight, its factors and, unless they are nothing, its zero points. They move to
        the device that the layer is on.

        Raises:
            TypeError, ValueError: they are not of the types and shapes of the layer.
        """
        what, device = "load_quantized_weight", self.weight.device
        _check(what, self.input_dim, self.block_size, weight, weight_scaler, zero_point)
        if weight_scaler.shape[-1] != self.output_dim:
            raise ValueError(
                f"{what}: expected {self.output_dim} outputs, got {weight_scaler.shape[-1]}"
            )
        if zero_point is not None and self.is_symmetric:
            raise ValueError(f"{what}: a zero point is for layers with is_symmetric=False")
        self.weight = weight.to(device)
        self.weight_scaler = weight_scaler.to(device)
        self.zero_point = None if zero_point is None else zero_point.to(device)

    def forward(self, x: Tensor) -> Tensor:
        """`x` times the transposed weight."""
        product: Tensor = torch.ops.xla.quantized_matmul(
            x,
            self.weight,
            self.weight_scaler,
            self.zero_point,
            self.block_size,
            self.int4_weight,
            self.quantize_activation,
        )
        return product


__getattr__ = _other_names.refusing(__name__)

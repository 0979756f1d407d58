"""Quantized numbers, as PyTorch's `quantized_decomposed` operators have them, under the names of
torch_xla. They are in ordinary integer tensors."""

from __future__ import annotations

import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor


def xla_quantize_per_tensor(
    input: Tensor,
    scale: float,
    zero_point: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Tensor:
    """`clamp(round(input / scale) + zero_point, quant_min, quant_max)` in an integer dtype."""
    quantized: Tensor = torch.ops.quantized_decomposed.quantize_per_tensor(
        input, scale, zero_point, quant_min, quant_max, dtype
    )
    return quantized


def xla_quantize_per_channel(
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Tensor:
    """As `xla_quantize_per_tensor`, with a scale and zero point for each index of `axis`."""
    quantized: Tensor = torch.ops.quantized_decomposed.quantize_per_channel(
        input, scale, zero_point, axis, quant_min, quant_max, dtype
    )
    return quantized


def xla_dequantize_per_tensor(
    input: Tensor,
    scale: float,
    zero_point: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Tensor:
    """`(input - zero_point) * scale` in float32, of a tensor of `dtype`."""
    values: Tensor = torch.ops.quantized_decomposed.dequantize_per_tensor(
        input, scale, zero_point, quant_min, quant_max, dtype
    )
    return values


def xla_dequantize_per_channel(
    input: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> Tensor:
    """As `xla_dequantize_per_tensor`, with a scale and zero point for each index of `axis`."""
    values: Tensor = torch.ops.quantized_decomposed.dequantize_per_channel(
        input, scale, zero_point, axis, quant_min, quant_max, dtype
    )
    return values

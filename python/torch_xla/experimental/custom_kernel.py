"""Kernels that other implementations write in Pallas for the TPU, as ordinary operators, which XLA
compiles for any device. They give the same results; how fast they are is XLA's matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor


def _needs_pallas(name: str) -> NoReturn:
    raise NotImplementedError(
        f"{name}: Pallas kernels are compiled by JAX for the TPU, which this package does not use; "
        "write the computation with PyTorch's operators, which XLA compiles"
    )


def make_kernel_from_pallas(
    kernel: Callable[..., Any], output_shape_dtype_fn: Callable[..., Any]
) -> NoReturn:
    """Not here: raises NotImplementedError."""
    del kernel, output_shape_dtype_fn
    _needs_pallas("make_kernel_from_pallas")


def trace_pallas(
    kernel: Callable[..., Any],
    *args: Any,
    static_argnums: Any = None,
    static_argnames: Any = None,
    use_cache: bool = False,
    **kwargs: Any,
) -> NoReturn:
    """Not here: raises NotImplementedError."""
    del kernel, args, static_argnums, static_argnames, use_cache, kwargs
    _needs_pallas("trace_pallas")


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    q_segment_ids: Tensor | None = None,
    kv_segment_ids: Tensor | None = None,
    sm_scale: float = 1.0,
    *,
    ab: Tensor | None = None,
    partition_spec: Any = None,
    mesh: Any = None,
) -> Tensor:
    """`softmax(sm_scale * q @ k^T + ab) @ v`, per head.

    Args:
        q: queries, of sizes (batch, heads, queries, size).
        k: keys, (batch, heads, keys, size).
        v: values, as the keys.
        causal: a query sees no later key.
        q_segment_ids: (batch, queries); a query sees the keys of its own segment only.
        kv_segment_ids: (batch, keys).
        sm_scale: what scores are multiplied by.
        ab: what is added to them.
        partition_spec: how the operands lie on `mesh`; kept for compatibility.
        mesh: the devices.

    Raises:
        ValueError: one kind of segment ids comes without the other.
    """
    del partition_spec, mesh
    if (q_segment_ids is None) != (kv_segment_ids is None):
        raise ValueError("flash_attention: expected both q_segment_ids and kv_segment_ids, or none")
    bias = ab
    lowest = torch.finfo(torch.float32).min
    if q_segment_ids is not None and kv_segment_ids is not None:
        is_other = q_segment_ids[:, None, :, None] != kv_segment_ids[:, None, None, :]
        mask = torch.zeros_like(is_other, dtype=q.dtype).masked_fill(is_other, lowest)
        bias = mask if bias is None else bias + mask
    if causal:
        later = torch.ones(q.size(2), k.size(2), dtype=torch.bool, device=q.device).triu(1)
        mask = torch.zeros_like(later, dtype=q.dtype).masked_fill(later, lowest)
        bias = mask if bias is None else bias + mask
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=sm_scale)


class FlashAttention:
    """`flash_attention` under the name by which programs call it as an autograd function."""

    @staticmethod
    def apply(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        causal: bool = False,
        q_segment_ids: Tensor | None = None,
        kv_segment_ids: Tensor | None = None,
        sm_scale: float = 1.0,
        ab: Tensor | None = None,
        partition_spec: Any = None,
        mesh: Any = None,
        *rest: Any,
    ) -> Tensor:
        """As `flash_attention`, with every argument by position."""
        del rest
        return flash_attention(
            q,
            k,
            v,
            causal,
            q_segment_ids,
            kv_segment_ids,
            sm_scale,
            ab=ab,
            partition_spec=partition_spec,
            mesh=mesh,
        )


def gmm(
    lhs: Tensor,
    rhs: Tensor,
    group_sizes: Tensor,
    tiling: tuple[int, int, int] = (512, 512, 512),
) -> Tensor:
    """Rows of `lhs` in consecutive groups, each multiplied by its own matrix.

    Args:
        lhs: (rows, inner), float32, bfloat16 or float16.
        rhs: (groups, inner, columns).
        group_sizes: how many rows each group has; together as many as there are.
        tiling: accepted for compatibility.
    """
    del tiling
    return torch._grouped_mm(lhs, rhs, offs=group_sizes.cumsum(0, dtype=torch.int32))


def tgmm(
    lhs: Tensor,
    rhs: Tensor,
    group_sizes: Tensor,
    tiling: tuple[int, int, int] = (512, 512, 512),
) -> Tensor:
    """Columns of `lhs` and rows of `rhs` in consecutive groups: a product per group.

    Args:
        lhs: (inner, rows), float32, bfloat16 or float16.
        rhs: (rows, columns).
        group_sizes: how many of the rows each group has.
        tiling: accepted for compatibility.
    """
    del tiling
    return torch._grouped_mm(lhs, rhs, offs=group_sizes.cumsum(0, dtype=torch.int32))

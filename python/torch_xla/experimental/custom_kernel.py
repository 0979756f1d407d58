"""Kernels that other implementations write in Pallas for the TPU, as ordinary operators, which XLA
compiles for any device. They give the same results; how fast they are is XLA's matter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor

from torch_xla import _other_names

# What scores that do not count were set to.
DEFAULT_MASK_VALUE = -0.7 * float(torch.finfo(torch.float32).max)


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

    # The sizes of a Pallas kernel's blocks, which programs read and set. XLA chooses its own.
    DEFAULT_BLOCK_SIZES: ClassVar[dict[str, int]] = dict.fromkeys(
        (
            *("block_q", "block_k_major", "block_k", "block_b", "block_q_major_dkv"),
            *("block_k_major_dkv", "block_k_dkv", "block_q_dkv", "block_k_major_dq", "block_k_dq"),
            "block_q_dq",
        ),
        512,
    )
    prepare_segment_ids = _other_names.Refused(
        "torch_xla.experimental.custom_kernel.FlashAttention.prepare_segment_ids",
        "masks are made of segment ids as they are",
        "pass q_segment_ids and kv_segment_ids",
    )
    forward = backward = _other_names.Refused(
        "torch_xla.experimental.custom_kernel.FlashAttention.forward",
        "the class has one way in, and PyTorch's operators have the gradient",
        "call FlashAttention.apply or flash_attention",
    )

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


def _check_offset(what: str, group_offset: Any) -> None:
    if group_offset is not None and not (isinstance(group_offset, int) and group_offset == 0):
        raise NotImplementedError(
            f"{what}: a group_offset is for groups that are spread over devices, which are not so "
            f"here; got {group_offset!r}, expected None"
        )


def gmm(
    lhs: Tensor,
    rhs: Tensor,
    group_sizes: Tensor,
    tiling: tuple[int, int, int] | None = None,
    group_offset: Tensor | int | None = None,
    transpose_rhs: bool = False,
) -> Tensor:
    """Rows of `lhs` in consecutive groups, each multiplied by its own matrix.

    Args:
        lhs: (rows, inner), float32, bfloat16 or float16.
        rhs: (groups, inner, columns), or with `transpose_rhs` (groups, columns, inner).
        group_sizes: how many rows each group has; together as many as there are.
        tiling: accepted for compatibility.
        group_offset: None.
        transpose_rhs: multiply by the transposed matrices.

    Raises:
        NotImplementedError: there is a `group_offset`.
    """
    del tiling
    _check_offset("gmm", group_offset)
    matrices = rhs.mT if transpose_rhs else rhs
    return torch._grouped_mm(lhs, matrices, offs=group_sizes.cumsum(0, dtype=torch.int32))


def tgmm(
    lhs: Tensor,
    rhs: Tensor,
    group_sizes: Tensor,
    tiling: tuple[int, int, int] = (512, 512, 512),
    group_offset: Tensor | int | None = None,
    num_actual_groups: int | None = None,
) -> Tensor:
    """Columns of `lhs` and rows of `rhs` in consecutive groups: a product per group.

    Args:
        lhs: (inner, rows), float32, bfloat16 or float16.
        rhs: (rows, columns).
        group_sizes: how many of the rows each group has.
        tiling: accepted for compatibility.
        group_offset: None.
        num_actual_groups: None, or how many groups there are.

    Raises:
        NotImplementedError: there is a `group_offset`, or `num_actual_groups` is another number.
    """
    del tiling
    _check_offset("tgmm", group_offset)
    if num_actual_groups not in (None, group_sizes.shape[0]):
        raise NotImplementedError(
            f"tgmm: all {group_sizes.shape[0]} groups are here; got num_actual_groups="
            f"{num_actual_groups}"
        )
    return torch._grouped_mm(lhs, rhs, offs=group_sizes.cumsum(0, dtype=torch.int32))


def gmm_backward(
    grad: Tensor,
    lhs: Tensor,
    rhs: Tensor,
    group_sizes: Tensor,
    tiling: tuple[int, int, int] = (512, 512, 512),
) -> tuple[Tensor, Tensor]:
    """The gradients of `gmm`'s `lhs` and `rhs`, given that of its result."""
    del tiling
    return (
        gmm(grad, rhs, group_sizes, transpose_rhs=True),
        tgmm(lhs.t().contiguous(), grad, group_sizes),
    )


class GMM(torch.autograd.Function):
    """`gmm` as an autograd function."""

    @staticmethod
    def forward(
        ctx: Any,
        lhs: Tensor,
        rhs: Tensor,
        group_sizes: Tensor,
        tiling: tuple[int, int, int] = (512, 512, 512),
    ) -> Tensor:
        ctx.save_for_backward(lhs, rhs, group_sizes)
        return gmm(lhs, rhs, group_sizes, tiling)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        lhs_grad, rhs_grad = gmm_backward(grad_output, *ctx.saved_tensors)
        return lhs_grad, rhs_grad, None, None


def repeat_with_fixed_output_size(
    input: Tensor, repeats: Tensor, total_repeat_length: int
) -> Tensor:
    """`input[i]` as often as `repeats[i]` says, `total_repeat_length` in all: a size that is known
    before the repeats are."""
    ends = repeats.cumsum(0)
    places = torch.arange(total_repeat_length, device=input.device)
    return input[torch.searchsorted(ends, places, right=True).clamp(max=input.shape[0] - 1)]


def safe_empty_like(tensor: Tensor | None) -> Tensor | None:
    """`torch.empty_like`, and None of None."""
    return None if tensor is None else torch.empty_like(tensor)


def generate_ctx_need_grad(*args: Any) -> list[bool]:
    """Of each argument whether it is a tensor that requires a gradient."""
    return [isinstance(arg, Tensor) and arg.requires_grad for arg in args]


def convert_torch_dtype_to_jax(dtype: torch.dtype) -> Any:
    """The dtype by which JAX knows it; needs the package `jax`."""
    import jax.numpy as jnp

    return jnp.dtype("bool" if dtype == torch.bool else str(dtype).removeprefix("torch."))


def to_jax_shape_dtype_struct(tensor: Tensor) -> Any:
    """The type of a tensor as JAX has it; needs the package `jax`."""
    import jax

    return jax.ShapeDtypeStruct(tuple(tensor.shape), convert_torch_dtype_to_jax(tensor.dtype))


__getattr__ = _other_names.refusing(__name__)

"""Linear layers that keep their input's dimensions apart, so that each can lie along an axis of a
mesh: PyTorch's flattens all but the last."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from torch_xla import _other_names
from torch_xla._capture.optimization_barrier import optimization_barrier_


def xla_patched_nn_linear_forward(m: nn.Linear, input: Tensor) -> Tensor:
    """What `m(input)` gives."""
    product = torch.einsum("...n,mn->...m", input, m.weight)
    return product if m.bias is None else product + m.bias


class XLAPatchedLinear:
    """`torch.nn.functional.linear` under the name by which programs call it as an autograd
    function."""

    forward = backward = _other_names.Refused(
        "torch_xla.distributed.spmd.XLAPatchedLinear.forward",
        "the class has one way in, and the product has PyTorch's gradient",
        "call XLAPatchedLinear.apply",
    )

    @staticmethod
    def apply(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """`input @ weight.T + bias`."""
        product = torch.einsum("...n,mn->...m", input, weight)
        return product if bias is None else product + bias


class EinsumLinear(nn.Linear):
    """`torch.nn.Linear` by one einsum."""

    def forward(self, input: Tensor) -> Tensor:
        """`input @ weight.T + bias`."""
        return xla_patched_nn_linear_forward(self, input)


def apply_xla_patch_to_nn_linear(
    module: nn.Module, patched_function: Any = xla_patched_nn_linear_forward
) -> nn.Module:
    """Let the linear layers of a module compute by `patched_function`.

    Args:
        module: the module.
        patched_function: takes the layer and its input.

    Returns:
        The module.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"apply_xla_patch_to_nn_linear: expected a module, got {module!r}")
    for child in module.modules():
        if isinstance(child, nn.Linear):
            child.forward = patched_function.__get__(child)  # type: ignore[method-assign]
    return module


def apply_backward_optimization_barrier(m: torch.nn.Module) -> Any:
    """Keep the compiler from moving a module's backward pass into that of others: the gradients
    that leave it go through a barrier.

    Returns:
        The hook's handle; `remove()` takes it away.
    """

    def hook(module: Any, grad_inputs: Any, grad_outputs: Any) -> None:
        del module, grad_outputs
        ours = [g for g in grad_inputs if g is not None and g.device.type == "xla"]
        if ours:
            optimization_barrier_(ours)

    return m.register_full_backward_hook(hook)

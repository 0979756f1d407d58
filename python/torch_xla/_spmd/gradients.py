"""Gradients lie as the parameters that they are of, also in a program that has no optimizer in it,
which tells nothing of how a gradient is to lie. A hook says it of each gradient's memory: once, as
what is said of memory holds for what is added to it."""

from __future__ import annotations

import torch
from torch.utils.weak import WeakIdKeyDictionary

from torch_xla import _XLAC

# The keys are parameters whose gradients others place.
_left: WeakIdKeyDictionary = WeakIdKeyDictionary()


def place_gradient(t: torch.Tensor) -> None:
    """Say that a parameter's gradient lies as the parameter, if that is said or known."""
    grad = t.grad
    if grad is None or not _XLAC._is_xla_tensor(t) or not _XLAC._is_xla_tensor(grad):
        return
    sharding = _XLAC._sharding_of(t)
    if not sharding or _XLAC._marked_sharding(grad) == sharding:
        return
    if _XLAC._is_view(grad) or _XLAC._kind_of_data(grad) == "array":
        # A layer's in `scan_layers` is a part of memory that lies otherwise; those of compiled
        # graphs have been computed. A copy is neither, and is divided on the devices.
        grad = t.grad = grad.clone()
    _XLAC._mark_sharding(grad, sharding)


def leave(t: torch.Tensor) -> None:
    """Leave a parameter's gradients to the caller."""
    _left[t] = None


def follow(t: torch.Tensor) -> None:
    """Place the gradient that a tensor has, and those that it will have. Nothing, if it has none,
    or nothing is said or known of the tensor."""
    is_parameter = isinstance(t, torch.nn.Parameter) and t.is_floating_point()
    if not t.is_leaf or not (t.requires_grad or is_parameter):
        return
    if not _XLAC._is_xla_tensor(t) or not _XLAC._sharding_of(t):
        return
    place_gradient(t)
    hooks = t._post_accumulate_grad_hooks or {}
    if t in _left or place_gradient in hooks.values():
        return
    requires_grad = t.requires_grad
    # PyTorch refuses hooks of parameters that are frozen, which may not stay so.
    t.requires_grad_()
    t.register_post_accumulate_grad_hook(place_gradient)
    t.requires_grad_(requires_grad)

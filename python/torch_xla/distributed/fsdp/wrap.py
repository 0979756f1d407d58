"""Which modules of a model are wrapped on their own: the policies that `auto_wrap_policy` takes.

A policy is called with `recurse=True` to ask whether to look inside of a module, and with
`recurse=False` to ask whether to wrap it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

Policy = Callable[..., bool]


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Every module."""
    del args, kwargs
    return True


def lambda_auto_wrap_policy(
    module: nn.Module, recurse: bool, unwrapped_params: int, lambda_fn: Callable[[nn.Module], bool]
) -> bool:
    """The modules that `lambda_fn` says."""
    del unwrapped_params
    return recurse or lambda_fn(module)


def transformer_auto_wrap_policy(
    module: nn.Module,
    recurse: bool,
    unwrapped_params: int,
    transformer_layer_cls: set[type[nn.Module]],
) -> bool:
    """The modules of these classes."""
    del unwrapped_params
    return recurse or isinstance(module, tuple(transformer_layer_cls))


def size_based_auto_wrap_policy(
    module: nn.Module,
    recurse: bool,
    unwrapped_params: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: set[type[nn.Module]] | None = None,
    exclude_wrap_modules: set[type[nn.Module]] | None = None,
) -> bool:
    """Modules with that many parameters that no wrapped module inside has.

    Args:
        module: the module.
        recurse: whether the question is to look inside.
        unwrapped_params: how many of its parameters are not in a wrapped module.
        min_num_params: how many it takes.
        force_leaf_modules: classes to keep whole; multi-head attention by default.
        exclude_wrap_modules: classes to look into and not to wrap; lists and dicts of modules by
            default.
    """
    leaves = force_leaf_modules or {nn.MultiheadAttention}
    excluded = exclude_wrap_modules or {nn.ModuleList, nn.ModuleDict}
    is_large = unwrapped_params >= min_num_params
    if recurse:
        return is_large and not isinstance(module, tuple(leaves))
    return is_large and not isinstance(module, tuple(excluded))


def recursive_wrap(
    module: nn.Module,
    auto_wrap_policy: Policy,
    wrapper_cls: Callable[..., nn.Module],
    ignored_modules: set[nn.Module] | None = None,
    ignored_params: set[nn.Parameter] | None = None,
    only_wrap_children: bool = False,
    **kwargs: Any,
) -> tuple[nn.Module, int]:
    """Wrap the modules inside of `module` that the policy chooses, innermost first.

    Args:
        module: the module.
        auto_wrap_policy: the policy.
        wrapper_cls: what wraps a module: a class, or a function.
        ignored_modules: modules to leave alone, with what is inside.
        ignored_params: parameters that do not count.
        only_wrap_children: do not wrap `module` itself.
        kwargs: arguments for `wrapper_cls`.

    Returns:
        The module, wrapped or not, and how many parameters are in wrapped modules.
    """
    ignored = ignored_modules or set()
    counted = [p for p in module.parameters() if p not in (ignored_params or set())]
    total = sum(p.numel() for p in counted)
    if not auto_wrap_policy(module=module, recurse=True, unwrapped_params=total):
        return module, 0
    num_wrapped = 0
    for name, child in module.named_children():
        if child in ignored:
            continue
        wrapped, count = recursive_wrap(
            child, auto_wrap_policy, wrapper_cls, ignored, ignored_params, **kwargs
        )
        setattr(module, name, wrapped)
        num_wrapped += count
    rest = total - num_wrapped
    if only_wrap_children or not auto_wrap_policy(
        module=module, recurse=False, unwrapped_params=rest
    ):
        return module, num_wrapped
    return wrapper_cls(module, **kwargs), total

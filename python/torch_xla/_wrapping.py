"""The check that a function of torch that we wrap (docs/what_import_changes.md) is there, and that
what should call it does: most are no part of torch's interface, and where a new version calls
another one, ours would have no effect, without a word."""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import Any

import torch


def _name_of(owner: Any) -> str:
    name: str = getattr(owner, "__qualname__", owner.__name__)
    return f"{owner.__module__}.{name}" if hasattr(owner, "__module__") else name


def _names_in(code: CodeType) -> set[str]:
    """What a function's code names, that of the functions inside it included."""
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_names_in, inner))


def _names_behind(caller: Any) -> set[str]:
    """What a function names, and the functions of its module that it names do."""
    names: set[str] = set()
    left = [caller]
    while left:
        function = left.pop()
        while hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        new = _names_in(function.__code__) - names
        names |= new
        known = (function.__globals__.get(name) for name in new)
        left += [
            each
            for each in known
            if isinstance(each, FunctionType) and each.__module__ == function.__module__
        ]
    return names


def is_called(name: str, caller: Any) -> bool:
    """Whether the Python function `caller`, or one of its module behind it, names `name`."""
    return name in _names_behind(caller)


def to_wrap(owner: Any, name: str, *callers: Any) -> Any:
    """The function `owner.name` of torch, which is about to be wrapped.

    Args:
        owner: a module or a class.
        name: of the function.
        callers: Python functions of torch that must call it, themselves or by other functions of
            their module, for it to be worth wrapping.

    Raises:
        ImportError: there is no such function, or a caller does not call it.
    """
    function = getattr(owner, name, None)
    if not callable(function):
        raise ImportError(_message(f"{_name_of(owner)} has no function {name}"))
    for caller in callers:
        if not is_called(name, caller):
            raise ImportError(_message(f"{_name_of(caller)} does not call {name}"))
    return function


def _message(what: str) -> str:
    return (
        f"torch {torch.__version__} is not one that torch_xla knows: {what}. Install a version "
        "that it supports, or a newer torch_xla (docs/dev/new_torch.md says what to mend)"
    )

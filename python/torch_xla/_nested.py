"""Finds and replaces values inside of nested containers: what `xm.save` and
`xm.send_cpu_data_to_device` do to tensors."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

# Containers are entered; so are objects by their attributes, since checkpoints hold modules and
# configurations as such. These are not: they are values.
_VALUES = (
    *(str, bytes, int, float, complex, bool, type(None), type),
    *(types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType),
)


def walk(data: Any, select: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    """The selected values inside of `data`, each once, with the path to it: "model.layers[0]"."""
    visited: dict[int, Any] = {}

    def visit(path: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, _VALUES) or id(value) in visited:
            return
        visited[id(value)] = value
        if select(value):
            yield path, value
            return
        for name, item in _items(value):
            yield from visit(path + name if name[0] == "[" or path else name.lstrip("."), item)

    yield from visit("", data)


def replace(
    data: Any, select: Callable[[Any], bool], convert: Callable[[list[Any]], list[Any]]
) -> Any:
    """A copy of `data` in which `convert` replaced the selected values, all in one call.

    Containers without any are not copied. What is in two places stays one.
    """
    found = [value for _, value in walk(data, select)]
    if not found:
        return data
    converted = dict(zip(map(id, found), convert(found), strict=True))
    return _rebuild(data, converted, {})


def _items(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(f".{key}", item) for key, item in value.items()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [(f"[{i}]", item) for i, item in enumerate(value)]
    if hasattr(value, "__dict__") and not isinstance(value, torch.Tensor):
        return [(f".{name}", item) for name, item in vars(value).items()]
    return []


def _rebuild(value: Any, converted: dict[int, Any], done: dict[int, Any]) -> Any:
    if id(value) in converted:
        return converted[id(value)]
    if isinstance(value, _VALUES):
        return value
    if id(value) in done:
        return done[id(value)]
    # For a container that holds itself.
    done[id(value)] = value
    items = _items(value)
    rebuilt = [_rebuild(item, converted, done) for _, item in items]
    if all(new is old for new, (_, old) in zip(rebuilt, items, strict=True)):
        return value
    result = _with_items(value, rebuilt)
    done[id(value)] = result
    return result


def _with_items(value: Any, items: list[Any]) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*items)
    if isinstance(value, (tuple, set, frozenset)):
        return type(value)(items)
    result = copy.copy(value)
    if isinstance(value, dict):
        for key, item in zip(value, items, strict=True):
            result[key] = item
    elif isinstance(value, list):
        result[:] = items
    else:
        vars(result).update(zip(vars(value), items, strict=True))
    return result

"""Writes docs/op_coverage.md: what becomes of each of PyTorch's core operators on the xla device.

python tools/op_coverage.py            print the page
python tools/op_coverage.py --check    exit with 1 if docs/op_coverage.md is another one
"""

from __future__ import annotations

import collections
import pathlib
import sys
import textwrap

import torch
from decompositions import DECOMPOSITIONS

from torch_xla._XLAC import _dynamic_operators, _host_operators, _lowered_operators

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "op_coverage.md"

MEANING = {
    "lowered": "recorded, and compiled by XLA",
    "host call": "recorded; programs for the CPU call PyTorch's kernel, elsewhere it falls back",
    "sized by data": "its input is computed and read: one barrier, counted as `DataDependentShape`",
    "view": "recorded as a view that shares memory with its base",
    "out": "`out=` of a lowered operator",
    "own kernel": "a kernel of its own: copies, reads and changes of size",
    "composite": "PyTorch takes it apart into other operators before it reaches the device",
    "host": "a question about sizes that needs no device",
    "fallback": "runs on the CPU",
}

# Parts of the names of operators on tensors of other kinds, of other libraries' kernels, and of
# torch's own tests: left out of the list of fallbacks.
_OTHER_KINDS = (
    *("sparse", "_coo_", "_csr", "_spdiags", "quant", "_obs_", "int4", "int8", "_4bit", "nested"),
    *("jagged", "mkldnn", "for_cpu", "_test", "_foobar", "_scaled_mm", "_dep_token", "transformer"),
)

_HOST = frozenset(_host_operators())
_DYNAMIC = frozenset(_dynamic_operators())

HEADER = """\
# Operator coverage

Generated from the registry by `make docs`; do not edit.

What becomes of PyTorch's operators on the xla device, torch {version}. Overloads and in-place
variants are counted as operators of their own, as PyTorch does. A fallback is right, but slow: its
inputs are computed and copied to the host and back.
"""


DECOMPOSED = """\
Where a lowering would add nothing, torch's own kernels in C++ call other operators, which are
recorded. No decomposition in Python is used. The list is `tools/decompositions.py`; a test compares
it with the dispatcher."""


def overloads() -> dict[str, torch._ops.OpOverload]:
    """Every operator of ATen by its name, as "add.Tensor"."""
    found = {}
    for full in torch._C._dispatch_get_all_op_names():
        namespace, _, name = full.partition("::")
        packet, _, overload = name.partition(".")
        if namespace != "aten":
            continue
        try:
            found[name] = getattr(getattr(torch.ops.aten, packet), overload or "default")
        except (AttributeError, RuntimeError):  # those that take what Python has no type for
            continue
    return found


def is_view(op: torch._ops.OpOverload) -> bool:
    """Whether a result shares memory with an argument that the call does not write."""
    aliases = [ret.alias_info for ret in op._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def is_plain(op: torch._ops.OpOverload) -> bool:
    """Whether the CPU has a kernel for it that computes a new, dense tensor."""
    name = op.name()
    return (
        torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU")
        and not any(part in name for part in _OTHER_KINDS)
        and not any(argument.is_out for argument in op._schema.arguments)
    )


def outcome(name: str, op: torch._ops.OpOverload, lowered: set[str]) -> str:
    """A key of MEANING."""

    def has_kernel(key: str) -> bool:
        return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key))

    if name in lowered:
        return "lowered"
    if name in _HOST:
        return "host call"
    if name in _DYNAMIC:
        return "sized by data"
    if has_kernel("XLA"):
        if any(argument.is_out for argument in op._schema.arguments):
            return "out"
        return "view" if is_view(op) else "own kernel"
    if name.startswith("sym_"):
        return "host"
    if has_kernel("CompositeImplicitAutograd"):
        return "composite"
    # Without a kernel of the CPU, what is left is PyTorch's formula out of other operators.
    if not has_kernel("CPU") and has_kernel("CompositeExplicitAutograd"):
        return "composite"
    return "fallback"


def decomposed(operators: dict[str, torch._ops.OpOverload], lowered: set[str]) -> set[str]:
    """Those that torch takes apart below autograd, but for `out=` and tensors of other kinds."""
    return {
        name
        for name, op in operators.items()
        if outcome(name, op, lowered) == "composite"
        and not torch._C._dispatch_has_kernel_for_dispatch_key(
            op.name(), "CompositeImplicitAutograd"
        )
        and not any(argument.is_out for argument in op._schema.arguments)
        and not any(part in name for part in _OTHER_KINDS)
    }


def count_rows(groups: dict[str, list[str]]) -> list[str]:
    """A table of how many operators are in each group, and what the group means."""
    rows = ["| outcome | operators | meaning |", "|---|---|---|"]
    rows += [
        f"| {name} | {len(groups[name])} | {meaning} |"
        for name, meaning in MEANING.items()
        if groups[name]
    ]
    return rows


def page() -> str:
    """The text of the page."""
    lowered = set(_lowered_operators())
    operators = overloads()
    groups: dict[str, list[str]] = collections.defaultdict(list)
    core: dict[str, list[str]] = collections.defaultdict(list)
    for name in sorted(operators):
        result = outcome(name, operators[name], lowered)
        groups[result].append(name)
        if torch.Tag.core in operators[name].tags:
            core[result].append(name)
    version = ".".join(torch.__version__.split(".")[:2])
    lines = [HEADER.format(version=version), "## Core ATen operators", ""]
    lines += count_rows(core)
    for result in MEANING:
        if core[result]:
            lines += ["", f"### Core: {result}", "", *wrapped(core[result])]
    lines += ["", "## All operators that have an outcome of their own", ""]
    groups["fallback"] = [name for name in groups["fallback"] if is_plain(operators[name])]
    for result in ("lowered", "host call", "sized by data", "view", "own kernel", "fallback"):
        lines += ["", f"### All: {result} ({len(groups[result])})", ""]
        lines += wrapped(by_packet(groups[result]))
    lines += ["", "## Decompositions", "", *DECOMPOSED.splitlines()]
    for reason, names in DECOMPOSITIONS.items():
        lines += ["", *textwrap.wrap(f"{reason}:", 100), "", *wrapped(sorted(names))]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def by_packet(names: list[str]) -> list[str]:
    """The names without their overloads, once each."""
    return sorted({name.partition(".")[0] for name in names})


def wrapped(names: list[str]) -> list[str]:
    """The names as lines of at most 100 columns."""
    lines = [""]
    for name in names:
        item = f"`{name}`"
        if lines[-1] and len(lines[-1]) + len(item) + 3 > 100:
            lines[-1] += ","
            lines.append("")
        lines[-1] += f", {item}" if lines[-1] else item
    return lines


def main() -> int:
    """Print the page, or compare it with the one in the tree."""
    text = page()
    if "--check" not in sys.argv[1:]:
        print(text, end="")
        return 0
    if PAGE.read_text() == text:
        return 0
    print(f"{PAGE} is out of date: run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())

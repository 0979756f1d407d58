"""Random programs over PyTorch's op database: elementwise, reduction, shape, view and in-place
calls on tensors of several dtypes, broadcast against each other, with gradients.

`python tests/programs/op_programs.py --first 0 --count 10000` runs them by the hour and prints
those that differ, after leaving out every step that is not needed for it.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import random
import sys
import warnings
from collections.abc import Callable

if __name__ == "__main__":
    sys.path.append(str(pathlib.Path(__file__).parents[2] / "tools" / "conformance"))

import op_samples
import torch
from torch.testing._internal.opinfo.core import (
    BinaryUfuncInfo,
    OpInfo,
    ReductionOpInfo,
    UnaryUfuncInfo,
)

import torch_xla

__all__ = ["Step", "difference", "draw", "shrunk"]

Tensor = torch.Tensor

# They draw, need complex32, or convert what does not fit: the last is undefined in C++.
_LEFT_OUT = op_samples.ARBITRARY_VALUES | {"chalf", "byte"}


@dataclasses.dataclass(frozen=True)
class Step:
    """One call: which, and numbers that choose its operands and arguments."""

    op: str
    picks: tuple[int, int, int]


@dataclasses.dataclass
class _Cell:
    value: Tensor
    # Whether rounding has no part in it: where it has, a step function may go either way.
    is_exact: bool = True


def _dim(x: Tensor, pick: int) -> int:
    return pick % x.dim() if x.dim() else 0


_VIEWS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "select": lambda x, k: x.select(_dim(x, k), 0) if x.numel() and x.dim() else x.view_as(x),
    "narrow": lambda x, k: x.narrow(_dim(x, k), 0, (x.size(_dim(x, k)) + 1) // 2) if x.dim() else x,
    "transpose": lambda x, k: x.transpose(0, _dim(x, k)) if x.dim() else x.view_as(x),
    "unsqueeze": lambda x, k: x.unsqueeze(k % (x.dim() + 1)),
    "every second": lambda x, k: x[..., ::2] if x.dim() else x,
    "flatten": lambda x, k: x.reshape(-1),
    "flip": lambda x, k: x.flip(_dim(x, k)) if x.dim() else x,
    "expand": lambda x, k: x.expand(2, *x.shape) if x.dim() < 4 else x,
}
_WRITES: dict[str, Callable[[Tensor, Tensor, int], object]] = {
    "add_": lambda x, y, k: x.add_(y),
    "mul_": lambda x, y, k: x.mul_(y),
    "copy_": lambda x, y, k: x.copy_(y),
    "fill_": lambda x, y, k: x.fill_(k % 3),
    "masked_fill_": lambda x, y, k: x.masked_fill_(x > y, 1),
    "mask = number": lambda x, y, k: x.__setitem__(x > 0, k % 3),
    "slice = tensor": lambda x, y, k: x[..., : 1 + k % 2].copy_(y),
    "zero_": lambda x, y, k: x.zero_(),
    "clamp_": lambda x, y, k: x.clamp_(-1, 1 + k % 2),
}
_OTHERS: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "where": lambda x, y, k: torch.where(x > 0, x, y),
    "cat": lambda x, y, k: torch.cat([x, x], _dim(x, k)),
    "matmul": lambda x, y, k: torch.matmul(x, y),
    "softmax": lambda x, y, k: torch.softmax(x, _dim(x, k)),
    "cumsum": lambda x, y, k: torch.cumsum(x, _dim(x, k)),
    "gather": lambda x, y, k: x.gather(_dim(x, k), torch.zeros_like(x, dtype=torch.int64)),
    "to": lambda x, y, k: x.to((torch.float32, torch.float64, torch.int64, torch.bool)[k % 4]),
    "sort": lambda x, y, k: torch.sort(x, _dim(x, k)).values,
    "stack": lambda x, y, k: torch.stack([x, x], _dim(x, k)),
    "pad": lambda x, y, k: torch.nn.functional.pad(x, (1, k % 2)),
}


def _database() -> dict[str, OpInfo]:
    kinds = (UnaryUfuncInfo, BinaryUfuncInfo, ReductionOpInfo)
    return {
        op.full_name: op
        for op in op_samples.entries()
        if isinstance(op, kinds) and op.name not in _LEFT_OUT and not op.name.startswith("masked.")
    }


_DATABASE = _database()
# Relative and absolute: a program is a chain of steps, which may magnify what each rounds.
_TOLERANCE = (2e-3, 2e-3)
# Continuous, so that rounding stays rounding.
_SMOOTH = frozenset(
    (
        *("add", "sub", "mul", "sin", "cos", "tanh", "sigmoid", "atan", "neg", "abs", "square"),
        *("erf", "exp2", "maximum", "minimum", "sum", "mean", "amax", "amin", "asinh", "hypot"),
        *("logaddexp", "nn.functional.relu", "nn.functional.silu", "nn.functional.softsign"),
        *("fmax", "fmin", "sinc", "special.erfcx", "nn.functional.gelu", "expm1", "positive"),
        *("real", "conj", "conj_physical"),
    )
)
# Of these the gradient jumps where operands are equal or zero, which rounding may decide.
_WITH_KINKS = frozenset(
    ("abs", "amax", "amin", "fmax", "fmin", "hypot", "maximum", "minimum", "nn.functional.relu")
)
_NAMES = (*_DATABASE, *(n for table in (_VIEWS, _WRITES, _OTHERS) for n in (*table, *table)))


def draw(source: random.Random, length: int = 8) -> list[Step]:
    """A random program."""
    return [
        Step(
            source.choice(_NAMES),
            (source.randrange(64), source.randrange(64), source.randrange(64)),
        )
        for _ in range(length)
    ]


def _start(device: str) -> list[_Cell]:
    grid = torch.tensor([-1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 0.25, -2.0, 3.0, -0.75])
    values = [
        grid.reshape(3, 4),
        grid[:4],
        grid[:3].double().reshape(3, 1),
        torch.arange(-2, 2),
        torch.tensor([[True], [False], [True]]),
        torch.tensor(2),
    ]
    moved = [v.clone().to(device) for v in values]
    return [_Cell(v.requires_grad_() if v.is_floating_point() else v) for v in moved]


def _smoothed(name: str, cells: list[_Cell], result: object) -> _Cell | None:
    """The result as a cell, in a range in which errors do not grow."""
    if not isinstance(result, Tensor):
        return None
    is_exact = name in (*_VIEWS, "where", "cat", "stack", "gather", "pad", "sort")
    if result.is_floating_point() and not is_exact:
        result = torch.nan_to_num(result, 0.0, 4.0, -4.0).clamp(-4, 4)
    return _Cell(result, is_exact and all(c.is_exact for c in cells))


def _apply(step: Step, cells: list[_Cell]) -> _Cell | None:
    a, b, k = step.picks
    x, y = cells[a % len(cells)], cells[b % len(cells)]
    used = [x, y]
    if step.op in _VIEWS:
        return _smoothed(step.op, [x], _VIEWS[step.op](x.value, k))
    if step.op in _WRITES:
        target = x.value.clone() if x.value.is_leaf and x.value.requires_grad else x.value
        if not all(c.is_exact for c in used) and step.op.startswith("mask"):
            return None
        _WRITES[step.op](target, y.value, k)
        # What shares memory with the target is no more exact than what was written.
        if not y.is_exact or target.is_floating_point():
            for cell in cells:
                cell.is_exact = cell.is_exact and cell.value is not target
        return _Cell(target, False)
    is_smooth = step.op in _SMOOTH or step.op in (
        "matmul",
        "softmax",
        "cumsum",
        "pad",
        "stack",
        "cat",
    )
    if not is_smooth and not all(c.is_exact for c in used):
        return None
    if step.op in _OTHERS:
        return _smoothed(step.op, used, _OTHERS[step.op](x.value, y.value, k))
    op = _DATABASE[step.op]
    first, second = x.value, y.value
    if step.op in _WITH_KINKS and not all(c.is_exact for c in used):
        first, second = first.detach(), second.detach()
    if isinstance(op, BinaryUfuncInfo):
        return _smoothed(step.op, used, op.op(first, second))
    if isinstance(op, ReductionOpInfo) and k % 2 and first.dim():
        return _smoothed(step.op, [x], op.op(first, dim=_dim(first, k)))
    return _smoothed(step.op, [x], op.op(first))


def _run(program: list[Step], device: str) -> tuple[list[Tensor], list[Step]]:
    """The values of all cells and the leaves' gradients, and the steps that the CPU takes."""
    cells, taken = _start(device), []
    leaves = [c.value for c in cells if c.value.requires_grad]
    for step in program:
        try:
            cell = _apply(step, cells)
        except Exception:
            if device != "cpu":
                raise
            continue
        taken.append(step)
        if cell is not None and cell.value.numel() <= 4096:
            cells.append(cell)
    total = [c.value.sum() for c in cells if c.value.requires_grad and c.value.is_floating_point()]
    grads = torch.autograd.grad(total, leaves, allow_unused=True)
    values = [c.value.detach() for c in cells]
    zeros = [torch.zeros_like(leaf) for leaf in leaves]
    return values + [z if g is None else g for g, z in zip(grads, zeros, strict=True)], taken


def difference(program: list[Step]) -> str:
    """How the device's results differ from the CPU's, or nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected, taken = _run(program, "cpu")
        except Exception:  # its gradient is refused: no oracle
            return ""
        try:
            # What the CPU refuses for a dtype the device may do; op_variants.py compares errors.
            actual, _ = _run(taken, "xla")
            torch_xla.sync()
            return op_samples.compare(
                [torch.nan_to_num(e.float(), 0, 1e4, -1e4).clamp(-1e4, 1e4) for e in expected],
                [torch.nan_to_num(a.float(), 0, 1e4, -1e4).clamp(-1e4, 1e4) for a in actual],
                tolerance=_TOLERANCE,
            )
        except Exception as error:
            return op_samples.describe(error)


def shrunk(program: list[Step]) -> list[Step]:
    """The program without the steps that its difference does not need."""
    position = 0
    while position < len(program):
        shorter = program[:position] + program[position + 1 :]
        if difference(shorter):
            program = shorter
        else:
            position += 1
    return program


def main() -> int:
    """Run programs and print those that differ; 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="program, whose number is its seed")
    arguments = parser.parse_args()
    found = 0
    for number in range(arguments.first, arguments.first + arguments.count):
        program = draw(random.Random(number))
        if difference(program):
            found += 1
            short = shrunk(program)
            print(f"program {number}: {difference(short)}")
            for step in short:
                print(f"    {step}", flush=True)
    print(f"{arguments.count} programs, {found} differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

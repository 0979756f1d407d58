"""Random programs whose writes depend on the memory that they write.

Two to four statements: each writes to a random view of `x`, and what it writes is computed from
other elements of the same memory, seen through another view. XLA does such updates in place, so
that it must have read what it overwrites. `python tests/programs/memory_programs.py --count 20000`
runs many by hand.
"""

from __future__ import annotations

import math
import random

import random_programs
import torch
from random_programs import Program, kind_of

import torch_xla

# Of a tensor "{0}".
COMPUTATIONS = [
    "{0} * 2",
    "{0}.clone()",
    "{0}.clone() * 2",
    "torch.exp({0} * 0.01)",
    "{0}.flip(0)",
    "{0}.softmax(-1)",
    "{0}.cumsum(0) * 0.1",
    "{0}.roll(1, 0)",
    "{0}.mean()",
    "{0}.sum(-1, keepdim=True) * 0.1",
    "{0}.sort(dim=0)[0]",
    "torch.cat([{0}, {0} * 2])",
    "({0} * 3).flip(-1)",
    "{0} + 1",
    "({0} * 2 + {0}.amax()).clone()",
    "torch.where({0} > 3, {0}, {0} * 0.5)",
    "{0}.max()",
    "{0}.index_select(0, picks % {0}.shape[0])",
    "torch.nn.functional.pad({0}, (1, 0))",
    "{0}.transpose(0, -1) * 2",
    "{0}.unsqueeze(0).repeat(2, *[1] * {0}.dim()).sum(0)",
    "({0} * 2).reshape(-1)",
    "{0}.var(-1, keepdim=True, unbiased=False)",
    "torch.stack([{0}, {0} + 1])",
    "({0} * 2)[0]",
    "({0} + 1)[..., :1]",
    "torch.cos({0} / ({0}.abs() + 1))",  # of a large number, rounding would decide
    "torch.outer({0}.reshape(-1)[:3], {0}.reshape(-1)[-3:]) * 0.1",
    "{0}.reshape(-1)[picks % {0}.numel()] - 1",
    "({0}.reshape(1, -1) @ {0}.reshape(-1, 1)) * 0.01",
]

SIMPLE_WRITES = [
    "{0}.fill_(3.)",
    "{0}.mul_(2)",
    "{0}.zero_()",
    "{0}.add_(1)",
    "{0}.clamp_(max=5)",
    "torch.mul({0}.clone(), -1., out={0})",
    "{0}[...] = x.sum() * 0.01",
]

REBINDINGS = [
    "x * 1",
    "x + 0",
    "x.clone()",
    "x.reshape(-1)",
    "x.flatten() * 2",
    "x.unsqueeze(0)",
    "torch.cat([x[:1], x[1:]])",
    "x.transpose(0, -1)",
]

FORMS = ["copy", "copy", "copy", "set", "add", "mul", "out", "where", "index", "lerp"]
VIEWS = ["slice", "slice", "step", "select", "flat", "reshape", "permute", "unsqueeze"]
VIEWS += ["diagonal", "unfold", "strided"]


class Run(random_programs.Run):
    rtol, atol = 1e-3, 1e-3

    def __init__(self, program: Program, device: str) -> None:
        super().__init__(program, device)
        self.scope["picks"] = torch.arange(7, device=device) * 3
        self.scope["device"] = device
        self.scope["sync"] = torch_xla.sync if device == "xla" else lambda: None

    def facts(self, name: str) -> list[str]:
        return ["dtype", "shape"]


def fitted(rng: random.Random, text: str, value: torch.Tensor, shape: tuple[int, ...]) -> str:
    """An expression of `shape` made of elements of `text`, whose value is `value`."""
    if tuple(value.shape) == shape:
        return text
    try:
        if torch.broadcast_shapes(value.shape, shape) == shape and rng.random() < 0.7:
            return text
    except RuntimeError:
        pass
    count = math.prod(shape)
    if value.numel() >= count:
        first = rng.randint(0, value.numel() - count)
        return f"{text}.reshape(-1)[{first}:{first + count}].reshape({shape})"
    times = -(-count // value.numel())
    return f"{text}.reshape(-1).repeat({times})[:{count}].reshape({shape})"


class ProgramMaker:
    run_class = Run

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.program = Program(seed)
        self.run = Run(self.program, "cpu")

    def value(self, text: str) -> torch.Tensor:
        return eval(text, dict(self.run.scope))

    def view_step(self, tensor: torch.Tensor) -> str:
        rng, rank = self.rng, tensor.dim()
        if rank == 0:
            return rng.choice([".view(1)", ".unsqueeze(0)"])
        kind, dim = rng.choice(VIEWS), rng.randrange(rank)
        size, count = tensor.shape[dim], tensor.numel()
        first = rng.randrange(size)
        if kind == "slice":
            return "[" + ":, " * dim + f"{first}:{rng.randint(first + 1, size)}]"
        if kind == "step":
            return "[" + ":, " * dim + f"{first}::{rng.choice([2, 3])}]"
        if kind == "select":
            return f".select({dim}, {first})"
        if kind == "flat":
            start = rng.randrange(count)
            return f".view(-1)[{start}:{rng.randint(start + 1, count)}]"
        if kind == "reshape":
            rows = rng.choice([k for k in range(1, count + 1) if count % k == 0])
            return f".view({rows}, {count // rows})"
        if kind == "permute":
            return f".permute({rng.sample(range(rank), rank)})"
        if kind == "unsqueeze":
            return f".unsqueeze({dim})"
        if kind == "diagonal":
            return f".diagonal({rng.choice([-1, 0, 0, 1])})"
        if kind == "unfold":
            width = rng.randint(1, size)
            return f".unfold({dim}, {width}, {width})"
        step, start = rng.randint(1, 3), rng.randrange(tensor.untyped_storage().nbytes() // 4)
        return f".as_strided(({rng.randint(1, 6)},), ({step},), {start})"

    def view(self) -> tuple[str, torch.Tensor]:
        text, tensor = "x", self.value("x")
        for _ in range(self.rng.choice([0, 1, 1, 2, 2, 3])):
            step = self.view_step(tensor)
            # The device takes views of any strides, the CPU does not.
            if step.startswith(".view(") and not tensor.is_contiguous():
                continue
            try:
                seen = self.value(text + step)
            except (RuntimeError, IndexError):
                continue
            if seen.numel() > 0:
                text, tensor = text + step, seen
        return text, tensor

    def computed(self, target: torch.Tensor) -> tuple[str, torch.Tensor] | None:
        text, source = self.view()
        if source.dim() == 0:
            text += ".reshape(1)"
        for _ in range(self.rng.choice([1, 1, 2])):
            text = "(" + self.rng.choice(COMPUTATIONS).format(text) + ")"
        try:
            value = self.value(text)
        except (RuntimeError, IndexError):
            return None
        # A sort of repeated elements has one value, but a maximum of 1e30 hides all others.
        if value.numel() == 0 or value.dtype != target.dtype or not value.abs().max() < 1e3:
            return None
        return text, value

    def write(self) -> str:
        rng = self.rng
        target, seen = self.view()
        if rng.random() < 0.15:
            if rng.random() < 0.2 and self.value("x").dim() == 2:
                return "x.fill_diagonal_(0.)"
            return rng.choice(SIMPLE_WRITES).format(target)
        found = self.computed(seen)
        if found is None:
            return ""
        text, value = found
        shape, fits = tuple(seen.shape), tuple(value.shape) == tuple(seen.shape)
        form = rng.choice(FORMS)
        if form == "index" and seen.dim() > 0:
            rows = rng.sample(range(shape[0]), min(3, shape[0]))
            text = fitted(rng, text, value, (len(rows), *shape[1:]))
            return f"{target}[torch.tensor({rows}, device=device)] = {text}"
        text = fitted(rng, text, value, shape)
        if form == "add":
            return f"{target}.add_({text}, alpha=0.5)"
        if form == "mul":
            return f"{target}.mul_({text} * 0.1)"
        if form == "set":
            return f"{target}[...] = {text} * 1"
        if form == "out" and fits:
            return f"torch.add({text}, 1., out={target})"
        if form == "where":
            return f"{target}.copy_(torch.where({target} > 4, {text}, {target} + 0.5))"
        if form == "lerp" and fits:
            return f"{target}.lerp_({text} * 1, 0.3)"
        return f"{target}.copy_({text} * 1)"

    def add_line(self) -> None:
        if self.rng.random() < 0.08:
            line = "y = x; x = " + self.rng.choice(REBINDINGS)
        else:
            line = self.write()
        if not line:
            return
        if self.rng.random() < 0.05:
            line = f"for _ in range(3): {line}; sync()"
        if self.run.line(line):
            self.run.errors.pop()
            return
        self.program.lines.append(line)
        if not self.is_moderate():
            self.program.lines.append("x.nan_to_num_(0., 9., -9.).clamp_(-99, 99)")
            self.run.line(self.program.lines[-1])

    def is_moderate(self) -> bool:
        return bool(self.value("x").abs().max() < 1e3)

    def make(self) -> Program:
        rng = self.rng
        rank = rng.choice([1, 2, 2, 2, 3, 3])
        limit = {1: 200, 2: rng.choice([17, 17, 60]), 3: 7}[rank]
        shape = [rng.randint(2, limit) for _ in range(rank)]
        first = f"x = (torch.arange({math.prod(shape)}, device=device) % 97 * 0.37 + 1)"
        self.program.lines.append(f"{first}.reshape({shape})")
        self.run.line(self.program.lines[0])
        num_lines = 1 + rng.choice([2, 2, 3, 4])
        for _ in range(40):
            if len(self.program.lines) >= num_lines:
                break
            self.add_line()
        barrier = 1 if rng.random() < 0.7 else rng.randint(0, len(self.program.lines))
        self.program.barriers = (barrier,)
        return self.program


KIND = kind_of(ProgramMaker)
search = KIND.search

if __name__ == "__main__":
    KIND.main(__doc__)

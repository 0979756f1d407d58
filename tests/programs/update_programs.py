"""Random programs that train: three layers forward and backward, their weights' updates in any
order, and other lines among them that read and write the same. What reads a weight is to read it
before it is replaced in its own memory, though the compiler is kept from copying it first
(src/hlo/update_order.h).

Numbers are small integers, so that all sums are exact: results are the CPU's bit for bit.
"""

from __future__ import annotations

import random

import torch
from random_programs import Kind, Program, Run, kind_of

__all__ = ["KIND", "UpdateMaker", "search"]

ROWS, WIDE, WIDER = 16, 128, 160
SHAPES = {
    "p": (WIDE, WIDE), "q": (WIDE, WIDE), "r": (WIDER, WIDE), "x": (ROWS, WIDE), "y": (ROWS, WIDER),
}  # fmt: skip
WEIGHTS = ("p", "q", "r")
ELEMENTWISE = (
    "{a} + {b}", "{a} - {b}", "squash({a} * {b})", "{a}.relu()", "-{a}", "{a} * ({b} > 0)",
    "torch.where({a} > {b}, {a}, 1.)", "{a}.clone()", "{a}.flip(0)", "{a} + {b}.sum(0) % 3",
)  # fmt: skip
UPDATES = (
    "{p}.copy_(squash({p} + {t}))", "{p}.sub_({t}); {p}.copy_(squash({p}))",
    "{p}.data = squash({p} - {t})", "{p} = squash({p} - {t})", "{p}.copy_({t})",
    "{p}.t().copy_(squash({t}.t() + {p}.t()))", "{p}[8:] = squash({t}[8:] * {p}[8:])",
    "{p}.mul_(2).add_({t}); {p}.copy_(squash({p}))", "{p}.add_({t}.sum().remainder(3)).copy_({t})",
    "torch._foreach_add_([{p}, x], [{t}, x]); {p}.copy_(squash({p})); x.copy_(squash(x))",
    "{p}.view(-1)[5:] = squash({t}.reshape(-1)[:-5])", "{p}.copy_(squash({p}.t() + {t}.t()).t())",
)  # fmt: skip
PASSES = (
    "h1 = squash(x @ p)", "h2 = squash(h1 @ q)", "h3 = squash(h2 @ r.t())", "d3 = squash(h3 - y)",
    "gr = d3.t() @ h2", "d2 = squash(d3 @ r)", "gq = h1.t() @ d2", "d1 = squash(d2 @ q.t())",
    "gp = x.t() @ d1",
)  # fmt: skip
_LARGEST = 2000.0  # a product of such with small ones is still exact


class UpdateRun(Run):
    def __init__(self, program: Program, device: str) -> None:
        super().__init__(program, device)
        self.scope["squash"] = lambda t: t.remainder(7) - 3

    def is_close(self, want: torch.Tensor, got: torch.Tensor) -> bool:
        return torch.equal(want, got)


class UpdateMaker:
    run_class = UpdateRun

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.program = Program(seed)
        self.run = UpdateRun(self.program, "cpu")
        self.num_values = 0

    def add(self, line: str) -> None:
        self.program.lines.append(line)
        assert not self.run.line(line), (line, self.run.scope["last_error"])

    def value(self, name: str) -> torch.Tensor:
        return self.run.tensors()[name]

    def name(self, *shape: int) -> str:
        """A tensor of the shape, or any."""
        known = self.run.tensors()
        names = [name for name in known if not shape or tuple(known[name].shape) == shape]
        return self.rng.choice([name for name in names if known[name].dim() == 2])

    def either_way(self, name: str) -> tuple[str, tuple[int, ...]]:
        shape = tuple(self.value(name).shape)
        return self.rng.choice([(name, shape), (name + ".t()", shape[::-1])])

    def product(self) -> str:
        while True:
            a, rows = self.either_way(self.name())
            b, columns = self.either_way(self.name())
            if rows[1] == columns[0] and min(rows[0], columns[1]) > 1:
                return f"{a} @ {b}"

    def elementwise(self) -> str:
        a = self.name()
        b = self.name(*self.value(a).shape)
        return self.rng.choice(ELEMENTWISE).format(a=a, b=b)

    def compute(self, text: str) -> None:
        name = f"t{self.num_values}"
        self.num_values += 1
        self.add(f"{name} = {text}")
        if not self.value(name).abs().max() <= _LARGEST:
            self.program.lines[-1] = f"{name} = squash({text})"
            self.run.line(self.program.lines[-1])

    def update(self, p: str, t: str) -> None:
        forms = UPDATES if p != "r" else UPDATES[:-1]  # the last is of squares
        self.add(self.rng.choice(forms).format(p=p, t=t))

    def add_line(self) -> None:
        kind = self.rng.random()
        values = [name for name in self.run.tensors() if name.startswith("t")]
        if kind < 0.4:
            self.compute(self.product())
        elif kind < 0.6:
            self.compute(self.elementwise())
        elif kind < 0.8:
            p = self.rng.choice(WEIGHTS)
            self.update(p, self.name(*SHAPES[p]))
        elif kind < 0.95 and values:
            self.add(f"del {self.rng.choice(values)}")
        else:
            self.add(f"float({self.name()}.sum())")

    def make(self) -> Program:
        for name, shape in SHAPES.items():
            self.add(f"{name} = make({shape}, torch.float32, {self.rng.randrange(9)})")
        first = len(self.program.lines)
        often = self.rng.choice([0.0, 0.2, 0.5])
        weights = self.rng.sample(WEIGHTS, len(WEIGHTS))
        for line in (*PASSES, *weights):
            if self.rng.random() < often:
                self.add_line()
            if line in WEIGHTS:
                self.update(line, "g" + line)
            else:
                self.add(line)
        gone = [
            name for name in self.run.tensors() if name[0] in "hdgt" and self.rng.random() < 0.5
        ]
        if gone:
            self.add("del " + ", ".join(gone))
        last = len(self.program.lines)
        # The same again, on what has been replaced.
        self.program.lines += self.program.lines[first:last]
        self.program.barriers = (first, last)
        return self.program


KIND: Kind = kind_of(UpdateMaker)
search = KIND.search

if __name__ == "__main__":
    KIND.main(__doc__)

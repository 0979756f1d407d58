"""Random programs of operators whose every value is held against the CPU's: all dtypes, 0-d and
empty tensors, broadcasting, promotion, numbers of all kinds, `out=`, in place, views with steps and
reversed, NaN, infinities, zeros with a sign, subnormal numbers.

A program is a list of Python lines over named tensors. `ValueProgramMaker` grows one while running
it on the CPU, and keeps for each tensor what its values may be used for (`Fact`): where XLA may
round otherwise, no step function follows; where the device promises no sign of a zero, nothing
looks at it. `python tests/programs/value_programs.py --first 0 --count 500` runs them by hand.
"""

from __future__ import annotations

import random
import re
import warnings
from dataclasses import dataclass

import random_programs
import torch
from random_programs import Kind, Program
from value_operators import OPERATORS, Operator, Use

import torch_xla

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
RARE = [torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64]
_SEED_STEP = 7919


def _tame(dtype: torch.dtype) -> list[float]:
    if dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64):
        return [0, 1, 2, 3, 5]
    if not (dtype.is_floating_point or dtype.is_complex):
        return [-3, -2, -1, 0, 1, 2, 3]
    return [-3, -2.5, -1, -0.5, -0.25, 0, 0.25, 0.5, 1, 1.5, 2, 3]


def _wild(dtype: torch.dtype) -> list[float]:
    """Values at the edges. Complex numbers have none: what their products are with infinities
    differs from one processor to the next."""
    if dtype.is_complex or dtype == torch.bool:
        return []
    if not dtype.is_floating_point:
        top = torch.iinfo(dtype).max
        return [top, -top if torch.iinfo(dtype).min else top - 1, 100]
    info = torch.finfo(dtype)
    inf = float("inf")
    return [float("nan"), inf, -inf, -0.0, info.max, -info.max, info.tiny, -info.tiny, 0.0]


def make_values(shape, dtype, seed, kind="tame"):
    """A CPU tensor. `kind`: tame, wild, or tiny (wild with subnormal numbers)."""
    values = _tame(dtype)
    if kind != "tame":
        values = values[::3] + _wild(dtype)
    if kind == "tiny" and dtype.is_floating_point:
        least = torch.finfo(dtype).tiny / 4
        values = [*values, least, -least]
    source = random.Random(seed * _SEED_STEP)
    count = 1
    for size in shape:
        count *= size
    if dtype.is_complex:
        picked = [complex(source.choice(values), source.choice(values)) for _ in range(count)]
    else:
        picked = [source.choice(values) for _ in range(count)]
    wide = torch.uint64 if dtype == torch.uint64 else torch.int64
    if dtype.is_floating_point:
        wide = torch.float64
    elif dtype.is_complex:
        wide = torch.complex128
    return torch.tensor(picked, dtype=wide).reshape(shape).to(dtype)


def born(shape, dtype, seed, device):
    """A tensor that is made of constants alone, so that the compiler may know its values."""
    zeros = torch.zeros(shape, dtype=dtype, device=device)
    nothing = torch.zeros((0, *shape), dtype=dtype, device=device)
    ways = [
        lambda: zeros + 1,
        lambda: torch.arange(zeros.numel(), device=device).reshape(shape).to(dtype),
        lambda: nothing.prod(0).to(dtype) - nothing.sum(0).to(dtype),
    ]
    if dtype.is_floating_point:
        ways += [
            lambda: nothing.mean(0),
            lambda: zeros / 0,
            lambda: (zeros + 1) / 0,
            lambda: (zeros - 1) / 0,
            lambda: torch.where(zeros == 0, zeros / 0, zeros),
        ]
    return random.Random(seed).choice(ways)()


@dataclass(frozen=True)
class Fact:
    """What is promised of a tensor's values, beside what tolerance allows."""

    roundings: int = 0  # steps since which XLA may have rounded otherwise
    has_signs: bool = True  # its zeros have the CPU's signs
    has_bits: bool = True  # its NaNs have


class Run(random_programs.Run):
    """Keeps what each line gave."""

    def __init__(self, program: Program, device: str) -> None:
        super().__init__(program, device)
        self.results: list[torch.Tensor | None] = []
        self.last_error = ""
        nan, inf = float("nan"), float("inf")
        self.scope |= {"F": torch.nn.functional, "full": self.full, "nan": nan, "inf": inf}

    def make(self, shape, dtype, seed, kind="tame"):
        if kind == "born":
            return born(shape, dtype, seed, self.device)
        return make_values(shape, dtype, seed, kind).to(self.device)

    def full(self, shape, value, dtype):
        return torch.full(shape, value, dtype=dtype, device=self.device)

    def line(self, text: str) -> str:
        """Runs a line; the name of the error's type, or nothing."""
        name = text.split(" ", 1)[0]
        try:
            exec(text, self.scope)
            self.errors.append("")
            self.results.append(self.scope[name].clone())
        except Exception as error:
            self.errors.append(type(error).__name__)
            self.results.append(None)
            self.last_error = str(error)
        return self.errors[-1]


def has_subnormal(t: torch.Tensor) -> bool:
    if not t.dtype.is_floating_point or t.dtype == torch.float16:
        return False
    size = t.double().abs()
    return bool(((size > 0) & (size < torch.finfo(t.dtype).tiny)).any())


def is_tame(t: torch.Tensor) -> bool:
    """Whether sums and products of a few of its finite values are exact in its dtype."""
    if not (t.dtype.is_floating_point or t.dtype.is_complex):
        return bool((t.double().abs() <= 1000).all())
    parts = torch.view_as_real(t) if t.dtype.is_complex else t
    parts = parts.double()
    parts = parts[parts.isfinite()]
    unit, most = {torch.float16: (2**-4, 32), torch.bfloat16: (2**-2, 16)}.get(t.dtype, (2**-6, 64))
    return bool(((parts.abs() <= most) & (parts % unit == 0)).all())


def is_moderate(t: torch.Tensor) -> bool:
    """Whether what is computed of its finite values is near no edge of the dtype."""
    size = t.to(torch.complex128).abs()
    size = size[size.isfinite() & (size != 0)]
    return bool(((size > 1e-3) & (size < 1e3)).all())


def largest(t: torch.Tensor) -> float:
    size = t.detach().to(torch.complex128).abs()
    size = size[size.isfinite()]
    return float(size.max()) if size.numel() else 0.0


class ValueProgramMaker:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.program = Program(seed)
        self.run = Run(self.program, "cpu")
        self.facts: dict[str, Fact] = {}
        self.count = 0

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def value(self, name: str) -> torch.Tensor:
        return self.run.scope[name]

    def dtype(self) -> torch.dtype:
        pool = self.rng.choices([FLOATS, INTEGERS, [torch.bool], RARE], [60, 22, 10, 8])[0]
        return self.rng.choice(pool)

    def shape(self) -> tuple[int, ...]:
        sizes = [1, 2, 3, 5] if self.chance(0.93) else [0, 1, 2]
        return tuple(self.rng.choice(sizes) for _ in range(self.rng.choice([0, 1, 1, 2, 2, 3])))

    def new_tensor(self, like: torch.Tensor | None = None) -> str:
        """An expression; the shape broadcasts with that of `like`."""
        shape, dtype = self.shape(), self.dtype()
        if like is not None:
            shape = tuple(like.shape[self.rng.randint(0, like.dim()) if self.chance(0.3) else 0 :])
            shape = tuple(1 if self.chance(0.15) else size for size in shape)
            dtype = like.dtype if self.chance(0.4) else dtype
        if self.chance(0.1):
            number = self.rng.choice(["0", "1", "2", "True"])
            return f"full({shape}, {number}, {dtype})"
        kind = self.rng.choice(["tame", "tame", "wild", "wild", "tiny", "born"])
        return f"make({shape}, {dtype}, {self.rng.randrange(1000)}, {kind!r})"

    def number(self) -> str:
        plain = ["0", "1", "2", "-1", "3", "0.5", "-1.5", "2.0", "0.0", "-0.0", "1.0", "True"]
        rare = ["nan", "inf", "-inf", "False", "1e10", "2**40", "1 + 2j", "300", "-200"]
        return self.rng.choice(plain if self.chance(0.8) else rare)

    # What may be an operand.

    def fits(self, name: str, op: Operator) -> bool:
        t, fact = self.value(name), self.facts[name]
        if fact.roundings and op.use in (Use.BITS, Use.STEP):
            return False
        if fact.roundings > 1 or (fact.roundings and (op.is_steep or not is_moderate(t))):
            return False
        # Of what is empty, PyTorch does not look at the dtype.
        if not t.numel() and not t.is_floating_point() and op.use is Use.SMOOTH:
            return False
        if op.use not in (Use.MOVE, Use.BITS) and has_subnormal(t):
            return False
        looks_at_signs = op.use in (Use.BITS, Use.SMOOTH)
        if looks_at_signs and not fact.has_signs and not bool((t != 0).all()):
            return False
        if op.name in ("signbit", "copysign") and not fact.has_bits and bool(t.isnan().any()):
            return False
        if op.use is Use.SUM and not is_tame(t):
            return False
        # The CPU's own are wrong where elements share memory.
        if op.is_selection and 0 in t.stride():
            return False
        if t.is_complex() and not (op.takes_complex and bool(t.isfinite().all())):
            return False
        if not op.takes_infinity and bool(t.isinf().any()):
            return False
        return not (op.most and largest(t) > op.most)

    def operand(self, op: Operator, position: int, like: torch.Tensor | None) -> str:
        if position and op.takes_numbers and self.chance(0.3):
            return self.number()
        names = [n for n in self.facts if self.fits(n, op)]
        if like is not None and self.chance(0.7):
            names = [n for n in names if self.value(n).shape == like.shape] or names
        if not names or self.chance(0.2):
            return ""
        return self.rng.choice(names[-6:])

    # Lines.

    def add_line(self) -> None:
        if not self.facts or self.chance(0.15):
            name = self.fresh()
            return self.keep_new(name)
        if self.chance(0.15):
            return self.view()
        op = self.rng.choice(OPERATORS)
        operands: list[str] = []
        for position in range(op.arity):
            like = self.value(operands[0]) if operands and operands[0] in self.facts else None
            operand = self.operand(op, position, like)
            if not operand:
                operand = self.fresh()
                self.keep_new(operand, like)
                if operand not in self.facts or not self.fits(operand, op):
                    return None
            operands.append(operand)
        return self.call(op, operands)

    def keep_new(self, name: str, like: torch.Tensor | None = None) -> None:
        text = self.new_tensor(like)
        # The sign of a NaN that was computed is the processor's.
        self.keep(f"{name} = {text}", name, Fact(has_bits="'born'" not in text))

    def view(self) -> None:
        source = self.rng.choice(list(self.facts))
        t = self.value(source)
        d = self.rng.randrange(t.dim()) if t.dim() else 0
        name = self.fresh()
        ways = [f".flip({d})", "[..., ::2]", "[..., 1:]", ".t()", ".unsqueeze(0)"]
        ways += [f".narrow({d}, 0, 1)", f".expand(2, *{tuple(t.shape)})", f".transpose(0, {d})"]
        text = self.rng.choice([*ways, "[..., ::2].flip(-1)"])
        self.keep(f"{name} = {source}{text}", name, self.facts[source])

    def call(self, op: Operator, operands: list[str]) -> None:
        variables = [n for n in operands if n in self.facts]
        facts = [self.facts[n] for n in variables]
        dims = max((self.value(n).dim() for n in variables), default=0)
        text = op.text(self.rng, operands, dims)
        kind = self.rng.random()
        name, line = self.fresh(), ""
        if kind < 0.2 and op.has_in_place and operands[0] in self.facts:
            name = operands[0]
            line = f"{name} = {op.in_place(operands)}"
        elif kind < 0.35 and op.has_out:
            name, line = self.with_out(text, name)
        line = line or f"{name} = {text}"
        # The CPU's products of complex numbers and infinities are those of a sum of four products.
        # So are its sums with a number, which it multiplies by alpha.
        values = [self.value(n) for n in variables]
        is_finite = all(bool(v.isfinite().all()) for v in values) and not (
            {"nan", "inf", "-inf"} & {*operands}
        )
        is_complex = "1 + 2j" in operands or any(v.is_complex() for v in values)
        if is_complex and not is_finite:
            return
        if is_complex and any(v.dtype == torch.float16 for v in values):
            return  # XLA has no complex32
        # The CPU's vectors add a product before it is rounded, and so before it overflows.
        doubled = [2 * v[v.isfinite()] for v in values]
        if "value=2" in text and not all(bool(v.isfinite().all()) for v in doubled):
            return
        roundings = max((f.roundings for f in facts), default=0)
        is_real = all(f"{n}" in self.facts for n in operands)
        self.keep(
            line,
            name,
            Fact(
                roundings + (op.use is Use.SMOOTH),
                op.keeps_signs and all(f.has_signs for f in facts),
                op.use in (Use.MOVE, Use.BITS) and is_real and all(f.has_bits for f in facts),
            ),
            op,
        )

    def with_out(self, text: str, name: str) -> tuple[str, str]:
        try:
            result = eval(text, self.run.scope)
        except Exception:
            return name, ""
        if not isinstance(result, torch.Tensor):
            return name, ""
        # What shares memory gets its own where the result needs another size: not as on the CPU.
        outs = [n for n in self.facts if self.value(n).shape == result.shape or self.is_alone(n)]
        if outs and self.chance(0.4):
            name = self.rng.choice(outs)
            return name, f"{name} = {text[:-1]}, out={name})"
        shape = (0,) if self.chance(0.2) else tuple(result.shape)
        dtype = self.dtype() if self.chance(0.3) else result.dtype
        return name, f"{name} = {text[:-1]}, out=make({shape}, {dtype}, 1))"

    def is_alone(self, name: str) -> bool:
        storage = self.value(name).untyped_storage()._cdata
        return all(
            name == n or self.value(n).untyped_storage()._cdata != storage for n in self.facts
        )

    def keep(self, line: str, name: str, fact: Fact, op: Operator | None = None) -> None:
        """Runs the line on the CPU, and takes it into the program if it says something."""
        shared = self.value(name).data_ptr() if name in self.facts else None
        error = self.run.line(line)
        if error or not isinstance(self.run.scope.get(name), torch.Tensor):
            if error and self.is_told_by_types() and self.chance(0.3):
                self.program.lines.append(line)
            else:
                self.run.errors.pop()
                self.run.results.pop()
            if not error:
                del self.run.scope[name]
            return
        result = self.value(name)
        if op is not None and op.use in (Use.RING, Use.SUM) and not is_tame(result):
            fact = Fact(fact.roundings + 1, False, False)
        if op is not None and op.use is not Use.MOVE and has_subnormal(result):
            fact = Fact(9, False, False)
        self.program.lines.append(line)
        self.facts[name] = fact
        if shared is not None or ", out=" in line:
            self.spread(name)

    def spread(self, written: str) -> None:
        """What shares memory with what was written is no better known."""
        storage = self.value(written).untyped_storage()._cdata
        for name in self.facts:
            if self.value(name).untyped_storage()._cdata == storage:
                self.facts[name] = self.facts[written]

    def is_told_by_types(self) -> bool:
        """Whether the CPU's error is one of sizes or of a result that does not fit."""
        words = self.run.last_error
        told = ("must match the size", "can't be cast", "Dimension out of range", "broadcast shape")
        return any(w in words for w in told) and "not implemented for" not in words

    def make(self, num_lines: int = 12) -> Program:
        for _ in range(4 * num_lines):
            if len(self.program.lines) >= num_lines:
                break
            self.add_line()
        self.program.barriers = (self.rng.randint(1, max(1, len(self.program.lines))),)
        return self.program


COARSENESS = {
    torch.float64: 0,
    torch.complex128: 0,
    torch.float32: 1,
    torch.complex64: 1,
    torch.float16: 2,
    torch.bfloat16: 3,
}
TOLERANCES = {
    torch.float64: (1e-6, 1e-9),
    torch.complex128: (1e-6, 1e-9),
    torch.float16: (8e-3, 2e-3),
    torch.bfloat16: (4e-2, 2e-2),
}


def difference(want: torch.Tensor, got: torch.Tensor, values: torch.Tensor, coarsest) -> str:
    """How a tensor differs from the CPU's; `values` is `got` on the CPU. It was made of tensors of
    dtype `coarsest`, or of finer ones."""
    for fact in ("dtype", "shape"):
        if getattr(want, fact) != getattr(got, fact):
            return f"{fact} {getattr(want, fact)} on cpu, {getattr(got, fact)} on xla"
    rtol, atol = TOLERANCES.get(coarsest, (2e-4, 2e-5))
    wide = torch.complex128 if want.is_complex() else torch.float64
    is_float = want.is_complex() or want.is_floating_point()
    same = (
        torch.allclose(want.to(wide), values.to(wide), rtol=rtol, atol=atol, equal_nan=True)
        if is_float
        else torch.equal(want, values)
    )
    return "" if same else f"{want.tolist()} on cpu, {values.tolist()} on xla"


def compare(program: Program, cpu: Run, xla: Run, values: dict[int, torch.Tensor]) -> str:
    coarsest: dict[str, torch.dtype] = {}  # of each name's tensor and what it was made of
    for i, line in enumerate(program.lines):
        want, got = cpu.errors[i], xla.errors[i]
        if want != got:
            why = xla.last_error if got else cpu.last_error
            return f"{line}: {want or 'no error'} on cpu, {got or 'no error'} on xla: {why}"
        if want:
            continue
        result = cpu.results[i]
        names = re.findall(r"\bv\d+", line)
        dtypes = [coarsest.get(n, torch.float64) for n in names] + [result.dtype]
        # Integers become float32, whatever `out` is.
        worst = max(dtypes, key=lambda d: COARSENESS.get(d, 0 if ", out=" not in line else 1))
        coarsest[names[0]] = worst
        if found := difference(result, xla.results[i], values[i], worst):
            return f"{line}: {found}"
    return ""


def find_failures(programs: list[Program]) -> list[tuple[Program, str]]:
    """The programs that differ from the CPU's, all run together."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cpu, xla = ([Run(program, device) for program in programs] for device in ("cpu", "xla"))
        for run in cpu:
            run.lines(0, len(run.program.lines))
        random_programs.run_on_device(xla)
        places = [
            (n, i) for n, run in enumerate(xla) for i, r in enumerate(run.results) if r is not None
        ]
        read = torch_xla._XLAC._to_cpu([xla[n].results[i] for n, i in places])
        values: list[dict[int, torch.Tensor]] = [{} for _ in programs]
        for (n, i), value in zip(places, read, strict=True):
            values[n][i] = value
        return [
            (program, found)
            for n, program in enumerate(programs)
            if (found := compare(program, cpu[n], xla[n], values[n]))
        ]


KIND = Kind(
    make=lambda seed: ValueProgramMaker(seed).make(),
    find_failures=find_failures,
    is_sound=lambda program: random_programs.is_sound(Run, program),
)
search = KIND.search

if __name__ == "__main__":
    KIND.main(__doc__)

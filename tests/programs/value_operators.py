"""The operators that value_programs.py calls, and what each may be given."""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass

__all__ = ["OPERATORS", "Operator", "Use"]


class Use(enum.Enum):
    """What an operator does to its operands' values."""

    MOVE = "hands them on, subnormal numbers included"
    BITS = "tells what they are: sign, NaN, exponent"
    STEP = "compares or rounds them: exact of what is exact"
    RING = "adds or multiplies two or three of them: rounds what is not small"
    SUM = "adds or multiplies many, in any order"
    SMOOTH = "rounds, a little differently on each device"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_COMPLEX = _words("eq ne sgn isnan isfinite angle logical_not any all exp sigmoid div mean")
_STEEP = _words(
    "asin acos acosh atanh erfinv log log2 log10 log1p lgamma digamma tan pow entr xlogy ldexp "
    "atan2 reciprocal div true_divide rsqrt addcdiv var std log_ndtr"
)


@dataclass(frozen=True)
class Operator:
    name: str
    use: Use
    form: str  # the call, with {0} to {2} for operands and {d} for a dimension
    arity: int = 1
    keeps_signs: bool = False  # of zeros
    takes_numbers: bool = False  # for operands but the first
    most: float = 0  # the greatest operand for which results do not depend on the last bits
    takes_infinity: bool = True
    is_steep: bool = False  # so that what was rounded gives what is far off
    is_selection: bool = False  # of the element of some rank
    takes_complex: bool = False
    has_in_place: bool = False
    has_out: bool = False

    def __post_init__(self) -> None:
        if self.use in (Use.MOVE, Use.RING, Use.SUM) or self.name in _COMPLEX:
            object.__setattr__(self, "takes_complex", True)
        if self.name in _STEEP:
            object.__setattr__(self, "is_steep", True)

    def text(self, source: random.Random, operands: list[str], dims: int) -> str:
        d = source.randrange(-dims, dims) if dims else 0
        k = source.choice(["True", "False"])
        return self.form.format(*operands, d=d, k=k)

    def in_place(self, operands: list[str]) -> str:
        return f"{operands[0]}.{self.name}_({', '.join(operands[1:])})"


def _functions(use: Use, names: str, arity: int = 1, **options) -> list[Operator]:
    """Functions of `torch` or `torch.special` or `F` with operands alone."""
    out = []
    for full in names.split():
        module, name = full.rsplit(".", 1) if "." in full else ("torch", full)
        module = {"special": "torch.special"}.get(module, module)
        operands = ", ".join(f"{{{i}}}" for i in range(arity))
        is_plain = module == "torch"
        out.append(
            Operator(
                name,
                use,
                f"{module}.{name}({operands})",
                arity,
                has_in_place=is_plain,
                has_out=module != "F",
                **options,
            )
        )
    return out


def _forms(use: Use, forms: list[str], **options) -> list[Operator]:
    out = []
    for form in forms:
        name = form.split("(")[0].rsplit(".", 1)[-1]
        arity = next(n for n in (3, 2, 1) if f"{{{n - 1}}}" in form)
        out.append(Operator(name, use, form, arity, **options))
    return out


_MOVES = [
    *_functions(Use.MOVE, "clone positive neg abs nan_to_num", keeps_signs=True),
    *_forms(
        Use.MOVE,
        [
            "torch.flip({0}, ({d},))",
            "torch.roll({0}, 1, {d})",
            "torch.cat([{0}, {0}], {d})",
            "torch.stack([{0}, {0}], {d})",
            "torch.tril({0})",
            "torch.atleast_2d({0})",
            "torch.cat([{0}, {1}], {d})",
            "F.pad({0}, (1, 0))",
            "F.pad({0}, (-1, 1), value=2)",
            "{0}.repeat_interleave(2, {d})",
            "{0}.masked_fill(torch.isnan({0}), 1)",
            "torch.where(torch.isfinite({0}), {0}, {1})",
            "torch.where(torch.isnan({0}), 2, {0})",
        ],
        keeps_signs=True,
    ),
]

_BITS = [
    *_functions(
        Use.BITS, "sign sgn signbit isnan isinf isfinite isposinf isneginf isreal", keeps_signs=True
    ),
    *_functions(Use.BITS, "copysign", 2, keeps_signs=True, takes_numbers=True),
    *_forms(Use.BITS, ["torch.frexp({0})[0]", "torch.frexp({0})[1]"], keeps_signs=True),
]

_STEPS = [
    # Factors that are booleans: a select in their place hides infinities and NaN.
    *_forms(
        Use.STEP,
        [
            "{0} * ({1} > 0)",
            "{0} * {1}.bool()",
            "({0} != 0) * {1}.float()",
            "torch.isfinite({0}).to({1}.dtype) * {1}",
        ],
        keeps_signs=True,
    ),
    *_functions(Use.STEP, "floor ceil trunc round", keeps_signs=True),
    *_functions(Use.STEP, "logical_not frac angle F.relu F.relu6 F.hardtanh bitwise_not"),
    *_functions(Use.STEP, "eq ne lt le gt ge", 2, takes_numbers=True),
    *_functions(
        Use.STEP, "maximum minimum fmax fmin heaviside logical_and logical_or logical_xor", 2
    ),
    *_functions(Use.STEP, "isclose nextafter gcd lcm", 2),
    *_functions(Use.STEP, "bitwise_and bitwise_or bitwise_xor", 2, takes_numbers=True),
    *_functions(Use.STEP, "fmod remainder floor_divide", 2, takes_numbers=True, most=1000),
    *_functions(Use.STEP, "clamp", 3, takes_numbers=True),
    *_forms(
        Use.STEP,
        [
            "{0}.to(torch.float32)",
            "{0}.to(torch.float64)",
            "{0}.to(torch.float16)",
            "{0}.to(torch.bfloat16)",
            "{0}.to(torch.complex64)",
            "{0}.bool()",
            "torch.any({0})",
            "torch.all({0}, {d}, {k})",
            "torch.any({0}, {d})",
            "torch.amax({0}, {d}, {k})",
            "torch.amin({0}, {d}, {k})",
            "torch.argmax({0}, {d}, {k})",
            "torch.argmin({0}, {d})",
            "torch.max({0}, {d})[0]",
            "torch.max({0}, {d})[1]",
            "torch.min({0}, {d})[1]",
            "torch.max({0})",
            "torch.aminmax({0}, dim={d}).max",
            "torch.count_nonzero({0}, {d})",
            "torch.sort({0}, {d}, {k}, stable=True)[0]",
            "torch.sort({0}, dim={d}, descending={k}, stable=True)[1]",
            "torch.cummax({0}, {d})[0]",
            "torch.cummin({0}, {d})[1]",
            "torch.equal({0}, {0}) * {0}",
            "F.threshold({0}, 0.5, 2)",
            "F.hardshrink({0})",
            "F.one_hot({0}.bool().long(), 3)",
            "torch.masked_fill({0}, {0} > 0, -1)",
            "torch.where({0} > 1, {0}, {1})",
            "torch.bucketize({0}, torch.tensor([-1., 0., 2.], device={0}.device))",
            "torch.isin({0}, {1})",
        ],
    ),
]
_STEPS += _forms(
    Use.STEP,
    [
        "torch.topk({0}, 1, {d}, {k})[0]",
        "torch.median({0}, {d})[0]",
        "torch.nanmedian({0}, {d})[0]",
        "torch.kthvalue({0}, 1, {d})[0]",
    ],
    is_selection=True,
)
for _name in ("int64", "int32", "int8", "uint8"):
    _STEPS += _forms(Use.STEP, [f"{{0}}.nan_to_num(1, 2, 3).clamp(0, 5).to(torch.{_name})"])

_RING = [
    *_functions(Use.RING, "mul", 2, takes_numbers=True, keeps_signs=True),
    *_functions(Use.RING, "add sub rsub", 2, takes_numbers=True),
    *_functions(Use.RING, "square", keeps_signs=True),
    *_functions(Use.RING, "addcmul", 3),
    *_forms(
        Use.RING,
        [
            "torch.add({0}, {1}, alpha=2)",
            "{0} - {1}",
            "2 - {0}",
            "3 * {0}",
            "torch.addcmul({0}, {1}, {2}, value=2)",
            "torch.lerp({0}, {1}, 0.5)",
        ],
        takes_numbers=False,
    ),
]

_SUMS = [
    *_functions(Use.SUM, "matmul outer", 2),
    *_forms(
        Use.SUM,
        [
            "torch.sum({0}, {d}, {k})",
            "torch.sum({0})",
            "torch.sum({0}, dtype=torch.float64)",
            "torch.nansum({0}, {d})",
            "torch.prod({0}, {d})",
            "torch.cumsum({0}, {d})",
            "torch.cumprod({0}, {d})",
            "torch.diff({0}, dim={d})",
            "torch.trace({0})",
        ],
    ),
]

_SMOOTH = [
    *_functions(
        Use.SMOOTH, "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sigmoid tanh"
    ),
    *_functions(Use.SMOOTH, "asin acos atan asinh acosh atanh erf erfc erfinv"),
    *_functions(
        Use.SMOOTH, "sin cos tan sinc sinh cosh lgamma digamma i0 deg2rad rad2deg", most=50
    ),
    *_functions(Use.SMOOTH, "F.silu F.mish F.softplus F.elu F.selu F.celu F.hardswish"),
    # The CPU's is NaN at infinity where it uses AVX-512, and infinite below that.
    *_functions(Use.SMOOTH, "F.gelu", takes_infinity=False, most=1e30),
    *_functions(Use.SMOOTH, "F.hardsigmoid F.logsigmoid F.leaky_relu F.softsign F.tanhshrink"),
    *_functions(Use.SMOOTH, "special.entr special.expit special.i0e special.i1e special.ndtr"),
    *_functions(Use.SMOOTH, "div true_divide pow", 2, takes_numbers=True, most=1000),
    *_functions(Use.SMOOTH, "atan2 hypot logaddexp logaddexp2 ldexp", 2, most=1000),
    *_functions(Use.SMOOTH, "xlogy", 2, takes_numbers=True),
    *_functions(Use.SMOOTH, "addcdiv", 3, most=1000),
    *_forms(
        Use.SMOOTH,
        [
            "{0} / {1}",
            "1 / {0}",
            "{0} ** 2",
            "{0} ** 0.5",
            "2 ** {0}",
            "F.softmax({0}, {d})",
            "F.log_softmax({0}, {d})",
            "torch.logsumexp({0}, {d})",
            "torch.mean({0}, {d}, {k})",
            "torch.nanmean({0}, {d})",
            "torch.var({0}, {d})",
            "torch.std({0}, {d})",
            "torch.linalg.vector_norm({0})",
            "torch.norm({0}, dim={d})",
            "torch.logcumsumexp({0}, {d})",
            "torch.special.log_ndtr({0})",
            "F.gelu({0}, approximate='tanh')",
        ],
        most=50,
    ),
]

OPERATORS = [*_MOVES, *_BITS, *_BITS, *_STEPS, *_RING, *_RING, *_SUMS, *_SMOOTH]

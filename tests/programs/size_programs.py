"""Random programs whose tensors come with other sizes in each turn, as in generation: what is
compiled for all sizes up to a bound must give what the CPU does for each. So must a call of each
operator that value programs know.

A program is a list of Python lines over named tensors, of which some have a dimension of `n`. It is
grown while it runs on the CPU for two values of `n`, which tell what may follow. Values are of
modest size and integers in floats as a rule, so that sums in another order are the same.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from value_operators import OPERATORS

import torch_xla
from torch_xla.debug import metrics

Shapes = tuple[tuple[int, ...], ...]
PROBES = (5, 7)
# Around the first bound and beyond, by little and by much.
SIZES = (5, 6, 7, 8, 30, 31, 62, 63, 64, 65, 66, 67, 129)


def inputs(n: int, seed: int) -> dict[str, Tensor]:
    """`x`, `y`: [2, n, 4]; `z`: [2, n + 1, 4]; `k`: [n] of indices below n; `m`: [2, n] of bool;
    `w`: [4, 4]; `u`: [2, 1, 4]."""
    generator = torch.Generator().manual_seed(seed * 1000 + n)

    def draw(*shape: int) -> Tensor:
        return torch.randint(-3, 4, shape, generator=generator).float()

    return {
        "x": draw(2, n, 4),
        "y": draw(2, n, 4),
        "z": draw(2, n + 1, 4),
        "k": torch.randint(0, n, (n,), generator=generator),
        "m": torch.randint(0, 2, (2, n), generator=generator).bool(),
        "w": draw(4, 4),
        "u": draw(2, 1, 4),
    }


UNARY = (
    "{a}.neg()", "{a}.abs()", "{a} * 0.5", "{a} + 1", "{a}.clamp(-2, 2)", "{a}.square()",
    "{a} / {a}", "torch.where({a} > 0, {a}, float('inf'))", "{a}.clone()",
    "{a}.nan_to_num(1, 2, 3)", "1 / ({a} > 0).float()",
)  # fmt: skip
ALONG = (
    "{a}.sum({d})", "{a}.sum({d}, keepdim=True)", "{a}.amax({d})", "{a}.amin({d}, keepdim=True)",
    "{a}.argmax({d})", "{a}.max({d}).values", "{a}.cumsum({d})", "({a} > 0).any({d})",
    "({a} == {a}).all({d})", "torch.softmax({a}, {d})", "{a}.unsqueeze({d})", "{a}.select({d}, -1)",
    "{a}.select({d}, 0)", "{a}.narrow({d}, {a}.shape[{d}] - 1, 1)", "{a}.mean({d})",
    "torch.cat([{a}, {a}], {d})", "torch.cat([{a}, {a}.narrow({d}, 0, 1)], {d})",
    "{a}.narrow({d}, 1, {a}.shape[{d}] - 1)", "{a}.narrow({d}, 0, {a}.shape[{d}] - 1)",
    "torch.stack([{a}, {a}], {d})", "{a}.transpose({d}, -1)", "{a}.flip({d})", "{a}.prod({d})",
    "torch.arange({a}.shape[{d}], device={a}.device)", "{a}.index_select({d}, idx({a}, {d}))",
    "torch.zeros({a}.shape[{d}], device={a}.device) + 2", "torch.log_softmax({a}, {d})",
    "{a}.gather({d}, {a}.argmax({d}, keepdim=True))", "{a}[..., -1:]", "{a}[..., :2]",
)  # fmt: skip
BINARY = (
    "{a} + {b}", "{a} * {b}", "torch.maximum({a}, {b})", "{a} - {b}",
    "torch.where({a} > {b}, {a}, {b})", "torch.cat([{a}, {b}], 0)",
    "torch.cat([{a}, {b}], -1)", "{a} @ {b}.transpose(-1, -2)",
    "{a}.transpose(-1, -2) @ {b}", "{a}.mul_({b})", "({a} >= {b})",
)  # fmt: skip
OTHER = (
    "torch.nn.functional.linear({a}, w)", "torch.nn.functional.pad({a}, (0, 1))",
    "torch.nn.functional.pad({a}, (0, 0, 0, 200 - {a}.shape[-2]), value=3)",
    "torch.nn.functional.pad({a}, (1, 2), value=-1)", "{a}.masked_fill(m.unsqueeze(-1), 2)",
    "{a}[:, k]", "{a}[:, k - k.shape[0]]", "{a}.expand(3, *{a}.shape)",
    "{a}.reshape(*{a}.shape[:-1], 2, -1)",
    "{a}.flatten(0, 1)", "{a}.flatten()", "torch.nn.functional.layer_norm({a}, (4,))", "{a}.tril()",
    "{a}.to(torch.int64)", "{a}.double()", "{a}.sum()", "{a}.max()", "{a}.repeat(2, 1, 1)",
    "torch.nn.functional.embedding(k, w.repeat(60, 1))", "{a}[:, -1:] + u",
    "sdpa({a}, {a}, {a})", "sdpa({a}[:, -1:], {a}, {a})", "sdpa({a}, {a}, {a}, is_causal=True)",
    "sdpa({a}[:, -1:], {a}, {a}, attn_mask=m[:, None, None])", "{a}.mean()",
    "normed({a})", "filtered({a})", "pooled({a})",
)  # fmt: skip
# With gradients for `{a}`, of weights that differ from element to element.
BACKWARD = (
    "back(lambda t: torch.nn.functional.linear(t, w).cos(), {a})",
    "back(lambda t: torch.nn.functional.linear({a}, t), w)",
    "back(lambda t: torch.nn.functional.layer_norm(t, (4,)), {a})",
    "back(lambda t: torch.nn.functional.rms_norm(t, (4,)), {a})",
    "back(lambda t: t.softmax({d}), {a})", "back(lambda t: t.log_softmax({d}), {a})",
    "back(lambda t: t.select({d}, -1), {a})", "back(lambda t: t.select({d}, 0), {a})",
    "back(lambda t: t.narrow({d}, 1, {a}.shape[{d}] - 1), {a})",
    "back(lambda t: t[..., -2:] * 2, {a})", "back(lambda t: t.flatten(0, 1).square(), {a})",
    "back(lambda t: sdpa(t, t, t), {a})", "back(lambda t: sdpa(t, t, t, is_causal=True), {a})",
    "back(lambda t: sdpa(t[:, -1:], t, t, attn_mask=m[:, None, None]), {a})",
    "back(lambda t: sdpa(t, t, t, attn_mask=m[:, None, None].float()), {a})",
    "back(lambda t: torch.nn.functional.embedding(k, t).sin(), w.repeat(60, 1))",
    "back(lambda t: cross(t), {a})", "back(lambda t: cross(t, reduction='sum'), {a})",
    "back(lambda t: cross(t, ignore_index=1), {a})", "cross({a}, reduction='none')",
    "back(lambda t: t.transpose(-1, -2) @ {b}, {a})", "back(lambda t: t.mean({d}), {a})",
    "back(lambda t: normed(t), {a})", "back(lambda t: filtered(t), {a})",
    "back(lambda t: pooled(t), {a})",
)  # fmt: skip


def back(function: Callable[[Tensor], Tensor], of: Tensor) -> Tensor:
    of = of.detach().float().requires_grad_()
    result = function(of)
    weights = (torch.arange(result.numel(), device=of.device) % 7 - 2).float()
    return torch.autograd.grad((result.flatten() * weights).sum(), of)[0]


def cross(scores: Tensor, **options) -> Tensor:
    """The loss of all rows but the last, as of a model of language."""
    scores = scores[:, :-1].flatten(0, -2).float()
    classes = torch.arange(scores.shape[0], device=scores.device) % scores.shape[1]
    return torch.nn.functional.cross_entropy(scores, classes, **options)


def sdpa(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Of one head."""
    q, k, v = (t.unsqueeze(1) for t in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options).squeeze(1)


def samples(a: Tensor) -> Tensor:
    """As many of two rows, four wide, as there are elements for."""
    return a.transpose(0, 1)[..., :4].float()


def normed(a: Tensor) -> Tensor:
    return torch.nn.functional.batch_norm(samples(a), None, None, training=True, eps=0.1)


def filtered(a: Tensor) -> Tensor:
    rows = samples(a)
    return torch.nn.functional.conv1d(rows, rows.new_ones(3, rows.shape[1], 3), padding=1)


def pooled(a: Tensor) -> Tensor:
    return torch.nn.functional.max_pool2d(samples(a).unsqueeze(1), 2)


def idx(a: Tensor, dim: int) -> Tensor:
    return torch.arange(a.shape[dim], device=a.device)


@dataclass
class Program:
    seed: int
    lines: list[str]

    def run(self, n: int, device: str) -> dict[str, Tensor]:
        names: dict = {name: t.to(device) for name, t in inputs(n, self.seed).items()}
        names.update(torch=torch, sdpa=sdpa, idx=idx, back=back, cross=cross)
        names.update(normed=normed, filtered=filtered, pooled=pooled, F=torch.nn.functional)
        for line in self.lines:
            exec(line, names)
        return {name: t for name, t in names.items() if isinstance(t, Tensor)}

    def __str__(self) -> str:
        return "\n".join([f"seed {self.seed}", *self.lines])


def make(seed: int, length: int) -> Program:
    chosen = random.Random(seed)
    program = Program(seed, [])

    def shapes() -> dict[str, Shapes] | None:
        try:
            runs = [program.run(n, "cpu") for n in PROBES]
            largest = program.run(max(SIZES), "cpu")
        except Exception:  # what is wrong for the CPU is no program
            return None
        if max(t.numel() for t in largest.values()) > 500_000:
            return None
        return {name: tuple(tuple(run[name].shape) for run in runs) for name in runs[0]}

    known = shapes()
    assert known is not None
    while len(program.lines) < length:
        floats = [name for name in known if name not in ("k", "m")]
        a = chosen.choice(floats)
        alike = [name for name in floats if known[name] == known[a]]
        rank = len(known[a][0])
        form = chosen.choice(chosen.choice((UNARY, ALONG, ALONG, BINARY, OTHER, BACKWARD)))
        text = form.format(a=a, b=chosen.choice(alike), d=chosen.randrange(rank) if rank else 0)
        program.lines.append(f"v{len(program.lines)} = {text}")
        now = shapes()
        if now is None:
            program.lines.pop()
        else:
            known = now
    return program


def operator_programs() -> list[Program]:
    """A call of each operator along the dimension that changes and along another, of floats or
    integers, and with gradients; without what the CPU refuses."""
    texts: dict[str, None] = {}
    for operator in OPERATORS:
        for d in (1, 2):
            for kind in ("", ".long()"):
                operands = [f"{name}{kind}" for name in ("x", "y", "z[:, 1:]")]
                texts[operator.form.format(*operands, d=d, k=True)] = None
            if not operator.is_selection:  # of which of equal elements is open
                call = operator.form.format("t", "y", "z[:, 1:]", d=d, k=True)
                texts[f"back(lambda t: {call}, x)"] = None
    programs = []
    for seed, text in enumerate(texts):
        program = Program(seed, [f"v0 = {text}"])
        try:
            program.run(PROBES[0], "cpu")
        except Exception:  # not for such operands
            continue
        programs.append(program)
    return programs


def difference(program: Program, sizes: Sequence[int] = SIZES) -> str | None:
    """What a turn gives otherwise than on the CPU, if anything."""
    for n in sizes:
        got = program.run(n, "xla")
        torch_xla.sync()
        for name, want in program.run(n, "cpu").items():
            try:
                torch.testing.assert_close(
                    got[name].cpu(), want, rtol=1e-4, atol=1e-4, equal_nan=True
                )
            except AssertionError as error:
                return f"{program}\n{name} for n = {n}: {error}"
    return None


def search(first: int, count: int, length: int = 6) -> list[str]:
    """The failures of so many programs."""
    found = []
    for seed in range(first, first + count):
        if (failure := difference(make(seed, length))) is not None:
            found.append(failure)
    return found


def num_bounded() -> int:
    return metrics.counter_value("BoundedCompile") or 0


def search_operators(programs: Sequence[Program]) -> list[str]:
    """The failures of so many operators, at fewer sizes."""
    found = []
    for program in programs:
        torch_xla._XLAC._clear_compilation_cache()
        if (failure := difference(program, SIZES[:4] + SIZES[7:10])) is not None:
            found.append(failure)
    return found


def main() -> None:
    """The command line; the process ends with 1 if programs differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--no-operators", action="store_true", help="random programs alone")
    options = parser.parse_args()
    torch_xla.settings.bounded_sizes = True
    failures = [] if options.no_operators else search_operators(operator_programs())
    failures += search(options.first, options.count)
    print("\n".join(failures))
    print(f"{len(failures)} failures; {num_bounded()} bounded programs")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

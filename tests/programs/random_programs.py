"""Searching among random programs for those that the device answers in another way than the CPU.

A program is a list of Python lines over named tensors. A kind of program says how to make one from
a seed, and how to run many of them on both devices; `Kind` finds those that differ and drops the
lines that a difference does not need. For kinds whose programs are judged by the tensors and
gradients that they leave, `Run` runs them and `kind_of` makes the rest.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, zip_longest
from typing import Protocol

import annotations
import torch

import torch_xla

__all__ = ["Kind", "Program", "Run", "ask", "kind_of", "run_on_device"]


@dataclass
class Program:
    seed: int
    lines: list[str] = field(default_factory=list)
    # The lines before which everything so far is computed, in their order.
    barriers: tuple[int, ...] = ()

    def text(self) -> str:
        body = [f"# program {self.seed}", *self.lines]
        for barrier in reversed(self.barriers):
            body.insert(1 + min(barrier, len(self.lines)), "torch_xla.sync()")
        return "\n".join(body)

    def without(self, i: int) -> Program:
        barriers = tuple(barrier - (i < barrier) for barrier in self.barriers)
        return Program(self.seed, self.lines[:i] + self.lines[i + 1 :], barriers)

    def insert(self, i: int, line: str) -> None:
        self.lines.insert(i, line)
        self.barriers = tuple(barrier + (i < barrier) for barrier in self.barriers)


@dataclass(frozen=True)
class Kind:
    make: Callable[[int], Program]
    # The programs that differ, each with how.
    find_failures: Callable[[list[Program]], list[tuple[Program, str]]]
    # False where the comparison means nothing: a name is missing, or the CPU's answer is arbitrary.
    is_sound: Callable[[Program], bool]

    def still_fails(self, program: Program) -> str:
        try:
            found = self.find_failures([program])
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return found[0][1] if found else ""

    def shrink(self, program: Program) -> tuple[Program, str]:
        """The program without the lines that its failure does not need, and the failure."""
        found = self.still_fails(program)
        if not found:
            return program, ""
        for i in reversed(range(len(program.lines))):
            smaller = program.without(i)
            if self.is_sound(smaller) and (again := self.still_fails(smaller)):
                program, found = smaller, again
        last = Program(program.seed, program.lines, (len(program.lines),))
        if again := self.still_fails(last):
            program, found = last, again
        return program, found

    def make_programs(self, first: int, count: int) -> list[Program]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [self.make(seed) for seed in range(first, first + count)]

    def search(self, first: int, count: int, batch: int = 50, max_failures: int = 5) -> list[str]:
        """The texts of shrunk failing programs."""
        failures: list[str] = []
        for start in range(first, first + count, batch):
            programs = self.make_programs(start, min(batch, first + count - start))
            try:
                failing = self.find_failures(programs)
            except Exception as error:  # a program that does not compile takes its batch along
                failing = [(p, str(error)) for p in programs if self.still_fails(p)]
                failing = failing or [(Program(start), f"only as a batch: {error}")]
            for program, found in failing:
                smaller, why = self.shrink(program)
                failures.append(f"{smaller.text()}\n# {why or found + ' (only in a batch)'}\n")
            if len(failures) >= max_failures:
                break
        return failures

    def main(self, description: str | None) -> None:
        """The command line; the process ends with 1 if programs differ."""
        parser = argparse.ArgumentParser(description=description)
        parser.add_argument("--first", type=int, default=0)
        parser.add_argument("--count", type=int, default=200)
        parser.add_argument("--batch", type=int, default=50)
        parser.add_argument("--max-failures", type=int, default=10)
        parser.add_argument("--print", action="store_true", help="print programs, run nothing")
        options = parser.parse_args()
        if options.print:
            for program in self.make_programs(options.first, options.count):
                print(program.text(), end="\n\n")
            return
        start = time.time()
        failures = self.search(options.first, options.count, options.batch, options.max_failures)
        print("\n".join(failures))
        print(f"{len(failures)} failures; {time.time() - start:.1f} s")
        sys.exit(1 if failures else 0)


class Run:
    """A program's tensors on one device, and how each of its lines ended."""

    def __init__(self, program: Program, device: str) -> None:
        self.program = program
        self.errors: list[str] = []
        self.scope: dict[str, object] = {"torch": torch, "make": self.make, "mask": self.mask}
        self.scope["index"] = self.index
        self.scope |= annotations.SCOPE
        self.device = device

    def make(self, shape, dtype, seed, grad=False):
        count = 1
        for size in shape:
            count *= size
        values = (torch.arange(count) * (2 * seed + 3) + seed) % 7 - 3
        if dtype == torch.bool:
            values = values > 0
        tensor = values.to(dtype).reshape(shape).to(self.device)
        if dtype.is_complex:
            tensor = tensor * (1 + 2j)
        return tensor.detach().requires_grad_(grad)

    def mask(self, shape, seed):
        return self.make(shape, torch.bool, seed)

    def index(self, values):
        return torch.tensor(values, device=self.device)

    def tensors(self) -> dict[str, torch.Tensor]:
        return {k: v for k, v in sorted(self.scope.items()) if isinstance(v, torch.Tensor)}

    def line(self, text: str) -> str:
        """Runs a line; the name of the error's type, or nothing."""
        try:
            exec(text, self.scope)
            self.errors.append("")
        except Exception as error:
            self.errors.append(type(error).__name__)
            self.scope["last_error"] = str(error)
        return self.errors[-1]

    def lines(self, first: int, last: int) -> None:
        for line in self.program.lines[first:last]:
            self.line(line)

    def outcome(self) -> dict[str, torch.Tensor]:
        out = self.tensors()
        for name, tensor in list(out.items()):
            keeps = ask(tensor, "is_leaf") is True or ask(tensor, "retains_grad") is True
            if keeps and tensor.grad is not None:
                out[name + ".grad"] = tensor.grad
        return out

    def facts(self, name: str) -> list[str]:
        """What is compared of a tensor beside its values."""
        facts = ["dtype", "shape", "requires_grad", "is_leaf", "stride", "storage_offset"]
        # A gradient's own version says only how torch's engine added its parts up.
        return facts if name.endswith(".grad") else [*facts, "_version"]

    def is_close(self, want: torch.Tensor, got: torch.Tensor) -> bool:
        return torch.allclose(want, got, rtol=2e-2, atol=1e-3, equal_nan=True)


class Maker(Protocol):
    run_class: type[Run]

    def __init__(self, seed: int) -> None: ...
    def make(self) -> Program: ...


def ask(tensor: torch.Tensor, fact: str):
    """An attribute, or the error's type: views that an in-place write made invalid raise."""
    try:
        if fact == "stride":  # of an element that has a next one
            if not tensor.numel():
                return ()
            return tuple(s for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1)
        if fact == "storage_offset":
            return tensor.storage_offset() if tensor.numel() else 0
        return getattr(tensor, fact)
    except RuntimeError as error:
        return type(error).__name__


def difference(name: str, want: torch.Tensor, got: torch.Tensor, values: torch.Tensor, run: Run):
    """How a tensor differs from the CPU's, or ""; `values` is `got` on the CPU."""
    for fact in run.facts(name):
        a, b = ask(want, fact), ask(got, fact)
        if a != b:
            return f"{name}.{fact}: {a} on cpu, {b} on xla"
    want, values = want.detach(), values.detach()
    if want.dtype in (torch.float16, torch.bfloat16):
        want, values = want.float(), values.float()
    if not run.is_close(want, values):
        return f"{name}: {want.tolist()} on cpu, {values.tolist()} on xla"
    return ""


def compare(cpu: Run, xla: Run) -> str:
    for i, (want, got) in enumerate(zip(cpu.errors, xla.errors, strict=True)):
        if want != got:
            why = xla.scope.get("last_error") if got else cpu.scope.get("last_error")
            line = cpu.program.lines[i]
            return f"{line}: {want or 'no error'} on cpu, {got or 'no error'} on xla: {why}"
    want, got = cpu.outcome(), xla.outcome()
    if want.keys() != got.keys():
        return f"tensors {sorted(want)} on cpu, {sorted(got)} on xla"
    values = dict(zip(got, torch_xla._XLAC._to_cpu(list(got.values())), strict=True))
    for name in want:
        if found := difference(name, want[name], got[name], values[name], xla):
            return found
    return ""


def run_on_device(runs: Sequence[Run]) -> None:
    """Runs all the programs with a few barriers for the lot."""
    parts = [pairwise([0, *r.program.barriers, len(r.program.lines)]) for r in runs]
    for turn in zip_longest(*parts):
        for run, places in zip(runs, turn, strict=True):
            if places is not None:
                run.lines(*places)
        torch_xla.sync()


def find_failures(run_class: type[Run], programs: list[Program]) -> list[tuple[Program, str]]:
    """The programs that differ from the CPU's, all run together."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cpu = [run_class(p, "cpu") for p in programs]
        xla = [run_class(p, "xla") for p in programs]
        for run in cpu:
            run.lines(0, len(run.program.lines))
        run_on_device(xla)
        out = []
        for a, b in zip(cpu, xla, strict=True):
            if found := compare(a, b):
                out.append((a.program, found))
        return out


def is_sound(run_class: type[Run], program: Program) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = run_class(program, "cpu")
        run.lines(0, len(program.lines))
    return "NameError" not in run.errors


def kind_of(maker: type[Maker]) -> Kind:
    """Programs judged by what they leave: every tensor, its gradient, and each line's error."""
    return Kind(
        make=lambda seed: maker(seed).make(),
        find_failures=lambda programs: find_failures(maker.run_class, programs),
        is_sound=lambda program: is_sound(maker.run_class, program),
    )

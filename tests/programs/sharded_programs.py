"""Random programs of every kind on a mesh: values must be the CPU's, whatever lies where.

The programs are those of the other kinds with annotations between their lines: of inputs, of what
is computed, of views, of memory that is written, on meshes of one to three axes that name the
devices in any order, over dimensions without equal parts too; some are taken back, and barriers
stand between. Children with 2, 4 and 8 devices run them: what ends a child is a failure like a
wrong value. What one device does not do right either is for the other kinds to find.
`python tests/programs/sharded_programs.py --first 0 --count 500` runs them by hand.
"""

from __future__ import annotations

import argparse
import pathlib
import random
import re
import sys
import time
from typing import Any

if __name__ == "__main__":
    sys.path.append(str(pathlib.Path(__file__).parents[2] / "tools" / "conformance"))

import autograd_programs
import memory_programs
import value_programs
import view_programs
import workers
from random_programs import Kind, Program

import torch_xla.runtime as xr

KINDS = {
    "value": value_programs.KIND,
    "view": view_programs.KIND,
    "memory": memory_programs.KIND,
    "autograd": autograd_programs.KIND,
}
COUNTS = (2, 4, 8)
_SHAPES = {
    2: [(2,), (1, 2), (2, 1)],
    4: [(4,), (2, 2), (2, 2), (4, 1)],
    8: [(8,), (2, 4), (4, 2), (2, 2, 2)],
}
_MOST_DIMENSIONS = 4
# A line that makes a name stand for a tensor, or writes to it.
_WRITES = re.compile(r"^(?:with torch\.no_grad\(\): )?(v\d+|x)\b(?!\.grad)")
_MAKES = re.compile(r"^v\d+ = (?:make|leaf)\(")


class Annotator:
    """Puts annotations and barriers into a program."""

    def __init__(self, seed: int, count: int) -> None:
        self.rng = random.Random(seed * 31 + count)
        self.count = count
        self.mesh = self.new_mesh()

    def new_mesh(self) -> str:
        devices = list(range(self.count))
        if self.rng.random() < 0.5:
            self.rng.shuffle(devices)
        self.sizes = self.rng.choice(_SHAPES[self.count])
        return f"{self.sizes}, {devices}"

    def spec(self) -> str:
        axes = list(range(len(self.sizes)))
        self.rng.shuffle(axes)
        entries: list[tuple[int, ...]] = [()] * _MOST_DIMENSIONS
        for axis in axes[: self.rng.choice([len(axes), len(axes), self.rng.randint(0, len(axes))])]:
            # Most tensors have one dimension or two.
            d = min(self.rng.choice([0, 0, 0, 1, 1, 2, 3]), _MOST_DIMENSIONS - 1)
            entries[d] = (*entries[d], axis)
        return str(tuple((e[0] if len(e) == 1 else e) if e else None for e in entries))

    def line(self, name: str, is_new: bool) -> str:
        if self.rng.random() < 0.15:
            return f"{name} = clear({name})"
        if self.rng.random() < 0.15:
            self.mesh = self.new_mesh()
        call = "spread" if is_new and self.rng.random() < 0.2 else "split"
        return f"{name} = {call}({name}, {self.mesh}, {self.spec()})"

    def annotate(self, program: Program) -> Program:
        places = [0, *sorted(self.rng.randint(1, len(program.lines)) for _ in range(2))]
        program.barriers = tuple(sorted({*program.barriers, *places[1:]}))
        for i in reversed(range(len(program.lines))):
            found = _WRITES.match(program.lines[i])
            if found is None or self.rng.random() > 0.4:
                continue
            is_new = _MAKES.match(program.lines[i]) is not None
            program.insert(i + 1, self.line(found[1], is_new))
        return program


# In a child.


def _start() -> int:
    """How many devices the child has."""
    if not xr.is_spmd() and xr.global_runtime_device_count() > 1:
        xr.use_spmd()
    return xr.global_runtime_device_count()


def _kind_on(base: Kind, count: int) -> Kind:
    def make(seed: int) -> Program:
        return Annotator(seed, count).annotate(base.make(seed))

    return Kind(make, base.find_failures, base.is_sound)


def find(kind: str, first: int, count: int) -> list[tuple[Program, str]]:
    """The programs of a kind, from a seed on, that differ, each with how."""
    on_mesh = _kind_on(KINDS[kind], _start())
    return on_mesh.find_failures(on_mesh.make_programs(first, count))


def judge(kind: str, program: Program) -> str:
    """How a program differs by itself; "" also where the comparison means nothing."""
    _start()
    return KINDS[kind].still_fails(program) if KINDS[kind].is_sound(program) else ""


def make(kind: str, count: int, first: int, number: int) -> list[Program]:
    return _kind_on(KINDS[kind], count).make_programs(first, number)


def run(function: str, *arguments: Any) -> Any:
    """What the parent asks for, by name."""
    return {"find": find, "judge": judge}[function](*arguments)


# In the parent.


class Search:
    """Runs programs in a child with `count` devices, and tells what fails there alone."""

    def __init__(self, count: int, timeout_s: float = 300) -> None:
        self.count = count
        self.on_mesh = workers.Worker("sharded_programs:run", timeout_s, CPU_NUM_DEVICES=str(count))
        self.alone = workers.Worker("sharded_programs:run", timeout_s, CPU_NUM_DEVICES="1")

    def close(self) -> None:
        self.on_mesh.close()
        self.alone.close()

    def judge(self, worker: workers.Worker, kind: str, program: Program) -> str:
        answer = worker.ask("judge", kind, program)
        return answer if isinstance(answer, str) else _told(answer)

    def failing(self, kind: str, first: int, number: int) -> list[tuple[Program, str]]:
        """A batch that raises, or ends the child, is looked at by halves."""
        answer = self.on_mesh.ask("find", kind, first, number)
        if isinstance(answer, list):
            return answer
        if number == 1:
            return [(make(kind, self.count, first, 1)[0], _told(answer))]
        half = number // 2
        found = self.failing(kind, first, half)
        found += self.failing(kind, first + half, number - half)
        return found or [(Program(first), f"only as a batch of {number}: {_told(answer)}")]

    def texts(self, kind: str, first: int, number: int) -> list[str]:
        """The shrunk programs that fail on the mesh and not on one device."""

        def find_failures(programs: list[Program]) -> list[tuple[Program, str]]:
            (program,) = programs
            why = self.judge(self.on_mesh, kind, program)
            return [(program, why)] if why else []

        texts = []
        shrinking = Kind(KINDS[kind].make, find_failures, KINDS[kind].is_sound)
        for program, found in self.failing(kind, first, number):
            if self.judge(self.alone, kind, program):
                continue
            smaller, why = shrinking.shrink(program)
            why = why or f"{found} (only in a batch)"
            texts.append(f"{kind}, {self.count} devices\n{smaller.text()}\n# {why}\n")
        return texts


def _told(answer: workers.Died | workers.Raised) -> str:
    return answer.how if isinstance(answer, workers.Died) else answer.text


def search(
    kind: str, count: int, first: int, number: int, batch: int = 25, max_failures: int = 5
) -> list[str]:
    """The texts of shrunk programs that differ on that many devices."""
    found: list[str] = []
    children = Search(count)
    for start in range(first, first + number, batch):
        found += children.texts(kind, start, min(batch, first + number - start))
        if len(found) >= max_failures:
            break
    children.close()
    return found


def main() -> None:
    """The command line; the process ends with 1 if programs differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=240, help="of all kinds and meshes together")
    parser.add_argument("--batch", type=int, default=25)
    parser.add_argument("--max-failures", type=int, default=5, help="of a kind on a mesh")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--devices", default=",".join(map(str, COUNTS)))
    options = parser.parse_args()
    kinds, counts = options.kinds.split(","), [int(n) for n in options.devices.split(",")]
    number = -(-options.count // (len(kinds) * len(counts)))
    total = 0
    for kind in kinds:
        for count in counts:
            start = time.time()
            found = search(kind, count, options.first, number, options.batch, options.max_failures)
            print("\n".join(found))
            seconds = time.time() - start
            print(f"{kind} on {count} devices: {len(found)} failures of {number}; {seconds:.1f} s")
            sys.stdout.flush()
            total += len(found)
    sys.exit(1 if total else 0)


if __name__ == "__main__":
    main()

"""`python tools/conformance [--dtype float32] [--only add,mul] [--out table.txt]`.

Each entry is checked in a child process, so that one that dies is a line like others.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import math
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

import dynamic
import modules
import op_samples
import op_variants
import optimizers
import split
import sweep
import torch
import workers


def parse() -> argparse.Namespace:
    """The command line, with `--dtype`, `--only` and `--variants` known to exist."""
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument(
        "--only", default="", help="names separated by commas, of entries or operators"
    )
    parser.add_argument("--part", default="0/1", help="i/n: every n-th entry from the i-th on")
    parser.add_argument("--samples", type=int, help="at most, per entry; all without it")
    parser.add_argument("--no-list", action="store_true", help="PyTorch's tolerances alone")
    parser.add_argument("--no-backward", action="store_true")
    parser.add_argument("--modules", action="store_true", help="the database of modules instead")
    parser.add_argument("--optimizers", action="store_true", help="that of optimizers instead")
    parser.add_argument(
        "--variants", nargs="?", const=",".join(op_variants.VARIANTS), help="all, or a list of them"
    )
    parser.add_argument(
        "--sweep", action="store_true", help="all dtypes, 0-d and empty tensors, refusals"
    )
    parser.add_argument(
        "--split",
        nargs="?",
        const="4",
        help="each tensor split along each dimension over a mesh of so many devices, or 2x2",
    )
    parser.add_argument(
        "--dynamic",
        action="store_true",
        help="functionals and modules, compiled by Dynamo and called with three batch sizes",
    )
    parser.add_argument("--jobs", type=int, default=1, help="child processes at a time")
    parser.add_argument("--timeout", type=float, default=3600, help="seconds for an entry")
    parser.add_argument("--out", type=pathlib.Path, help="file that receives the table too")
    arguments = parser.parse_args()
    arguments.dtype = getattr(torch, arguments.dtype, None)
    if not isinstance(arguments.dtype, torch.dtype):
        parser.error("--dtype: not the name of a torch.dtype")
    if arguments.variants:
        arguments.variants = tuple(arguments.variants.split(","))
        if unknown := set(arguments.variants) - set(op_variants.VARIANTS):
            parser.error(f"--variants: no such variants: {', '.join(sorted(unknown))}")
    if arguments.split is not None:
        sizes = arguments.split.split("x")
        if not all(size.isdecimal() and int(size) > 0 for size in sizes):
            parser.error(
                f"--split: expected the sizes of a mesh, as 4 or 2x2, got {arguments.split}"
            )
        arguments.split = tuple(map(int, sizes))
    arguments.chosen = choose(parser, arguments)
    return arguments


def choose(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> list[Any]:
    """The entries of the database that is asked for, as `--only` and `--part` say."""
    entries: list[tuple[set[str], Any]]
    if arguments.dynamic:
        entries = [({op.name, op.full_name}, op) for op in dynamic.functionals()]
        entries += [({info.name}, info) for info in modules.entries()]
    elif arguments.modules:
        entries = [({info.name}, info) for info in modules.entries()]
    elif arguments.optimizers:
        entries = [({optimizers.class_of(i).__name__}, i) for i in optimizers.entries()]
    else:
        infos = sweep.entries() if arguments.sweep else op_samples.entries()
        entries = [({op.name, op.full_name}, op) for op in infos]
    wanted = set(filter(None, arguments.only.split(",")))
    if unknown := wanted - set().union(*(names for names, _ in entries)):
        parser.error(f"--only: the database has no {', '.join(sorted(unknown))}")
    first, stride = map(int, arguments.part.split("/"))
    return [info for names, info in entries if not wanted or names & wanted][first::stride]


def main() -> int:
    """Check the entries, print a line for each and the totals; 1 if any is wrong."""
    arguments = parse()
    chosen = arguments.chosen
    if arguments.dynamic:
        names = [getattr(entry, "full_name", entry.name) for entry in chosen]
        tasks: list[tuple[Any, ...]] = [(n, arguments.dtype, arguments.samples) for n in names]
        return tell("check_dynamic", tasks, arguments)
    if arguments.modules:
        return tell("check_module", [(i.name, arguments.dtype) for i in chosen], arguments)
    if arguments.optimizers:
        tasks = [(optimizers.class_of(i).__name__,) for i in chosen]
        return tell("check_optimizer", tasks, arguments)
    if arguments.sweep:
        return check_sweep([op.full_name for op in chosen], arguments)
    if arguments.split:
        return check_split([op.full_name for op in chosen], arguments)
    if arguments.variants:
        return check_variants([op.full_name for op in chosen], arguments)
    return check_operators([op.full_name for op in chosen], arguments)


def answers(
    function: str, tasks: list[tuple[Any, ...]], arguments: argparse.Namespace
) -> Iterator[tuple[str, Any, str]]:
    """An entry, what a function of checks.py answers for it, and instead of that how it died."""
    found = workers.run(f"checks:{function}", tasks, arguments.jobs, arguments.timeout)
    for (name, *_), answer in found:
        if isinstance(answer, workers.Raised):
            raise RuntimeError(f"{name}: {answer.text}")
        is_dead = isinstance(answer, workers.Died)
        yield name, None if is_dead else answer, f"died: {answer.how}" if is_dead else ""


def check_operators(names: list[str], arguments: argparse.Namespace) -> int:
    """Print a line for each entry, forward and backward, and how many there are of each status."""
    totals: collections.Counter[str] = collections.Counter()
    lines = []
    options = not arguments.no_backward, arguments.samples, not arguments.no_list
    tasks: list[tuple[Any, ...]] = [(name, arguments.dtype, *options) for name in names]
    for name, verdict, death in answers("check_operator", tasks, arguments):
        verdict = verdict or op_samples.Verdict(name, "wrong", death)
        totals[verdict.status] += 1
        detail = verdict.detail + " ".join(verdict.fallbacks)
        lines.append(f"{verdict.status:11} {verdict.name:45} {detail}".rstrip())
        print(lines[-1], flush=True)
        if arguments.out:
            arguments.out.write_text("\n".join(lines) + "\n")
    print(", ".join(f"{count} {status}" for status, count in sorted(totals.items())))
    return 1 if totals["wrong"] else 0


def tell(function: str, tasks: list[tuple[Any, ...]], arguments: argparse.Namespace) -> int:
    """Print each entry as it is checked, with its problems."""
    totals: collections.Counter[str] = collections.Counter()
    for name, problems, death in answers(function, tasks, arguments):
        problems = [death] if death else problems
        status = "wrong" if problems else "right"
        totals[status] += 1
        for problem in problems or [""]:
            print(f"{status:9} {name:30} {problem}", flush=True)
    print(f"{totals['right']} right, {totals['wrong']} wrong")
    return 1 if totals["wrong"] else 0


def check_variants(names: list[str], arguments: argparse.Namespace) -> int:
    """Print a line for each problem, and how many there are of each variant."""
    totals: collections.Counter[str] = collections.Counter()
    lines = []
    tasks: list[tuple[Any, ...]] = [
        (name, arguments.dtype, arguments.variants, arguments.samples) for name in names
    ]
    for name, problems, death in answers("check_variants", tasks, arguments):
        for problem in [op_variants.Problem("all", "", death)] if death else problems:
            totals[problem.variant] += 1
            lines.append(
                f"{problem.variant:22} {name:40} sample {problem.sample}: {problem.detail}"
            )
            print(lines[-1], flush=True)
        if arguments.out:
            arguments.out.write_text("\n".join(lines) + "\n")
    differ = (f"{count} {variant}" for variant, count in sorted(totals.items()))
    print(", ".join(differ) or "nothing differs")
    return 1 if totals else 0


def check_split(names: list[str], arguments: argparse.Namespace) -> int:
    """Print a line for each problem, and how many entries have any."""
    # As many devices out of the CPU, for the children: this process makes no client.
    os.environ["CPU_NUM_DEVICES"] = str(math.prod(arguments.split))
    wrong = 0
    lines = []
    options = arguments.dtype, arguments.samples, arguments.split
    tasks: list[tuple[Any, ...]] = [(name, *options) for name in names]
    for name, problems, death in answers("check_split", tasks, arguments):
        if death:
            problems = list(deaths_of_split(name, arguments)) or [split.Problem("all", death)]
        wrong += bool(problems)
        for problem in problems:
            lines.append(f"{name:40} {problem.case}: {problem.detail}")
            print(lines[-1], flush=True)
        if arguments.out:
            arguments.out.write_text("".join(f"{line}\n" for line in lines))
    print(f"{len(names) - wrong} right, {wrong} wrong")
    return 1 if wrong else 0


def deaths_of_split(name: str, arguments: argparse.Namespace) -> Iterator[split.Problem]:
    """Of an entry that ended its process, each case by itself."""
    task = name, arguments.dtype, arguments.samples
    ((_, cases),) = workers.run("checks:cases_of_split", [task], 1, arguments.timeout)
    chosen = [(*task, arguments.split, case) for case in cases if case.tensor >= 0]
    for (*_, case), found in workers.run("checks:check_split", chosen, 1, arguments.timeout):
        if isinstance(found, workers.Died):
            yield split.Problem(str(case), f"died: {found.how}")
        elif isinstance(found, list):
            yield from found


def check_sweep(names: list[str], arguments: argparse.Namespace) -> int:
    """Print a line for each problem that tests/ops/sweep_exceptions.txt does not have."""
    totals: collections.Counter[str] = collections.Counter()
    is_excused = sweep.excused()
    with contextlib.ExitStack() as files:
        out = files.enter_context(arguments.out.open("w")) if arguments.out else None
        for p in sweep.problems(names, sweep.DTYPES, arguments.jobs, arguments.timeout):
            if is_excused(p):
                totals["excused"] += 1
                continue
            totals[p.kind] += 1
            line = f"{p.kind:9} {p.entry:40} {p.dtype:13} {p.case:22} {p.detail}"
            for file in filter(None, (sys.stdout, out)):
                print(line, file=file, flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in sorted(totals.items())) or "none differs")
    return 1 if set(totals) - {"excused"} else 0


if __name__ == "__main__":
    sys.exit(main())

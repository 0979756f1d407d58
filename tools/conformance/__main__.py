"""`python tools/conformance [--dtype float32] [--only add,mul] [--out table.txt]`."""

from __future__ import annotations

import argparse
import collections
import pathlib
import sys
from collections.abc import Iterable
from typing import Any

import modules
import op_samples
import op_variants
import optimizers
import torch
from torch.testing._internal.opinfo.core import OpInfo


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
    parser.add_argument("--out", type=pathlib.Path, help="file that receives the table too")
    arguments = parser.parse_args()
    arguments.dtype = getattr(torch, arguments.dtype, None)
    if not isinstance(arguments.dtype, torch.dtype):
        parser.error("--dtype: not the name of a torch.dtype")
    if arguments.variants:
        arguments.variants = tuple(arguments.variants.split(","))
        if unknown := set(arguments.variants) - set(op_variants.VARIANTS):
            parser.error(f"--variants: no such variants: {', '.join(sorted(unknown))}")
    arguments.chosen = choose(parser, arguments)
    return arguments


def choose(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> list[Any]:
    """The entries of the database that is asked for, as `--only` and `--part` say."""
    entries: list[tuple[set[str], Any]]
    if arguments.modules:
        entries = [({info.name}, info) for info in modules.entries()]
    elif arguments.optimizers:
        entries = [({optimizers.class_of(i).__name__}, i) for i in optimizers.entries()]
    else:
        entries = [({op.name, op.full_name}, op) for op in op_samples.entries()]
    wanted = set(filter(None, arguments.only.split(",")))
    if unknown := wanted - set().union(*(names for names, _ in entries)):
        parser.error(f"--only: the database has no {', '.join(sorted(unknown))}")
    first, stride = map(int, arguments.part.split("/"))
    return [info for names, info in entries if not wanted or names & wanted][first::stride]


def main() -> int:
    """Check the entries, print a line for each and the totals; 1 if any is wrong."""
    arguments = parse()
    chosen = arguments.chosen
    if arguments.modules:
        return tell((i.name, modules.check(i, arguments.dtype)) for i in chosen)
    if arguments.optimizers:
        return tell((optimizers.class_of(i).__name__, optimizers.check(i)) for i in chosen)
    if arguments.variants:
        return check_variants(chosen, arguments)
    return check_operators(chosen, arguments)


def check_operators(chosen: list[OpInfo], arguments: argparse.Namespace) -> int:
    """Print a line for each entry, forward and backward, and how many there are of each status."""
    totals: collections.Counter[str] = collections.Counter()
    lines = []
    for op in chosen:
        verdict = op_samples.check(
            op,
            arguments.dtype,
            not arguments.no_backward,
            arguments.samples,
            not arguments.no_list,
        )
        totals[verdict.status] += 1
        detail = verdict.detail + " ".join(verdict.fallbacks)
        lines.append(f"{verdict.status:11} {verdict.name:45} {detail}".rstrip())
        print(lines[-1], flush=True)
        if arguments.out:
            arguments.out.write_text("\n".join(lines) + "\n")
    print(", ".join(f"{count} {status}" for status, count in sorted(totals.items())))
    return 1 if totals["wrong"] else 0


def tell(found: Iterable[tuple[str, list[str]]]) -> int:
    """Print each entry as it is checked, with its problems."""
    totals: collections.Counter[str] = collections.Counter()
    for name, problems in found:
        status = "wrong" if problems else "right"
        totals[status] += 1
        for problem in problems or [""]:
            print(f"{status:9} {name:30} {problem}", flush=True)
    print(f"{totals['right']} right, {totals['wrong']} wrong")
    return 1 if totals["wrong"] else 0


def check_variants(chosen: list[OpInfo], arguments: argparse.Namespace) -> int:
    """Print a line for each problem, and how many there are of each variant."""
    dtype = arguments.dtype
    totals: collections.Counter[str] = collections.Counter()
    lines = []
    for op in chosen:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        for problem in op_variants.check(op, dtype, arguments.variants, arguments.samples):
            totals[problem.variant] += 1
            lines.append(
                f"{problem.variant:22} {op.full_name:40} sample {problem.sample}: {problem.detail}"
            )
            print(lines[-1], flush=True)
        if arguments.out:
            arguments.out.write_text("\n".join(lines) + "\n")
    differ = (f"{count} {variant}" for variant, count in sorted(totals.items()))
    print(", ".join(differ) or "nothing differs")
    return 1 if totals else 0


if __name__ == "__main__":
    sys.exit(main())

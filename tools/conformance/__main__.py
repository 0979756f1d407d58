"""`python tools/conformance [--dtype float32] [--only add,mul] [--out table.txt]`."""

from __future__ import annotations

import argparse
import collections
import pathlib
import sys
from collections.abc import Iterable

import modules
import op_samples
import op_variants
import optimizers
import torch
from torch.testing._internal.opinfo.core import OpInfo


def main() -> int:
    """Check the entries, print a line for each and the totals; 1 if any is wrong."""
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--only", default="", help="names separated by commas")
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
    wanted = set(filter(None, arguments.only.split(",")))
    first, stride = map(int, arguments.part.split("/"))
    chosen = [op for op in op_samples.entries() if not wanted or op.name in wanted][first::stride]
    totals: collections.Counter[str] = collections.Counter()
    lines = []
    if arguments.modules:
        dtype = getattr(torch, arguments.dtype)
        return tell(
            (i.name, modules.check(i, dtype))
            for i in modules.entries()[first::stride]
            if not wanted or i.name in wanted
        )
    if arguments.optimizers:
        return tell(
            (optimizers.class_of(i).__name__, optimizers.check(i))
            for i in optimizers.entries()[first::stride]
            if not wanted or optimizers.class_of(i).__name__ in wanted
        )
    if arguments.variants:
        return check_variants(chosen, arguments)
    for op in chosen:
        verdict = op_samples.check(
            op,
            getattr(torch, arguments.dtype),
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
    dtype = getattr(torch, arguments.dtype)
    names = tuple(arguments.variants.split(","))
    totals: collections.Counter[str] = collections.Counter()
    lines = []
    for op in chosen:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        for problem in op_variants.check(op, dtype, names, arguments.samples):
            totals[problem.variant] += 1
            lines.append(
                f"{problem.variant:22} {op.full_name:40} sample {problem.sample}: {problem.detail}"
            )
            print(lines[-1], flush=True)
        if arguments.out:
            arguments.out.write_text("\n".join(lines) + "\n")
    print(", ".join(f"{count} {variant}" for variant, count in sorted(totals.items())))
    return 1 if totals else 0


if __name__ == "__main__":
    sys.exit(main())

"""`python tools/conformance [--dtype float32] [--only add,mul] [--out table.txt]`."""

from __future__ import annotations

import argparse
import collections
import pathlib
import sys

import op_samples
import torch


def main() -> int:
    """Check the entries, print a line for each and the totals; 1 if any is wrong."""
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--only", default="", help="names separated by commas")
    parser.add_argument("--part", default="0/1", help="i/n: every n-th entry from the i-th on")
    parser.add_argument("--samples", type=int, default=24, help="at most, per entry")
    parser.add_argument("--no-backward", action="store_true")
    parser.add_argument("--out", type=pathlib.Path, help="file that receives the table too")
    arguments = parser.parse_args()
    wanted = set(filter(None, arguments.only.split(",")))
    first, stride = map(int, arguments.part.split("/"))
    chosen = [op for op in op_samples.entries() if not wanted or op.name in wanted][first::stride]
    totals: collections.Counter[str] = collections.Counter()
    lines = []
    for op in chosen:
        verdict = op_samples.check(
            op, getattr(torch, arguments.dtype), not arguments.no_backward, arguments.samples
        )
        totals[verdict.status] += 1
        lines.append(
            f"{verdict.status:9} {verdict.name:45} {verdict.detail}{' '.join(verdict.fallbacks)}"
        )
        print(lines[-1], flush=True)
        if arguments.out:
            arguments.out.write_text("\n".join(lines) + "\n")
    print(", ".join(f"{count} {status}" for status, count in sorted(totals.items())))
    return 1 if totals["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())

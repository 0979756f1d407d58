"""Runs the Python blocks of a page in order, in one process: a JSON list of programs comes in, a
list of what each printed goes out."""

from __future__ import annotations

import contextlib
import io
import json
import sys


def run_blocks(codes: list[str]) -> list[str]:
    """What each block prints."""
    namespace: dict[str, object] = {"__name__": "__page__"}
    printed = []
    for code in codes:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(code, "page", "exec"), namespace)
        printed.append(out.getvalue())
    return printed


if __name__ == "__main__":
    print(json.dumps(run_blocks(json.load(sys.stdin))))

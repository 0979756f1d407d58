"""What a PJRT plugin supports: `python -m torch_xla.conformance /path/to/plugin.so`.

Prints a line for each claim of what torch_xla needs of a plugin or uses where it is there:
supported, unsupported or FAILED, and ends with 1 if anything failed. Without a path the plugin is
the one that would be used anyway. The claims run in a child process; one that ends it has failed,
and those behind it run in the next.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from torch_xla import _claims
from torch_xla._settings import settings

__all__ = ["Outcome", "examine", "main"]

_TIMEOUT_S = 300.0


class Outcome(NamedTuple):
    """What came of a claim: `status` is "supported", "unsupported" or "FAILED"."""

    claim: str
    status: str
    detail: str = ""


def _try(name: str, claim: _claims.Claim) -> Outcome:
    try:
        return Outcome(name, "supported", claim() or "")
    except Exception as error:  # whatever a plugin does: the other claims are tried too
        first = next(filter(None, str(error).splitlines()), type(error).__name__)
        is_lack = isinstance(error, NotImplementedError) or "UNIMPLEMENTED" in str(error)
        kind = "" if is_lack else f"{type(error).__name__}: "
        return Outcome(name, "unsupported" if is_lack else "FAILED", kind + first)


def _answer(names: list[str], path: str) -> None:
    """The child: says in a file what it begins, and what came of it. Plugins print as they like."""
    claims = dict(_claims.claims())
    # All of float32's digits: what fewer do is a choice of the user's, not the plugin's.
    settings.mat_mul_precision = "highest"
    with open(path, "a") as file:
        for name in names:
            print(json.dumps([name]), file=file, flush=True)
            print(json.dumps(_try(name, claims[name])), file=file, flush=True)


def _run_child(
    names: list[str], environment: Mapping[str, str], timeout_s: float
) -> Iterator[Outcome]:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "answers")
        cache = {"XLA_PERSISTENT_CACHE": "1", "XLA_PERSISTENT_CACHE_PATH": folder}
        program = "import sys, torch_xla.conformance as c; c._answer(sys.argv[2:], sys.argv[1])"
        try:
            status = subprocess.run(
                [sys.executable, "-P", "-c", program, str(path), *names],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **environment, **cache},
                timeout=timeout_s,
                check=False,
            ).returncode
            how = f"the process ended by {signal.Signals(-status).name}" if status < 0 else ""
        except subprocess.TimeoutExpired:
            status, how = 1, f"no answer in {timeout_s:g} s"
        lines = (
            [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        )
    yield from (Outcome(*line) for line in lines if len(line) > 1)
    if status and (not lines or len(lines[-1]) == 1):
        name = lines[-1][0] if lines else names[0]
        yield Outcome(name, "FAILED", how or f"the process ended with status {status}")


def examine(
    names: list[str], environment: Mapping[str, str] | None = None, timeout_s: float = _TIMEOUT_S
) -> Iterator[Outcome]:
    """What came of each claim, in order; of none behind the first if there is no device.

    Args:
        names: those of `_claims.claims()`.
        environment: variables beside those of this process.
        timeout_s: how long a child may take for all that it is asked.
    """
    first = next(name for name, _ in _claims.claims())
    left = list(names)
    while left:
        outcomes = list(_run_child(left, environment or {}, timeout_s))
        for outcome in outcomes:
            yield outcome
            if outcome.claim == first and outcome.status == "FAILED":
                return
        left = left[len(outcomes) :] if outcomes else []


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m torch_xla.conformance", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("plugin", nargs="?", type=pathlib.Path, help="the library")
    parser.add_argument("--kind", help="what PJRT_DEVICE is to be")
    parser.add_argument("--only", default="", help="claims whose names contain this")
    parsed = parser.parse_args(arguments)
    if parsed.plugin is not None and not parsed.plugin.is_file():
        parser.error(f"{parsed.plugin}: there is no such file")
    return parsed


def main(arguments: list[str] | None = None, write: Callable[[str], Any] = print) -> int:
    """The command."""
    parsed = _parse(arguments)
    environment = {"PJRT_DEVICE": parsed.kind} if parsed.kind else {}
    if parsed.plugin is not None:
        environment["PJRT_LIBRARY_PATH"] = str(parsed.plugin.resolve())
    first, *others = (name for name, _ in _claims.claims())
    totals = {"supported": 0, "unsupported": 0, "FAILED": 0}
    chosen = [first, *(name for name in others if parsed.only in name)]
    for outcome in examine(chosen, environment):
        totals[outcome.status] += 1
        write(f"{outcome.status:12} {outcome.claim:30} {outcome.detail}".rstrip())
    write(", ".join(f"{count} {status}" for status, count in totals.items()).lower())
    return 1 if totals["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())

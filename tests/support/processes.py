"""Programs in a process of their own, for what only a fresh one shows."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap


def run_in_process(code: str, *arguments: str, **environment: str) -> str:
    """What the program prints; fails the test if it does not end well."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()

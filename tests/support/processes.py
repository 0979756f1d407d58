"""Programs in a process of their own, for what only a fresh one shows."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import textwrap
from typing import Any

import pytest

import torch_xla


def run_in_process(code: str, *arguments: str, **environment: str) -> str:
    """What the program prints; fails the test if it does not end well."""
    return _run("-P", "-c", textwrap.dedent(code), *arguments, **environment)


def json_of_program(path: pathlib.Path, *arguments: str, **environment: str) -> Any:
    """What the last line says that a program in a file prints; fails likewise."""
    return json.loads(_run(str(path), *arguments, **environment).splitlines()[-1])


def _run(*arguments: str, **environment: str) -> str:
    if "CPU_NUM_DEVICES" in environment and torch_xla.runtime.device_type() != "CPU":
        pytest.skip("devices are made of the CPU")
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()

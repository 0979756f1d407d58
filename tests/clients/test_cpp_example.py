"""The device from C++: the example that the build makes runs without Python."""

from __future__ import annotations

import os
import subprocess

import pytest
from clone import ROOT

from torch_xla import _plugins

EXAMPLES = sorted(ROOT.glob("build/*/example_matmul"))


@pytest.mark.skipif(not EXAMPLES, reason="not built: cmake --build build/release -t cpp_tests")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_example_runs_without_python(example):
    device, library, _ = _plugins.resolve()
    done = subprocess.run(
        [example],
        env={**os.environ, "PJRT_DEVICE": device, "PJRT_LIBRARY_PATH": library},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "recorded on xla:0: [64, 16]" in done.stdout

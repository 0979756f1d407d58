"""The device from C++: the example is built with the installed package, and runs without Python."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from clone import ROOT

import torch_xla
from torch_xla import _plugins

pytestmark = pytest.mark.skipif(not shutil.which("cmake"), reason="CMake is not installed")


def configure(folder, *options):
    package = torch_xla.__path__[0]
    options = (*options, "-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_PREFIX_PATH={package}")
    return subprocess.run(
        ["cmake", "-S", ROOT / "examples" / "cpp", "-B", folder, *options],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_example_is_built_with_the_package_and_runs_without_python(tmp_path):
    configured = configure(tmp_path)
    assert configured.returncode == 0, configured.stderr
    subprocess.run(["cmake", "--build", tmp_path], check=True, timeout=500)
    device, library, _ = _plugins.resolve()
    done = subprocess.run(
        [tmp_path / "matmul"],
        env={**os.environ, "PJRT_DEVICE": device, "PJRT_LIBRARY_PATH": library},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "recorded on xla:0: [64, 16]" in done.stdout


@pytest.mark.parametrize(
    ("version", "text"),
    [(None, "PyTorch is not in "), ("9.99.0", "there is no library for torch 9.99 in ")],
)
def test_a_torch_without_a_library_is_told(tmp_path, version, text):
    if version:
        (tmp_path / "version.py").write_text(f"__version__ = '{version}'\n")
    configured = configure(tmp_path / "build", f"-DTORCH_PACKAGE_DIR={tmp_path}")
    assert configured.returncode != 0
    assert text in " ".join(configured.stderr.split())
